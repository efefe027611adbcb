"""Packs a closed campaign into a repository of submissions."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fourmin.base.errors import FourminError
from fourmin.base.files import json_bytes, write_durably
from fourmin.base.processes import Scratch
from fourmin.base.text import command
from fourmin.campaign.naming import NOBODY, place_of, require_no_twin
from fourmin.campaign.signing import signer
from fourmin.ledger.campaign import LEDGER_FILE
from fourmin.ledger.file_kinds import file_kind
from fourmin.ledger.signed import messages
from fourmin.ledger.view import CampaignView
from fourmin.results.description import untold
from fourmin.results.places import SYSTEM_FILE
from fourmin.results.plan import Plan
from fourmin.rules.engine import check, load_campaign
from fourmin.rules.rule import Finding
from fourmin.system.privacy import named_in

_PUBLISHED = {"plan", "ledger", "summary", "events", "result", "kept-log", "signature"}


@dataclass(frozen=True)
class Publication:
    """What `publish` would write: files by path below the submissions folder, and concerns.

    `private` lists, in plain words, what would identify a host or a user; `untold` what the
    system's description does not say yet.
    """

    place: Path
    files: Mapping[Path, bytes]
    private: tuple[str, ...] = ()
    untold: tuple[str, ...] = ()
    signatures: tuple[str, ...] = ()
    """The names of those that were made now."""

    def require_impersonal(self) -> None:
        """Raise FourminError where something would identify a host or a user."""
        if self.private:
            raise FourminError(
                "something in these files names this host or its user",
                "\n".join(self.private[:10]),
                "files with a hash in the ledger cannot be changed: run another campaign, or "
                "publish it as it is with --allow-private",
            )


def prepare_publication(
    folder: Path, submissions: Path, signing_key: Path | None = None
) -> Publication:
    """What publishing the campaign in `folder` would write below `submissions`, with the signatures
    that are missing, made by `signing_key`.

    Raises FourminError when the campaign is not closed or does not validate, and where it must
    be signed and is not.
    """
    campaign = load_campaign(folder)
    plan = campaign.plan
    if plan is None or campaign.history.close is None:
        raise FourminError(
            f"{folder} is no closed campaign",
            "only a campaign that has ended can be submitted",
            "`fourmin run --resume` ends it, `fourmin abandon` gives it up",
        )
    if plan.submitter == NOBODY:
        raise FourminError(
            f"{folder} has no submitter",
            f"it was run as {NOBODY}, which stands for nobody",
            "run another campaign with --submitter NAME",
        )
    place = place_of(plan)
    require_no_twin(submissions, place)
    files = {
        place / plan.name / name: data
        for name, data in campaign.files.items()
        if data is not None and file_kind(name) in _PUBLISHED
    }
    description = place.parent / SYSTEM_FILE
    existing = submissions / description
    if existing.is_file():
        files[description] = existing.read_bytes()
        missing = []
    else:
        described = describe_system(campaign, plan)
        files[description] = json_bytes(described)
        missing = untold(described)
    unsigned = {
        place / plan.name / name: said
        for name, said in messages(campaign).items()
        if name not in campaign.files and not (submissions / place / plan.name / name).is_file()
    }
    sign = signer(submissions / plan.submitter, plan.submitter, signing_key) if unsigned else None
    _refuse_invalid(folder, files, description, missing)
    signatures = {name: sign(said) for name, said in unsigned.items()} if sign else {}
    files |= signatures
    private = tuple(
        f"{name}: {word!r}"
        for name, data in files.items()
        for word in named_in(data.decode("utf-8", "replace"))
    )
    return Publication(place, files, private, tuple(missing), tuple(one.name for one in signatures))


def publish(publication: Publication, submissions: Path) -> None:
    """Write what was prepared. Raises FourminError when another file lies in a place.

    Only a ledger may be there that goes on in the new one: that of the registered plan.
    """
    for name, data in publication.files.items():
        path = submissions / name
        there = path.read_bytes() if path.is_file() else data
        if there != data and not (path.name == LEDGER_FILE and data.startswith(there)):
            raise FourminError(
                f"{path} exists already with another content", next_step="look at it first"
            )
    new = [path for name in publication.files if not (path := submissions / name).exists()]
    try:
        for name, data in publication.files.items():
            (submissions / name).parent.mkdir(parents=True, exist_ok=True)
            write_durably(submissions / name, data)
    except BaseException:  # a part of a submission is none
        for path in new:
            path.unlink(missing_ok=True)
        for folder in sorted({p for path in new for p in path.parents}, reverse=True):
            with suppress(OSError):
                folder.rmdir()
        raise


def describe_system(campaign: CampaignView, plan: Plan) -> dict[str, Any]:
    """system.json from what the campaign captured, with MLPerf's fields.

    What nothing captures is empty, and is the user's to tell.
    """
    captured: Any = next(run.facts.system for run in campaign.runs if run.facts.system)
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
        "number_of_nodes": plan.configuration["nodes"],
        "host_processors_per_node": processor["sockets"],
        "host_processor_model_name": processor["model"],
        "host_processor_core_count": processor["cpus"] // processor["sockets"],
        "host_memory_capacity": "" if memory is None else f"{memory} GiB",
        "host_storage_type": "",
        "host_networking": ", ".join(hardware["network"]),
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


def _refuse_invalid(
    folder: Path, files: Mapping[Path, bytes], description: Path, untold: list[str]
) -> None:
    """Check the submission as it would lie there, with its description completed, before anything
    is written.
    """
    with Scratch() as scratch:
        root = scratch / "submissions"
        told = json.loads(files[description]) | dict.fromkeys(untold, "told later")
        completed = {description: json_bytes(told)} if untold else {}
        publish(Publication(Path(), {**files, **completed}), root)
        report = check([root])
        shutil.rmtree(root)
    if not report.ok:
        errors = [finding for verdict in report.verdicts for finding in verdict.failing]
        raise FourminError(
            f"{folder} does not validate as a submission",
            "\n".join(_told(errors, f"{root}/")),
            f"`{command('validate', folder)}` and `fourmin rules CODE` say more",
        )


def _told(errors: list[Finding], root: str) -> list[str]:
    lines = [f"{f.code} {f.path.removeprefix(root)}: {f.message}" for f in errors[:8]]
    return [*lines, f"and {len(errors) - 8} more"] if len(errors) > 8 else lines
