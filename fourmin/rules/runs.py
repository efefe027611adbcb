"""RUN: the set of runs is the planned one, made of different runs with one configuration."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from fourmin.base.values import mapping
from fourmin.ledger.chain import Entry
from fourmin.ledger.view import CampaignView, Document, RunView
from fourmin.log import keys
from fourmin.log.records import Record
from fourmin.results.plan import Plan
from fourmin.results.summary import summarize
from fourmin.rules.compare import MOST_DIFFERENCES, differences
from fourmin.rules.rule import CAMPAIGN, ERROR, NOTE, RUN, WARNING, Problem, rule
from fourmin.ruleset import Benchmark

FEWEST_TIMES = 10
"""Time series shorter than this could agree by chance."""


@rule("RUN001", "number-of-runs", ERROR, CAMPAIGN)
def number_of_runs(campaign: CampaignView, plan: Plan, benchmark: Benchmark) -> Iterator[Problem]:
    """A campaign that counts has the benchmark's number of runs.

    What it checks
        `runs` in campaign.json against the benchmark.
    Why it is bad
        Of more runs the best few can be shown, and fewer say too little about the spread.
    Example
        `"runs": 3` for a benchmark of 5.
    How to put it right
        Run without `--runs`, or with `--practice`, which never counts.
    """
    if plan.runs != benchmark.runs and not plan.practice:
        yield Problem(f"{plan.runs} runs; {benchmark.name} asks for {benchmark.runs}")


@rule("RUN002", "run-folders", ERROR, CAMPAIGN)
def run_folders(campaign: CampaignView) -> Iterator[Problem]:
    """Every run of which the ledger tells has its folder, and no other has one.

    What it checks
        The folders `run-<i>` against the ledger's intents and the plan's number of runs.
    Why it is bad
        A folder that is missing is a run that somebody did not like.
    Example
        run-3 deleted, run-4 and run-5 renamed to run-3 and run-4.
    How to put it right
        Restore the folder from where the campaign ran.
    """
    told = {run for run, history in campaign.history.runs.items() if history.intents}
    present = {run.number for run in campaign.runs}
    for number in sorted(told - present):
        yield Problem("the run's folder is missing", path=f"run-{number}")
    planned = None if campaign.plan is None else campaign.plan.runs
    for run in campaign.runs:
        if planned is not None and run.number is not None and run.number > planned:
            yield Problem(f"the plan has {planned} runs", path=f"run-{run.number}")


@rule("RUN003", "same-configuration", ERROR, RUN)
def same_configuration(run: RunView, plan: Plan, configured: Record) -> Iterator[Problem]:
    """Every run has the configuration that the plan registered.

    What it checks
        The configuration in the log against campaign.json's, field by field.
    Why it is bad
        A set of runs with mixed settings is several sets, of each of which too little is shown.
    Example
        A warmup of 1.8 epochs in run 5 (published MLPerf sets have such).
    How to put it right
        Run a whole campaign with one configuration.
    """
    found = differences(configured.value, plan.configuration)
    for difference in islice(found, MOST_DIFFERENCES):
        message = difference.replace("recomputed", "registered is")
        yield Problem(message, configured.line)


@rule("RUN004", "duplicate-run", ERROR, CAMPAIGN)
def duplicate_run(campaign: CampaignView) -> Iterator[Problem]:
    """No run is another one under a second number.

    What it checks
        Between all runs of the campaign: the times of the events since the first one, and the
        losses of the first steps and of each epoch.
    Why it is bad
        One run that is shown twice makes a set without spread.
    Example
        run-4/events.log is run-2/events.log with another run number and seed.
    How to put it right
        Nothing can be put right in the files. Run another campaign.
    """
    seen: dict[str, int | None] = {}
    for run in campaign.runs:
        for what, series in time_series(run):
            other = seen.setdefault(f"{what} {series}", run.number)
            if other != run.number:
                yield Problem(f"the same {what} as run {other}", path=run.log_name)


def time_series(run: RunView) -> Iterator[tuple[str, str]]:
    """What two runs cannot have in common, by name."""
    if run.timeline is None:
        return
    times = [record.time_ms for record in run.body if record.time_ms is not None]
    if len(times) >= FEWEST_TIMES:
        yield "times", str([time - times[0] for time in times])
    losses = run.facts.first_losses
    if isinstance(losses, list) and losses:
        yield "first losses", str(losses)
    trained = [
        mapping(record.value).get("train_loss") for record in run.timeline.all(keys.TRACKED_STATS)
    ]
    if trained:
        yield "training losses", str(trained)


@rule("RUN005", "practice", NOTE, CAMPAIGN)
def practice(campaign: CampaignView) -> Iterator[Problem]:
    """A practice campaign never counts.

    What it checks
        `practice` in campaign.json.
    Why it is bad
        It is not. It is no result either.
    Example
        `fourmin run --practice --runs 2`.
    How to put it right
        Run without `--practice` for a campaign that counts.
    """
    if campaign.plan is not None and campaign.plan.practice:
        yield Problem("practice: it never counts")


@rule("RUN006", "unfinished-campaign", WARNING, CAMPAIGN)
def unfinished_campaign(campaign: CampaignView) -> Iterator[Problem]:
    """The campaign has neither been closed nor abandoned.

    What it checks
        Whether the ledger ends with campaign-close or campaign-abandon.
    Why it is bad
        There is no result yet. A campaign that is never closed counts as failed.
    Example
        The machine was switched off in the middle of run 3.
    How to put it right
        `fourmin run --resume CAMPAIGN` goes on with it; a run that had started goes on from its
        last checkpoint, its clock running.
    """
    history = campaign.history
    if history.opening is None or history.ended:
        return
    planned = len(campaign.runs) if campaign.plan is None else campaign.plan.runs
    done = sum(run.result is not None for run in history.runs.values())
    yield Problem(f"unfinished: {done} of {planned} runs ended", path="ledger.jsonl")


@rule("RUN007", "abandoned-campaign", WARNING, CAMPAIGN)
def abandoned_campaign(campaign: CampaignView) -> Iterator[Problem]:
    """The campaign was given up; it counts as failed and stays visible.

    What it checks
        Whether the ledger has a campaign-abandon record.
    Why it is bad
        Giving up what looks slow is choosing. That it shows makes it honest.
    Example
        `fourmin abandon` after a disk failed in run 2.
    How to put it right
        Keep the campaign with the others, and run another one.
    """
    abandon = campaign.history.abandon
    if abandon is not None:
        yield Problem("abandoned", abandon.line, path="ledger.jsonl")


@rule("RUN008", "summary-from-runs", ERROR, CAMPAIGN)
def summary_from_runs(
    campaign: CampaignView, plan: Plan, close: Entry, summary: Document
) -> Iterator[Problem]:
    """summary.json says what the runs' logs give, and names the ledger's head.

    What it checks
        The benchmark result is made anew from every event log and compared field by field;
        ledger_head is the SHA-256 of the last line before the close.
    Why it is bad
        A mean that the runs do not give was made up, or left a run out.
    Example
        `"minutes": 0.058` where the three middle runs give 0.061.
    How to put it right
        Restore summary.json from where the campaign ran.
    """
    runs = [run.facts for run in campaign.runs if run.log is not None]
    if summary.error is not None or not runs:
        return  # strict-json or recorded-file tells
    expected = summarize(plan, campaign.digest, close.previous, runs)
    for difference in islice(differences(summary.value, expected), MOST_DIFFERENCES):
        yield Problem(difference, path=summary.path)


@rule("RUN009", "run-not-converged", NOTE, RUN)
def run_not_converged(run: RunView) -> Iterator[Problem]:
    """A run that ended without the target.

    What it checks
        The run's status in a campaign that counts.
    Why it is bad
        It is not: a spread that is shown is honest. One such run may be the dropped slowest.
    Example
        16 epochs, the best accuracy 0.975.
    How to put it right
        Nothing needs to be done.
    """
    status = run.facts.status
    if run.complete and run.log is not None and not run.practice and status != "converged":
        failure = run.facts.failure
        yield Problem(f"{status}" + (f": {str(failure)[:200]}" if failure else ""))


@rule("RUN010", "run-without-campaign", WARNING, RUN)
def run_without_campaign(run: RunView) -> Iterator[Problem]:
    """A run lies alone, without the campaign that vouches for it.

    What it checks
        Whether the run's folder lies in a campaign's.
    Why it is bad
        Without the ledger nothing says whether the log is the one that was written, how often
        this was tried, or which seed was assigned.
    Example
        run-2 copied out of its campaign.
    How to put it right
        Check the run within its campaign's folder.
    """
    if run.campaign is None:
        yield Problem("no campaign vouches for this run", path="")
