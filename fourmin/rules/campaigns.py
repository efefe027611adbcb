"""LED, RUN and DAT over several campaigns: what they say of each other."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence

from fourmin.ledger.view import CampaignView
from fourmin.results.plan import Plan
from fourmin.rules.rule import ERROR, NOTE, TREE, WARNING, Problem, rule
from fourmin.rules.runs import time_series


def _counted(campaigns: Sequence[CampaignView]) -> list[tuple[CampaignView, Plan]]:
    """Each campaign that counts, once, with its plan."""
    known = _by_digest(campaigns).values()
    return [(one, one.plan) for one in known if one.plan and not one.plan.practice]


def _by_digest(campaigns: Sequence[CampaignView]) -> dict[str, CampaignView]:
    """One view of each campaign: one that lies in two places is one campaign."""
    found: dict[str, CampaignView] = {}
    for campaign in campaigns:
        if campaign.plan is not None:
            found.setdefault(campaign.digest, campaign)
    return found


@rule("LED008", "earlier-campaign-changed", ERROR, TREE)
def earlier_campaign_changed(campaigns: Sequence[CampaignView]) -> Iterator[Problem]:
    """An earlier campaign still has the ledger that a later one saw.

    What it checks
        Each head in `earlier_campaigns` of a campaign.json is a line of that campaign's ledger,
        where the campaign is among those that are checked.
    Why it is bad
        A ledger that lost the line that others have seen was rewritten.
    Example
        A campaign that failed, made anew under the same plan.
    How to put it right
        Restore the earlier campaign's ledger.
    """
    known = _by_digest(campaigns)
    for campaign in campaigns:
        for earlier in () if campaign.plan is None else campaign.plan.earlier_campaigns:
            other = known.get(earlier.campaign)
            if other is not None and earlier.head not in other.heads:
                yield Problem(
                    other.where("ledger.jsonl"),
                    f"it lacks the line that {campaign.path} saw when it was opened",
                )


@rule("LED009", "earlier-campaign-missing", NOTE, TREE)
def earlier_campaign_missing(campaigns: Sequence[CampaignView]) -> Iterator[Problem]:
    """A campaign names earlier ones that are not here.

    What it checks
        Whether the campaigns in `earlier_campaigns` of each campaign.json are among those that
        are checked.
    Why it is bad
        It is not, if they lie elsewhere. If they lie nowhere, results were left out.
    Example
        The third campaign of a benchmark is submitted, the first two are not.
    How to put it right
        Check them together: name the folder that holds all of them.
    """
    known = _by_digest(campaigns)
    for campaign in known.values():
        named = () if campaign.plan is None else campaign.plan.earlier_campaigns
        shown = 1 + sum(earlier.campaign in known for earlier in named)
        if shown <= len(named):
            yield Problem(
                campaign.where("campaign.json"),
                f"{shown} of {len(named) + 1} campaigns of this benchmark that were known where "
                "it was made are shown here",
            )


@rule("LED010", "earlier-campaign-unnamed", WARNING, TREE)
def earlier_campaign_unnamed(campaigns: Sequence[CampaignView]) -> Iterator[Problem]:
    """A campaign does not name an earlier one of the same submitter and system.

    What it checks
        Of two campaigns that count, of one benchmark, submitter, chip model, number of chips and
        nodes, whether the later names the earlier in `earlier_campaigns`. With `--base` it is an
        error where the earlier one was on the base branch before this one's plan came there to
        be run: `fourmin register` reads that branch. (One that registered itself may have been
        made where there is no repository.)
    Why it is bad
        Each was run as if the other did not exist. Of campaigns that do not know each other, one
        can be shown and the rest kept back.
    Example
        Two campaigns in two results folders, with the memory of the machine erased in between.
    How to put it right
        Run or register in an up-to-date checkout of the repository of submissions, and run all
        campaigns of a benchmark with one results folder. All of them are reported.
    """
    counted = _counted(campaigns)
    by_system: dict[Hashable, list[tuple[CampaignView, Plan]]] = {}
    for campaign, plan in counted:
        by_system.setdefault((plan.benchmark, plan.submitter, plan.system_kind), []).append(
            (campaign, plan)
        )
    for group in by_system.values():
        for campaign, plan in group:
            named = {earlier.campaign for earlier in plan.earlier_campaigns}
            for other, theirs in group:
                if other.digest in named or other is campaign:
                    continue
                if _landed_before(other, campaign):
                    why = "which was on the base branch when this plan came there"
                    yield Problem(
                        campaign.where("campaign.json"),
                        f"it does not name {other.path}, {why}",
                        severity=ERROR,
                    )
                elif theirs.created_ms < plan.created_ms:
                    yield Problem(
                        campaign.where("campaign.json"),
                        f"it does not name {other.path}, which is older",
                    )


def _landed_before(earlier: CampaignView, later: CampaignView) -> bool:
    """Whether git knows that `earlier` was on the base branch before the plan of `later`."""
    seeds = later.history.seeds
    alone = seeds is not None and seeds.data.get("registration") == "self"
    if earlier.landed is None or alone:
        return False
    return later.landed is None or earlier.landed.order < later.landed.order


@rule("RUN011", "run-in-two-campaigns", ERROR, TREE)
def run_in_two_campaigns(campaigns: Sequence[CampaignView]) -> Iterator[Problem]:
    """No run of a campaign is a run of another one.

    What it checks
        Between the runs of all campaigns that are checked: the times of the events since the
        first one, the losses, and the digests of initial weights.
    Why it is bad
        A run that lies in two campaigns was picked for the second.
    Example
        The fastest run of a campaign that failed, shown again in the next.
    How to put it right
        Nothing can be put right in the files. Run another campaign.
    """
    seen: dict[str, tuple[str, str]] = {}
    for digest, campaign in _by_digest(campaigns).items():
        for run in campaign.runs:
            weights = run.facts.initial_weights_digest
            series = list(time_series(run))
            if isinstance(weights, str):
                series.append(("initial weights", weights))
            for what, value in series:
                other, path = seen.setdefault(f"{what} {value}", (digest, run.path))
                if other != digest:
                    yield Problem(run.log_path, f"the same {what} as {path}")


@rule("DAT006", "dataset-of-the-others", ERROR, TREE)
def dataset_of_the_others(campaigns: Sequence[CampaignView]) -> Iterator[Problem]:
    """Campaigns of one benchmark use one dataset, also where the benchmark does not fix it.

    What it checks
        The digests of both splits in the plans of all campaigns that count and are checked
        together, against the campaign of the benchmark that was registered first.
    Why it is bad
        Times on different images do not compare.
    Example
        ImageNet with 41 images left out that did not decode.
    How to put it right
        Find out with `fourmin data check` which files differ.
    """
    first: dict[tuple[str, str], tuple[CampaignView, Plan]] = {}
    for campaign, plan in sorted(_counted(campaigns), key=lambda pair: pair[1].created_ms):
        other, theirs = first.setdefault((plan.ruleset, plan.benchmark), (campaign, plan))
        for name in ("train_digest", "eval_digest"):
            if plan.dataset[name] != theirs.dataset[name]:
                yield Problem(
                    campaign.where("campaign.json"), f"{name} is not that of {other.path}"
                )
