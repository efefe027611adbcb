"""LED: the ledger's chain and order, and the files that it vouches for."""

from __future__ import annotations

from collections.abc import Iterator

from fourmin.ledger.chain import MAX_LINE_BYTES
from fourmin.ledger.file_kinds import KEPT_LOG, RUN_FOLDER, file_kind
from fourmin.ledger.view import CampaignView
from fourmin.rules.rule import CAMPAIGN, ERROR, WARNING, Problem, rule

LEDGER = "ledger.jsonl"


@rule("LED001", "hash-chain", ERROR, CAMPAIGN)
def hash_chain(campaign: CampaignView) -> Iterator[Problem]:
    """Each ledger line is canonical JSON and names the line before it by its SHA-256.

    What it checks
        Every line of ledger.jsonl is strict JSON in RFC 8785's spelling, a record of a known
        kind, numbered from 0, with the SHA-256 of the line before it and of itself. No bytes
        follow the last line of a campaign that has ended.
    Why it is bad
        A line that was changed, dropped, added or moved is an attempt that somebody wants to be
        forgotten.
    Example
        The status of a run-result changed from `not-converged` to `converged`.
    How to put it right
        Restore ledger.jsonl from where the campaign ran. It cannot be mended.
    """
    for problem in campaign.chain_problems:
        if problem.kind != "schema":
            yield Problem(problem.message, problem.line, path=LEDGER)
    if _bytes_after_the_end(campaign):
        message = "bytes after the end of the campaign"
        yield Problem(message, campaign.torn_line, path=LEDGER)


def _bytes_after_the_end(campaign: CampaignView) -> bool:
    """Whether a last line without its end is no line that a kill cut off: nothing is written
    after the end, and no record is so long.
    """
    if campaign.torn_line is None:
        return False
    data = campaign.files.get(LEDGER) or b""
    torn = len(data) - data.rfind(b"\n") - 1
    return campaign.history.ended or torn > MAX_LINE_BYTES


@rule("LED002", "ledger-order", ERROR, CAMPAIGN)
def ledger_order(campaign: CampaignView) -> Iterator[Problem]:
    """The records tell a possible story: opening, seeds, each run in turn, the end.

    What it checks
        Every run is intended, started and ended in the plan's order; attempts count from 1; a
        run that had started is not tried again; no run has two results or a result without a
        start; the close comes last, after an outcome of every run.
    Why it is bad
        Whoever may skip a run, or try it again after its start, chooses the runs that count.
    Example
        run-start of run 3, then a second run-intent of run 3.
    How to put it right
        Let `fourmin run` write the ledger. A run that was cut off after its start goes on with
        `--resume`, its clock running, or counts as not converged.
    """
    if LEDGER in campaign.files:
        for contradiction in campaign.history.contradictions:
            yield Problem(contradiction.message, contradiction.line, path=LEDGER)


@rule("LED003", "campaign-digest", ERROR, CAMPAIGN)
def campaign_digest(campaign: CampaignView) -> Iterator[Problem]:
    """campaign.json is the file with which the campaign was opened.

    What it checks
        The SHA-256 of campaign.json's bytes against the ledger's first record.
    Why it is bad
        A plan that is changed after the runs is no plan: whatever came out can be made to have
        been intended.
    Example
        `"runs": 5` for what was registered as 10.
    How to put it right
        Restore campaign.json as it was registered.
    """
    opening = campaign.history.opening
    recorded = None if opening is None else opening.data.get("campaign_sha256")
    if campaign.digest and recorded != campaign.digest:
        yield Problem("its SHA-256 is not the one with which the ledger opens")


@rule("LED004", "recorded-file", ERROR, CAMPAIGN)
def recorded_file(campaign: CampaignView) -> Iterator[Problem]:
    """Every file that the ledger records is there, byte for byte.

    What it checks
        The SHA-256 of each run's events.log and result.json, of the logs of earlier attempts,
        and of summary.json, against the ledger's records.
    Why it is bad
        A log or a result that changed after its run shows something that did not happen.
    Example
        One accuracy in run-4/events.log raised by a hundredth, or the folder run-4 deleted.
    How to put it right
        Restore the file from where the campaign ran.
    """
    for name, recorded, line in _recorded(campaign):
        at = f"the ledger's line {line} records it"
        present = campaign.settled(name)
        digest = campaign.digests.get(present)
        if present not in campaign.files:
            yield Problem(f"the file is missing, but {at}", path=name)
        elif digest is not None and digest != recorded:
            yield Problem(f"the file has changed: {at} with another SHA-256", path=present)


