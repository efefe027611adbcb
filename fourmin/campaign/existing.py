"""Whether a registered campaign can go on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fourmin.base.errors import FourminError
from fourmin.campaign.requirements import Data
from fourmin.ledger.campaign import CAMPAIGN_FILE, Campaign
from fourmin.ledger.git import Repository, default_base
from fourmin.ledger.landings import BEACON_FILE, Landings
from fourmin.results.places import LEVELS
from fourmin.system.capture import system_digest
from fourmin.system.software import package_digest


def require_going_on(
    campaign: Campaign, system: Mapping[str, Any] | None, data: Data | None
) -> None:
    """Raise FourminError where `campaign` has ended, or cannot go on with this package, system and
    data; None is what cannot be seen from here.
    """
    if campaign.closed:
        raise FourminError(
            f"the campaign {campaign.folder} has ended",
            "its ledger is closed, and nothing can be added",
            "`fourmin report` shows its result; `fourmin run` starts another campaign",
        )
    plan = vars(campaign.plan)
    now = {
        "dataset": plan["dataset"] if data is None or data.manifest.fits(plan["dataset"]) else {},
        "system_digest": None if system is None else system_digest(system),
        "package_digest": package_digest(),
    }
    changed = [name for name, value in now.items() if value not in (None, plan[name])]
    if changed:
        raise FourminError(
            f"the campaign {campaign.folder} cannot go on here",
            f"no longer as registered: {', '.join(changed)}",
            "restore what was changed, or start another campaign; this one stays unfinished",
        )


def registered_beacon(campaign: Campaign, base: str | None) -> str:
    """The first beacon on the base branch after the plan landed there.

    Raises FourminError where the plan has not landed, was taken back, or has no beacon yet.
    """
    plan = campaign.folder / CAMPAIGN_FILE
    repository = Repository.open(campaign.folder, base or default_base(campaign.folder))
    place = tuple(getattr(campaign.plan, level) for level in LEVELS)
    landing = Landings(repository).find(campaign.folder, plan.read_bytes(), place)
    if landing is None:
        raise FourminError(
            f"the plan {plan} has not been merged",
            "its seeds come from a commit after the one that first holds it on the base branch",
            "commit and merge it, or name the branch with --base",
        )
    if not landing.stands:
        raise FourminError(
            f"the plan {plan} was taken back",
            "the base branch held it and gave it up, which abandons the campaign for good",
            "register another one with `fourmin register`",
        )
    if landing.beacon is None:
        raise FourminError(
            f"the plan {plan} has no beacon yet",
            f"it landed in {landing.commit[:12]}; its seeds come from the first later commit of "
            f"the base branch that changes {BEACON_FILE} alone",
            "fetch the base branch and run this again; without the workflow that writes it, its "
            "maintainers do (docs/ci.md)",
        )
    return landing.beacon
