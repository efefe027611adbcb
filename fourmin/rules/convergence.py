"""CNV: the campaign converged, and no faster than the reference says it can."""

from __future__ import annotations

from collections.abc import Iterator

from fourmin.ledger.view import CampaignView
from fourmin.rules.rule import CAMPAIGN, WARNING, Problem, rule


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
