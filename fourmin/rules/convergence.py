"""CNV: the campaign converged, and no faster than the reference says it can."""

from __future__ import annotations

from collections.abc import Iterator

from fourmin.ledger.view import CampaignView
from fourmin.results.rcp import Convergence, convergence
from fourmin.rules.rule import CAMPAIGN, ERROR, NOTE, WARNING, Problem, rule


@rule("CNV001", "no-result", WARNING, CAMPAIGN)
def no_result(campaign: CampaignView) -> Iterator[Problem]:
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
    document = campaign.summary_document
    summary = None if document is None else document.content
    if document is not None and summary is not None and summary["minutes"] is None:
        failed = sum(run["status"] != "converged" for run in summary["runs"])
        yield Problem(
            campaign.where(document.path),
            f"no benchmark result: {failed} of {len(summary['runs'])} runs did not converge",
        )


def _convergence(campaign: CampaignView) -> Convergence | None:
    """How a closed campaign that counts converged, None for every other."""
    plan, history = campaign.plan, campaign.history
    if plan is None or plan.practice or history.close is None or plan.division != "closed":
        return None
    return convergence(plan, [run.facts for run in campaign.runs if run.log is not None])


@rule("CNV002", "faster-than-reference", ERROR, CAMPAIGN)
def faster_than_reference(campaign: CampaignView) -> Iterator[Problem]:
    """A campaign converges in no fewer epochs than the reference accepts.

    What it checks
        The mean epochs of the runs, without the fastest and the slowest, against the reference
        convergence point at the batch size: at least its mean less what chance explains (Student's
        t, one-sided, 5%). In the closed division.
    Why it is bad
        Who needs fewer epochs than the same training can need has trained something else, or has
        picked the runs.
    Example
        33 epochs at batch 3,264, where 34.31 are the least that is accepted.
    How to put it right
        Look for the difference from the reference. Better settings need a new reference point,
        which takes ten reference runs at this batch size.
    """
    found = _convergence(campaign)
    if found is not None and found.factor is None and found.reference is not None:
        yield Problem(
            campaign.where("summary.json"),
            f"{found.epochs:.2f} epochs on average; the least that is accepted at batch "
            f"{found.reference.global_batch_size} is {found.reference.minimum:.2f}",
        )


@rule("CNV003", "scaled-by-reference", NOTE, CAMPAIGN)
def scaled_by_reference(campaign: CampaignView) -> Iterator[Problem]:
    """A campaign that converged faster than the reference's mean is scored as if it had not.

    What it checks
        Whether the mean epochs lie below the reference's mean, but within what is accepted: the
        score is multiplied by the reference's mean over the campaign's.
    Why it is bad
        It is not. But luck with epochs is not speed.
    Example
        35 epochs at batch 3,264, whose reference needs 35.15 on average.
    How to put it right
        Nothing needs to be done.
    """
    found = _convergence(campaign)
    if found is not None and found.factor is not None and found.factor > 1:
        yield Problem(
            campaign.where("summary.json"), f"the score is multiplied by {found.factor:.4f}"
        )


@rule("CNV004", "no-reference-point", NOTE, CAMPAIGN)
def no_reference_point(campaign: CampaignView) -> Iterator[Problem]:
    """There is no reference convergence point for this benchmark and batch size.

    What it checks
        Whether the ruleset has reference points for the benchmark, up to this batch size.
    Why it is bad
        It is not. But nothing says how many epochs this training needs.
    Example
        ResNet-50 at batch 131,072, beyond the largest reference.
    How to put it right
        Ten reference runs at this batch size make a reference point.
    """
    found = _convergence(campaign)
    if found is not None and found.reference is None and campaign.plan is not None:
        batch = campaign.plan.configuration["global_batch_size"]
        yield Problem(campaign.where("campaign.json"), f"no reference point for batch {batch}")
