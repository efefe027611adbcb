"""LED, RUN and DAT over several campaigns: what they say of each other.

Each campaign counts once, as `identities` finds it; a copy in a wrong place says nothing of the
others. Between submitters no order is claimed: what one of them writes makes no result of another
invalid.
"""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterator, Sequence
from itertools import takewhile

from fourmin.ledger.identity import identities
from fourmin.ledger.view import CampaignView, RunView
from fourmin.results.plan import Plan
from fourmin.rules.rule import ERROR, NOTE, TREE, WARNING, Problem, rule
from fourmin.rules.runs import time_series


def _counted(campaigns: Sequence[CampaignView]) -> list[tuple[CampaignView, Plan]]:
    """Each campaign that counts, once, with its plan."""
    known = _by_digest(campaigns).values()
    return [(one, one.plan) for one in known if one.plan and not one.plan.practice]


def _by_digest(campaigns: Sequence[CampaignView]) -> dict[str, CampaignView]:
    """Each campaign once, in the folder that counts."""
    return {digest: identity.view for digest, identity in identities(campaigns).items()}


@rule("LED015", "one-chain", ERROR, TREE)
def one_chain(campaigns: Sequence[CampaignView]) -> Iterator[Problem]:
    """Of one plan there is one ledger.

    What it checks
        Of campaigns with the same campaign.json, byte for byte, whether each ledger is the
        beginning of the longest; outside of submissions, and in the plan's place among them.
    Why it is bad
        Of two stories of one campaign one hides the other: a slow run that was tried again.
    Example
        A copy of the folder, made before run 3, in which run 3 was run again.
    How to put it right
        Keep the ledger that was written first, whole; nothing else can be put right.
    """
    for identity in identities(campaigns).values():
        for other in identity.contradicting:
            for one, beside in ((identity.view, other), (other, identity.view)):
                message = f"another ledger of the same plan lies in {beside.path}"
                yield Problem(message, path=one.where("ledger.jsonl"))


@rule("LED008", "earlier-campaign-changed", ERROR, TREE)
def earlier_campaign_changed(campaigns: Sequence[CampaignView]) -> Iterator[Problem]:
    """An earlier campaign still has the ledger that a later one saw.

    What it checks
        Each head in `earlier_campaigns` of a campaign.json is a line of that campaign's ledger,
        where the campaign is among those that are checked. What another submitter says to have
        seen is a warning at the campaign that says so.
    Why it is bad
        A ledger that lost the line that others have seen was rewritten.
    Example
        A campaign that failed, made anew under the same plan.
    How to put it right
        Restore the earlier campaign's ledger.
    """
    known = _by_digest(campaigns)
    for campaign in known.values():
        for earlier in () if campaign.plan is None else campaign.plan.earlier_campaigns:
            other = known.get(earlier.campaign)
            if other is None or earlier.head in other.heads:
                continue
            if other.submitter == campaign.submitter:
                message = f"it lacks the line that {campaign.path} saw when it was opened"
                yield Problem(message, path=other.where("ledger.jsonl"))
            else:
                message = f"it names a line that the ledger of {other.path} does not have"
                yield Problem(message, path=campaign.home, severity=WARNING)


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
            of = f"{len(named) + 1} campaigns of this benchmark that were known where it was made"
            yield Problem(f"{shown} of {of} are shown here", path=campaign.home)


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
                what = f"it does not name {other.path}, which"
                if _landed_before(other, campaign):
                    what += " was on the base branch when this plan came there"
                    yield Problem(what, path=campaign.home, severity=ERROR)
                elif theirs.created_ms < plan.created_ms:
                    yield Problem(f"{what} is older", path=campaign.home)


def _landed_before(earlier: CampaignView, later: CampaignView) -> bool:
    """Whether git knows that `earlier` was on the base branch before the plan of `later`."""
    if earlier.landed is None or later.history.self_registered:
        return False
    return later.landed is None or earlier.landed.order < later.landed.order


@rule("RUN011", "run-in-two-campaigns", ERROR, TREE)
def run_in_two_campaigns(campaigns: Sequence[CampaignView]) -> Iterator[Problem]:
    """No run of a campaign is a run of another one.

    What it checks
        Between the runs of all campaigns that are checked: the times of the events since the
        first one, the losses, and the digests of initial weights. Runs of one submitter are both
        at fault. Of two submitters one has copied from the other, and the files do not say which:
        the error is that of the folder that holds both, each run has a warning, and neither makes
        the other invalid.
    Why it is bad
        A run that lies in two campaigns was picked for the second.
    Example
        The fastest run of a campaign that failed, shown again in the next.
    How to put it right
        Nothing can be put right in the files. Run another campaign; take a copy out.
    """
    seen: dict[str, tuple[CampaignView, RunView]] = {}
    shared: dict[tuple[str, str], list[tuple[CampaignView, RunView, str]]] = {}
    for campaign in _by_digest(campaigns).values():
        for run in campaign.runs:
            weights = run.facts.initial_weights_digest
            series = list(time_series(run))
            if isinstance(weights, str):
                series.append(("initial weights", weights))
            for what, value in series:
                other, twin = seen.setdefault(f"{what} {value}", (campaign, run))
                # In practice a seed may be chosen, and with it the whole run.
                if other is not campaign and not (run.practice and twin.practice):
                    found = shared.setdefault((run.home, twin.home), [])
                    found += [(campaign, run, what), (other, twin, what)]
    for (one, two), found in shared.items():
        (campaign, _, _), (other, _, _) = found[:2]
        strangers = campaign.submitter != other.submitter
        for _, run, what in found:
            beside = two if run.home == one else one
            message = f"the same {what} as {os.path.dirname(beside)}"
            yield Problem(message, path=run.home, severity=WARNING if strangers else "")
        if strangers:
            message = f"{os.path.dirname(one)} and {os.path.dirname(two)} are one run"
            yield Problem(f"{message}, of two submitters", path=_around(one, two))


def _around(one: str, other: str) -> str:
    """The folder that holds two paths; empty where they have none in common."""
    pairs = zip(one.split("/"), other.split("/"), strict=False)
    return "/".join(a for a, _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


@rule("DAT006", "dataset-of-the-others", WARNING, TREE)
def dataset_of_the_others(campaigns: Sequence[CampaignView]) -> Iterator[Problem]:
    """Campaigns of one benchmark use one dataset, also where the benchmark does not fix it.

    What it checks
        The pins (of older campaigns the digests) of both splits in the plans of all campaigns that
        count and are checked together. Where they differ each is named: which of them is right, no
        file says. A report has a table for each.
    Why it is bad
        Times on different images do not compare.
    Example
        ImageNet with 41 images left out that did not decode.
    How to put it right
        Find out with `fourmin data check` which files differ.
    """
    first: dict[tuple[str, ...], dict[str, CampaignView]] = {}
    counted = _counted(campaigns)
    pins = {"train_pin", "eval_pin"}
    pinned = all(pins <= {*plan.dataset} for _, plan in counted)
    names = sorted(pins) if pinned else ("train_digest", "eval_digest")
    for campaign, plan in counted:
        for name in names:
            known = first.setdefault((plan.ruleset, plan.benchmark, name), {})
            known.setdefault(plan.dataset[name], campaign)
    for campaign, plan in counted:
        for name in names:
            known = first[plan.ruleset, plan.benchmark, name]
            other = next((one for value, one in known.items() if value != plan.dataset[name]), None)
            if other is not None:
                message = f"{name} is not that of {other.path}"
                yield Problem(message, path=campaign.home)
