"""What this machine, this results folder and the repository around it know of earlier campaigns.

A campaign names the heads of all earlier ones of its benchmark, so that running ten and
keeping the best one shows. The results folder is looked through, and a file in the user's
state folder remembers those that were moved or deleted since. In a repository of submissions,
those of the submitter on the branch that others merge into are earlier ones too.
"""

from __future__ import annotations

import json
import os
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from fourmin.base.errors import FourminError
from fourmin.base.files import require_writable, user_folder
from fourmin.base.mishaps import explained
from fourmin.base.text import how_many
from fourmin.ledger import chain
from fourmin.ledger.git import MOST_BYTES, Repository, files_at

_REMEMBERED = "campaigns.jsonl"
PLAN, LEDGER = "campaign.json", "ledger.jsonl"
MEMORY = "this user's memory of campaigns"


@dataclass(frozen=True)
class KnownCampaign:
    """An earlier campaign: its digest, its benchmark, whether it counts, its head when seen."""

    campaign: str
    benchmark: str
    practice: bool
    head: str


Lost: TypeAlias = Callable[[str], object]
"""Told of earlier campaigns that may be missing: what could not be looked at, without a path."""


def remember(campaign: KnownCampaign) -> None:
    """Add or update a campaign in the user's state folder; never in the way.

    Where that is not possible `against_memory` has said so before anything was registered.
    """
    line = json.dumps(vars(campaign)).encode() + b"\n"
    with suppress(OSError, FourminError):
        path = _state_file()
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab+", buffering=0) as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(end - 1, 0))
            # What a full disk cut off stays a line of its own.
            file.write(line if file.read(1) in (b"", b"\n") else b"\n" + line)


def against_memory() -> FourminError | None:
    """Why a campaign could not be remembered, or is not, so that a later one would not name it.
    Nothing is written that stays.
    """
    lost: list[str] = []
    try:
        path = _state_file()
        require_writable(path.parent, MEMORY)
        if path.exists():
            path.open("ab+").close()
            deque(_remembered(lost.append), maxlen=0)
    except (OSError, FourminError) as error:
        told = explained(error)
        step = "set XDG_STATE_HOME to a folder you can write to"
        return FourminError(f"{MEMORY}: {told.what}", told.why, step)
    return FourminError(lost[0], next_step=f"see {path}") if lost else None


def earlier_campaigns(
    folder: Path, benchmark: str, submitter: str, lost: Lost = lambda what: None
) -> list[KnownCampaign]:
    """All campaigns of `benchmark` known here, each once with its latest head, by digest.

    `folder` holds results, or is a `submissions/`, of which the submitter's are read. `lost` is
    told what could not be read.
    """
    known: dict[str, KnownCampaign] = {}
    for campaign in (
        *_remembered(lost),
        *_on_the_base(folder, benchmark, submitter, lost),
        *_in_folder(folder, ("*",), lost),
        *_in_folder(folder, (submitter, "*", benchmark, "*"), lost),
    ):
        if campaign.benchmark == benchmark:
            known[campaign.campaign] = campaign
    return [known[digest] for digest in sorted(known)]


def _state_file() -> Path:
    return user_folder("XDG_STATE_HOME", ".local/state") / _REMEMBERED


def _remembered(lost: Lost) -> Iterator[KnownCampaign]:
    try:
        lines = _state_file().read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return
    except (OSError, FourminError) as error:
        lost(f"{MEMORY}: {_reason(error)}")
        return
    broken = 0
    for line in lines:
        try:
            yield KnownCampaign(**json.loads(line))
        except (ValueError, TypeError):
            broken += 1
    if broken:
        lost(f"{MEMORY}: {how_many(broken, 'line')} cannot be read")


def _on_the_base(
    folder: Path, benchmark: str, submitter: str, lost: Lost
) -> Iterator[KnownCampaign]:
    try:
        repository = Repository.around(folder)
    except FourminError as error:  # `fourmin register` has said it; a run of one's own goes on
        lost(f"the branch that others merge into: {_reason(error)}")
        return
    if repository is None:
        return

    def wanted(path: str) -> bool:
        return path.split("/")[3:4] == [benchmark] and path.endswith((f"/{PLAN}", f"/{LEDGER}"))

    below = f"submissions/{submitter}"
    found = files_at(repository.root, repository.base, [below], wanted, MOST_BYTES)
    for path, plan in found.items():
        place, _, name = path.rpartition("/")
        if name == PLAN:
            yield from _known(plan, found.get(f"{place}/{LEDGER}", b""))


def _in_folder(folder: Path, below: tuple[str, ...], lost: Lost) -> Iterator[KnownCampaign]:
    """The campaigns in the folders whose names `below` gives from here on; `*` is any."""
    try:
        if below:
            names = sorted(os.listdir(folder)) if below[0] == "*" else [below[0]]
            for name in names:
                yield from _in_folder(folder / name, below[1:], lost)
        else:
            yield from _known((folder / PLAN).read_bytes(), (folder / LEDGER).read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        lost(f"a folder beside this campaign: {_reason(error)}")


def _reason(error: OSError | FourminError) -> str:
    """Without a path: it is published."""
    return (error.strerror or type(error).__name__) if isinstance(error, OSError) else error.what


def _known(plan_bytes: bytes, ledger_bytes: bytes) -> Iterator[KnownCampaign]:
    """The campaign of these two files, or nothing where they are not a campaign's."""
    with suppress(ValueError, KeyError, IndexError, TypeError):
        entries, _ = chain.parse(ledger_bytes)
        plan = json.loads(plan_bytes)
        opened = entries[0].data["campaign_sha256"]
        yield KnownCampaign(
            str(opened), str(plan["benchmark"]), bool(plan["practice"]), entries[-1].sha256
        )
