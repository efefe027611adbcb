"""Packs a closed campaign into a repository of submissions."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fourmin.base.errors import FourminError
from fourmin.base.files import json_bytes
from fourmin.ledger.submission import SYSTEM_FILE
from fourmin.ledger.view import CampaignView, file_kind
from fourmin.results.plan import Plan
from fourmin.rules.engine import check, load_campaign
from fourmin.rules.rule import ERROR
from fourmin.system.privacy import private_words

_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,99}\Z")
_NOT_PUBLISHED = {"lock", "pending", "temporary", "unknown"}


@dataclass(frozen=True)
class Publication:
    """What `publish` would write: files by path below the submissions folder, and concerns.

    `private` lists, in plain words, what would identify a host or a user.
    """

    place: Path
    files: Mapping[Path, bytes]
    private: tuple[str, ...]

    def require_impersonal(self) -> None:
        """Raise FourminError where something would identify a host or a user."""
        if self.private:
            raise FourminError(
                "something in these files names this host or its user",
                "\n".join(self.private[:10]),
                "files with a hash in the ledger cannot be changed: run another campaign, or "
                "publish it as it is with --allow-private",
            )


def place_of(plan: Plan) -> Path:
    """`<submitter>/<system>/<benchmark>` of a plan, below the submissions folder.

    Raises FourminError when one is no plain file name.
    """
    parts = (plan.submitter, plan.system, plan.benchmark)
    for option, part in zip(("--submitter", "--system", "the benchmark"), parts, strict=True):
        if not _PLAIN_NAME.match(part):
            raise FourminError(
                f"{option} {part!r} cannot name a folder",
                "submissions have plain names: letters, digits and . _ + -",
                "give another name when the campaign is registered or run",
            )
    return Path(*parts)


def prepare_publication(folder: Path, submissions: Path) -> Publication:
    """What publishing the campaign in `folder` would write below `submissions`.

    Raises FourminError when the campaign is not closed or does not validate.
    """
    campaign = load_campaign(folder)
    plan = campaign.plan
    if plan is None or campaign.history.close is None:
        raise FourminError(
            f"{folder} is no closed campaign",
            "only a campaign that has ended can be submitted",
            "`fourmin run --resume` ends it, `fourmin abandon` gives it up",
        )
    place = place_of(plan)
    files = {
        place / folder.resolve().name / name: data
        for name, data in campaign.files.items()
        if data is not None and file_kind(name) not in _NOT_PUBLISHED
    }
    description = place.parent / SYSTEM_FILE
    existing = submissions / description
    files[description] = (
        existing.read_bytes() if existing.is_file() else json_bytes(describe_system(campaign, plan))
    )
    _refuse_invalid(folder, files)
    return Publication(place, files, tuple(_private(files)))


def publish(publication: Publication, submissions: Path) -> None:
    """Write what was prepared. Raises FourminError when another file lies in a place."""
    for name, data in publication.files.items():
        path = submissions / name
        if path.is_file() and path.read_bytes() != data:
            raise FourminError(
                f"{path} exists already with another content", next_step="look at it first"
            )
    for name, data in publication.files.items():
        path = submissions / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def describe_system(campaign: CampaignView, plan: Plan) -> dict[str, Any]:
    """system.json from what the campaign captured, with MLPerf's fields; the rest is the user's."""
    captured: Any = campaign.runs[0].facts.system or {}
    hardware, software = captured["hardware"], captured["software"]
    processor, chips = hardware["processor"], hardware["accelerators"]
    memory = hardware["memory_gib"]
    stack = ("python", "torchvision", "dali", "cuda", "cudnn", "nccl", "fourmin")
    return {
        "schema_version": 1,
        "submitter": plan.submitter,
        "division": plan.division,
        "status": "onprem",
        "system_name": plan.system,
        "system_digest": plan.system_digest,
        "number_of_nodes": plan.configuration["nodes"],
        "host_processors_per_node": processor["sockets"],
        "host_processor_model_name": processor["model"],
        "host_processor_core_count": processor["cpus"] // processor["sockets"],
        "host_memory_capacity": "unknown" if memory is None else f"{memory} GiB",
        "host_networking": ", ".join(hardware["network"]) or "none",
        "accelerators_per_node": sum(chip["count"] for chip in chips),
        "accelerator_model_name": ", ".join(chip["model"] for chip in chips) or "none",
        "accelerator_memory_capacity": ", ".join(f"{chip['memory_gib']} GiB" for chip in chips),
        "framework": f"PyTorch {software['torch']}",
        "other_software_stack": ", ".join(
            f"{name} {software[name]}" for name in stack if software[name]
        ),
        "operating_system": software["operating_system"]["name"],
        "hw_notes": "",
        "sw_notes": "",
    }


def _refuse_invalid(folder: Path, files: Mapping[Path, bytes]) -> None:
    """Check the submission as it would lie there, before anything is written."""
    with tempfile.TemporaryDirectory(prefix="fourmin-") as scratch:
        root = Path(scratch) / "submissions"
        publish(Publication(Path(), files, ()), root)
        report = check([root])
        shutil.rmtree(root)
    errors = [finding for finding in report.findings if finding.severity == ERROR]
    if errors:
        lines = [f"{f.code} {f.path.removeprefix(f'{root}/')}: {f.message}" for f in errors[:8]]
        more = [f"and {len(errors) - 8} more"] if len(errors) > 8 else []
        raise FourminError(
            f"{folder} does not validate as a submission",
            "\n".join([*lines, *more]),
            f"`fourmin validate {folder}` and `fourmin rules CODE` say more",
        )


def _private(files: Mapping[Path, bytes]) -> list[str]:
    found: list[str] = []
    for name, data in files.items():
        text = data.decode("utf-8", "replace")
        found.extend(
            f"{name}: {word!r}"
            for word in private_words()
            if re.search(rf"(?<![A-Za-z0-9]){re.escape(word)}(?![A-Za-z0-9])", text)
        )
    return found
