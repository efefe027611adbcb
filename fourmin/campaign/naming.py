"""The names of a campaign's submitter and system, which name its folders among submissions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fourmin.base.errors import FourminError
from fourmin.campaign.request import Request
from fourmin.results.names import wrong_folder_name
from fourmin.results.plan import Plan

NOBODY = "self"
"""The submitter of a campaign that is never submitted."""


def names(request: Request, nodes: int, system: Mapping[str, Any] | None) -> tuple[str, str]:
    """Submitter and system, as given or by default; the system is '' where neither is known."""
    default = "" if system is None else _default_system_name(nodes, system["hardware"])
    return request.submitter or NOBODY, request.system_name or default


def _default_system_name(nodes: int, hardware: Mapping[str, Any]) -> str:
    """A name from the hardware, such as `8xH100`, `2x8xH100` of two nodes, or `2cpu-x86_64`."""
    if hardware["accelerators"]:
        first = hardware["accelerators"][0]
        name = f"{first['count']}x{first['model']}"
    else:
        name = f"{hardware['processor']['cpus']}cpu-{hardware['processor']['architecture']}"
    each = f"{nodes}x" if nodes > 1 else ""
    return each + re.sub(r"[^A-Za-z0-9._+-]+", "-", name).rstrip(".-")


def place_of(plan: Plan) -> Path:
    """`<submitter>/<system>/<benchmark>` of a plan, below the submissions folder.

    Raises FourminError when one of them cannot name a folder there.
    """
    require_folder_names(plan.submitter, plan.system)
    return Path(plan.submitter, plan.system, plan.benchmark)


def require_folder_names(submitter: str, system: str) -> None:
    """Raise FourminError when one of them cannot name a folder among submissions.

    A system that is not known yet ('') is not looked at.
    """
    for option, name in (("--submitter", submitter), ("--system", system)):
        wrong = wrong_folder_name(name) if name else ""
        if wrong:
            raise FourminError(
                f"{option} {name!r} cannot name a folder",
                f"among submissions each has a folder of its name, and this is {wrong}",
                "give another name when the campaign is registered or run",
            )


def require_no_twin(submissions: Path, place: Path) -> None:
    """Raise FourminError when a folder there is called as one of `place` but for case."""
    folder = submissions
    for name in place.parts:
        there = {one.name for one in folder.iterdir()} if folder.is_dir() else set()
        twins = sorted(one for one in there - {name} if one.lower() == name.lower())
        if twins:
            raise FourminError(
                f"{folder / twins[0]} and {name} differ by case alone",
                "on some systems they are one folder",
                "use the name that is there",
            )
        folder /= name
