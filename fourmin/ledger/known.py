"""What this machine and this results folder know of earlier campaigns.

A campaign names the heads of all earlier ones of its benchmark, so that running ten and
keeping the best one shows. The results folder is looked through, and a file in the user's
state folder remembers those that were moved or deleted since.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fourmin.base.files import user_folder
from fourmin.ledger import chain

_REMEMBERED = "campaigns.jsonl"


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


def earlier_campaigns(results_folder: Path, benchmark: str) -> list[KnownCampaign]:
    """All campaigns of `benchmark` known here, each once with its latest head, by digest."""
    known: dict[str, KnownCampaign] = {}
    for campaign in (*_remembered(), *_in_folder(results_folder)):
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


def _in_folder(results_folder: Path) -> Iterator[KnownCampaign]:
    for ledger in sorted(results_folder.glob("*/ledger.jsonl")):
        try:
            entries, _ = chain.parse(ledger.read_bytes())
            plan = json.loads((ledger.parent / "campaign.json").read_bytes())
            opened = entries[0].data["campaign_sha256"]
            yield KnownCampaign(
                str(opened), str(plan["benchmark"]), bool(plan["practice"]), entries[-1].sha256
            )
        except (OSError, ValueError, KeyError, IndexError, TypeError):
            continue
