"""Which of several folders is a campaign: of one plan there is one place, and one chain.

A campaign is its plan: its identity is the SHA-256 of campaign.json. It may lie in several
folders, one of which began it and another went on (`results/` beside `submissions/`); it counts
once, by the longest ledger. Below a root of submissions a folder in another place than the plan's
is a copy, which says nothing of the campaign.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fourmin.ledger.view import CampaignView


@dataclass(frozen=True)
class Identity:
    """One campaign: the folder that counts, and those whose ledger does not begin its own."""

    view: CampaignView
    contradicting: tuple[CampaignView, ...]


def identities(campaigns: Iterable[CampaignView]) -> dict[str, Identity]:
    """The campaigns that have a plan and lie where they may, by digest, in their order."""
    groups: dict[str, list[CampaignView]] = {}
    for campaign in campaigns:
        if campaign.plan is not None and campaign.at_home:
            groups.setdefault(campaign.digest, []).append(campaign)
    return {digest: _resolved(group) for digest, group in groups.items()}


def shown(campaigns: Sequence[CampaignView]) -> list[CampaignView]:
    """Each campaign once, as it counts, in their order.

    A copy in a wrong place is among them only where its original is not.
    """
    known = identities(campaigns)
    found: dict[str, CampaignView] = {}
    for campaign in campaigns:
        original = known.get(campaign.digest)
        found.setdefault(campaign.digest or campaign.path, original.view if original else campaign)
    return list(found.values())


def _resolved(group: Sequence[CampaignView]) -> Identity:
    longest = max(group, key=lambda view: len(view.entries))
    chain = [entry.sha256 for entry in longest.entries]
    others = ((view, [entry.sha256 for entry in view.entries]) for view in group)
    return Identity(longest, tuple(v for v, known in others if known != chain[: len(known)]))
