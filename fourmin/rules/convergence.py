"""CNV: the campaign converged, and no faster than the reference says it can."""

from __future__ import annotations

from collections.abc import Iterator

from fourmin.ledger.chain import Entry
from fourmin.ledger.view import CampaignView, Document
from fourmin.results.plan import Plan
from fourmin.results.rcp import Convergence, convergence, spread
from fourmin.rules.rule import CAMPAIGN, ERROR, NOTE, WARNING, Problem, rule, unchecked


@rule("CNV001", "no-result", WARNING, CAMPAIGN)
def no_result(campaign: CampaignView, summary: Document) -> Iterator[Problem]:
    """The campaign was closed, but its runs give no benchmark result.

    What it checks
        `minutes` in summary.json is null: more than one run did not converge.
    Why it is bad
        The mean of the runs that happened to converge is not the time to train.
    Example
        3 of 5 runs reached the target.
    How to put it right
        Keep the campaign with the others. Settings that converge more often need another one.
    """
    told = summary.content
    if told is not None and told["minutes"] is None:
        failed = sum(run["status"] != "converged" for run in told["runs"])
        what = f"no benchmark result: {failed} of {len(told['runs'])} runs did not converge"
        yield Problem(what, path=summary.path)


@rule("CNV002", "faster-than-reference", ERROR, CAMPAIGN)
def faster_than_reference(campaign: CampaignView, plan: Plan, close: Entry) -> Iterator[Problem]:
    """A campaign converges in no fewer epochs than the reference accepts.

    What it checks
        The mean epochs of the runs, without the fastest and the slowest, against the reference
        convergence point at the batch size: at least its mean less what chance explains (Student's
        t, one-sided, 5%). In the closed division, which ends at the batch of the largest point.
        Below the batch of the smallest point too few epochs prove nothing, because smaller batches
        may need fewer; there, and for a benchmark without reference points, the campaign is
        unchecked.
    Why it is bad
        Who needs fewer epochs than the same training can need has trained something else, or has
        picked the runs.
    Example
        33 epochs at batch 3,264, where 34.31 are the least that is accepted.
    How to put it right
        Look for the difference from the reference. Better settings need a new reference point,
        which takes ten reference runs at this batch size.
    """
    if plan.practice or plan.division != "closed":
        return
    found = _convergence(campaign, plan)
    path = "summary.json"
    if found.epochs is None:
        return  # no-result tells
    if found.reference is None:
        yield unchecked(f"{plan.benchmark} has no reference point", path)
    elif found.too_few and found.below:
        up_to = f"no reference point up to batch {plan.configuration['global_batch_size']}"
        yield unchecked(f"{found.epochs:.2f} epochs, and {up_to}", path)
    elif found.too_few:
        yield Problem(found.too_few, path=path)


def _convergence(campaign: CampaignView, plan: Plan) -> Convergence:
    return convergence(plan, [run.facts for run in campaign.runs if run.log is not None])


@rule("CNV003", "scaled-by-reference", NOTE, CAMPAIGN)
def scaled_by_reference(campaign: CampaignView, plan: Plan, close: Entry) -> Iterator[Problem]:
    """A campaign that converged faster than the reference's mean is scored as if it had not.

    What it checks
        Whether the mean epochs lie below the reference's mean, but within what is accepted, or
        where the batch is smaller than every reference's: the score is multiplied by the
        reference's mean over the campaign's.
    Why it is bad
        It is not. But luck with epochs is not speed.
    Example
        35 epochs at batch 3,264, whose reference needs 35.15 on average.
    How to put it right
        Nothing needs to be done.
    """
    factor = _convergence(campaign, plan).factor
    if factor is not None and factor > 1:
        yield Problem(f"the score is multiplied by {factor:.4f}", path="summary.json")


@rule("CNV004", "no-reference-point", NOTE, CAMPAIGN)
def no_reference_point(campaign: CampaignView, plan: Plan, close: Entry) -> Iterator[Problem]:
    """There is no reference convergence point for this benchmark and batch size.

    What it checks
        Whether the ruleset has reference points for the benchmark, from or up to this batch size.
    Why it is bad
        It is not. But nothing says how many epochs this training needs.
    Example
        AlexNet, or ResNet-50 at batch 256, below the smallest reference.
    How to put it right
        Ten reference runs at this batch size make a reference point.
    """
    found = _convergence(campaign, plan)
    closed = plan.division == "closed" and not plan.practice
    if closed and (found.reference is None or found.below):
        batch = plan.configuration["global_batch_size"]
        yield Problem(f"no reference point for batch {batch}")


@rule("CNV006", "wide-spread", WARNING, CAMPAIGN)
def wide_spread(campaign: CampaignView, plan: Plan, close: Entry) -> Iterator[Problem]:
    """Runs take times that differ by no more than seeds explain.

    What it checks
        The variance of the logarithm of the times of the runs that converged, against that of the
        epochs of the benchmark's reference runs: their ratio lies below the 99% point of F.
        Practice is looked at, too.
    Why it is bad
        Something else took part of the machine in some of the runs, or its clocks changed: the
        result is of that as much as of the training.
    Example
        Five runs of 5 to 17 s, a spread of 60%, where the reference runs' seeds explain 22%.
    How to put it right
        End what else runs on the machine (`fourmin doctor` names the load), fix the clocks, and run
        another campaign.
    """
    logged = [run.facts for run in campaign.runs if run.log is not None]
    minutes = [facts.counted_minutes(plan.practice) for facts in logged]
    # A clock that goes back is told of by other rules, and has no logarithm.
    found = spread(plan, [value for value in minutes if value is not None and value > 0])
    if found is not None and found[0] > found[1]:
        own, most = found
        what = f"the runs' times spread by {own:.0%}, where seeds explain {most:.0%} at most"
        yield Problem(what, path="summary.json")
