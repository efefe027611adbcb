"""Whether a registered campaign can go on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fourmin.base.errors import FourminError
from fourmin.campaign.requirements import Data
from fourmin.ledger.campaign import CAMPAIGN_FILE, Campaign
from fourmin.ledger.git import Repository, default_base
from fourmin.system.capture import system_digest
from fourmin.system.software import package_digest


def against_going_on(
    campaign: Campaign, system: Mapping[str, Any] | None, data: Data | None
) -> Iterator[FourminError]:
    """Why `campaign` has ended, or cannot go on with this package, system and data.

    None is what cannot be seen from here.
    """
    if campaign.closed:
        yield FourminError(
            f"the campaign {campaign.folder} has ended",
            "its ledger is closed, and nothing can be added",
            "`fourmin report` shows its result; `fourmin run` starts another campaign",
        )
        return
    now = {
        "dataset": None if data is None else data.facts(),
        "system_digest": None if system is None else system_digest(system),
        "package_digest": package_digest(),
    }
    plan = vars(campaign.plan)
    changed = [name for name, value in now.items() if value not in (None, plan[name])]
    if changed:
        yield FourminError(
            f"the campaign {campaign.folder} cannot go on here",
            f"no longer as registered: {', '.join(changed)}",
            "restore what was changed, or start another campaign; this one stays unfinished",
        )


def registering_commit(campaign: Campaign, base: str | None) -> str:
    """The first commit on the base branch's first-parent line that holds the plan as it is.

    Raises FourminError where there is none.
    """
    plan = campaign.folder / CAMPAIGN_FILE
    repository = Repository.open(campaign.folder, base or default_base(campaign.folder))
    path = repository.relative(str(plan))
    commit = repository.first_commit_with(path) if path else None
    if path is None or commit is None or repository.read(path) != plan.read_bytes():
        raise FourminError(
            f"the plan {plan} has not been merged",
            "its seeds come from the commit that first holds it on the base branch",
            "commit and merge it, or name the branch with --base",
        )
    return commit