def _recorded(campaign: CampaignView) -> Iterator[tuple[str, object, int]]:
    """Name, SHA-256 and ledger line of every file that the ledger records, but the plan."""
    for entry in campaign.entries:
        folder = f"run-{entry.data.get('run')}"
        if entry.kind == "run-result":
            yield f"{folder}/events.log", entry.data.get("events_sha256"), entry.line
            yield f"{folder}/result.json", entry.data.get("result_sha256"), entry.line
        elif entry.kind == "campaign-close":
            yield "summary.json", entry.data.get("summary_sha256"), entry.line
        elif entry.kind == "run-intent" and "earlier_events_sha256" in entry.data:
            attempt = entry.data.get("attempt")
            earlier = attempt - 1 if isinstance(attempt, int) else 0
            kept = f"{folder}/events.attempt-{earlier}.log"
            yield kept, entry.data["earlier_events_sha256"], entry.line


@rule("LED005", "unrecorded-file", ERROR, CAMPAIGN)
def unrecorded_file(campaign: CampaignView) -> Iterator[Problem]:
    """Every result file was recorded before it appeared.

    What it checks
        A result.json without its run-result, a summary.json without its close, a log without an
        intent, the log of an earlier attempt that no intent names, and a pending file where
        nothing is pending.
    Why it is bad
        The tool records first and then shows. A file without a record was put there, or its
        record was taken away.
    Example
        The last ledger line was cut off, to try run 5 again.
    How to put it right
        Restore the ledger from where the campaign ran. If the file is a leftover, move it away.
    """
    for name in campaign.files:
        reason = _unrecorded(campaign, name)
        if reason:
            yield Problem(reason, path=name)


def _unrecorded(campaign: CampaignView, name: str) -> str:
    """Why the ledger should tell of `name` and does not; empty where it does or need not."""
    kind = file_kind(name)
    history = campaign.history
    folder, _, base = name.rpartition("/")
    match = RUN_FOLDER.match(folder)
    run = history.runs.get(int(match.group(1))) if match else None
    if match and run is None and kind not in ("unknown", "temporary", "dropping"):
        return f"no record tells of run {match.group(1)}"
    if kind == "result" and run is not None and run.result is None:
        return "no run-result in the ledger records it"
    if kind == "summary" and history.close is None:
        return "no campaign-close in the ledger records it"
    if kind == "kept-log" and run is not None:
        number = KEPT_LOG.match(base)
        attempt = int(number.group(1)) if number else 0
        named = attempt in run.kept_attempts
        waiting = attempt == len(run.intents) and run.start is None and not history.ended
        return "" if named or waiting else f"no record tells of a log of attempt {attempt}"
    if kind == "pending" and not _may_wait(campaign, name):
        return "a pending file, but nothing is pending"
    return ""


def _may_wait(campaign: CampaignView, name: str) -> bool:
    """Whether a kill can have left this pending file."""
    if campaign.digests.get(name) in campaign.vouched:
        return name.removesuffix(".pending") not in campaign.files
    match = RUN_FOLDER.match(name.rpartition("/")[0])
    if match is None:
        return not campaign.history.ended
    run = campaign.history.runs.get(int(match.group(1)))
    return run is not None and run.start is not None and run.result is None


@rule("LED006", "interrupted-write", WARNING, CAMPAIGN)
def interrupted_write(campaign: CampaignView) -> Iterator[Problem]:
    """A kill or a power cut left a write half done.

    What it checks
        Pending and temporary files, and a last ledger line without its line end. None of them
        was durable, so nothing was done on its strength.
    Why it is bad
        It is not: nothing is lost. But the campaign is not as it will be.
    Example
        `run-3/result.json.pending`, which the ledger already records.
    How to put it right
        `fourmin run --resume CAMPAIGN` mends it.
    """
    for name in campaign.files:
        waits = file_kind(name) == "pending" and _may_wait(campaign, name)
        if waits or file_kind(name) == "temporary":
            yield Problem("left by an interrupted write", path=name)
    if campaign.torn_line is not None and not _bytes_after_the_end(campaign):
        yield Problem("the last line has no line end", campaign.torn_line, path=LEDGER)


@rule("LED007", "ledger-times", ERROR, CAMPAIGN)
def ledger_times(campaign: CampaignView) -> Iterator[Problem]:
    """The ledger's times never run backwards.

    What it checks
        time_ms of each record against the one before, and of the first against `created_ms` in
        campaign.json.
    Why it is bad
        Records are written in the order in which things happen. Times that run backwards were
        written by hand.
    Example
        A run-result an hour before its run-start.
    How to put it right
        Restore ledger.jsonl from where the campaign ran.
    """
    plan = campaign.plan
    before = 0 if plan is None else plan.created_ms
    what = "the plan's created_ms"
    for entry in campaign.entries:
        if entry.time_ms < before:
            yield Problem(f"{before - entry.time_ms} ms before {what}", entry.line, path=LEDGER)
        before, what = entry.time_ms, "the record before"
