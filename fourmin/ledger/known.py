"""What this machine, this results folder and the repository around it know of earlier campaigns.

A campaign names the heads of all earlier ones of its benchmark, so that running ten and
keeping the best one shows. The results folder is looked through, and a file in the user's
state folder remembers those that were moved or deleted since. In a repository of submissions,
those of the submitter on the branch that others merge into are earlier ones too.
"""

from __future__ import annotations

import glob
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fourmin.base.errors import FourminError
from fourmin.base.files import user_folder
from fourmin.ledger import chain
from fourmin.ledger.git import MOST_BYTES, Repository, files_at

_REMEMBERED = "campaigns.jsonl"
PLAN, LEDGER = "campaign.json", "ledger.jsonl"


@dataclass(frozen=True)
class KnownCampaign:
    """An earlier campaign: its digest, its benchmark, whether it counts, its head when seen."""

    campaign: str
    benchmark: str
    practice: bool
    head: str


def remember(campaign: KnownCampaign) -> None:
    """Add or update a campaign in the user's state folder; best effort, never in the way."""
    line = json.dumps(vars(campaign))
    try:
        path = _state_file()
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(descriptor, line.encode() + b"\n")
        finally:
            os.close(descriptor)
    except OSError:
        return


def earlier_campaigns(folder: Path, benchmark: str, submitter: str) -> list[KnownCampaign]:
    """All campaigns of `benchmark` known here, each once with its latest head, by digest.

    `folder` holds results, or is a `submissions/`, of which the submitter's are read.
    """
    known: dict[str, KnownCampaign] = {}
    for campaign in (
        *_remembered(),
        *_on_the_base(folder, benchmark, submitter),
        *_in_folder(folder, "*"),
        *_in_folder(folder, f"{glob.escape(submitter)}/*/{benchmark}/*"),
    ):
        if campaign.benchmark == benchmark:
            known[campaign.campaign] = campaign
    return [known[digest] for digest in sorted(known)]


def _state_file() -> Path:
    return user_folder("XDG_STATE_HOME", ".local/state") / _REMEMBERED


def _remembered() -> Iterator[KnownCampaign]:
    try:
        lines = _state_file().read_text(errors="replace").splitlines()
    except OSError:
        return
    for line in lines:
        try:
            yield KnownCampaign(**json.loads(line))
        except (ValueError, TypeError):
            continue


def _on_the_base(folder: Path, benchmark: str, submitter: str) -> Iterator[KnownCampaign]:
    try:
        repository = Repository.around(folder)
    except FourminError:  # `fourmin register` has said it; a run of one's own goes on
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


def _in_folder(folder: Path, pattern: str) -> Iterator[KnownCampaign]:
    for ledger in sorted(folder.glob(f"{pattern}/{LEDGER}")):
        try:
            yield from _known((ledger.parent / PLAN).read_bytes(), ledger.read_bytes())
        except OSError:
            continue


def _known(plan_bytes: bytes, ledger_bytes: bytes) -> Iterator[KnownCampaign]:
    """The campaign of these two files, or nothing where they are not a campaign's."""
    try:
        entries, _ = chain.parse(ledger_bytes)
        plan = json.loads(plan_bytes)
        opened = entries[0].data["campaign_sha256"]
        yield KnownCampaign(
            str(opened), str(plan["benchmark"]), bool(plan["practice"]), entries[-1].sha256
        )
    except (ValueError, KeyError, IndexError, TypeError):
        return
