"""What is looked at before the clock may start, on every node, and what refuses a run.

Each node says what it has (`node_facts`, there); the command compares (`compare`). Nothing of
it needs torch. The last part, an all-reduce of a known sum, is made by the workers themselves
just before they ask to start.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fourmin.base.canonical import sha256_hex
from fourmin.base.errors import FourminError
from fourmin.base.files import ensure_writable_folder
from fourmin.datasets.manifest import Manifest, header_digest
from fourmin.datasets.manifest_image import share_manifest
from fourmin.datasets.staging import require_room_for_copy
from fourmin.launch.job import Job
from fourmin.launch.timeouts import IDLE_SECONDS, shortened
from fourmin.ledger.campaign import CAMPAIGN_FILE
from fourmin.ledger.lock import LOCK_NAME
from fourmin.recipe.steps import against_this_machine
from fourmin.system.hardware import busy_gpus, usable_gpus
from fourmin.system.software import package_digest

CLOCK_BOUND_MS = 500.0
"""How far a node's clock may be from the command's."""


_UNFIT = {
    "against_fast": (
        "cannot run the fast step",
        "other nodes; or a campaign with --set step=eager",
    ),
    "busy_gpus": (
        "uses its GPUs for something else",
        "a time to train is measured on idle GPUs: end what runs there",
    ),
    "manifest_problem": (
        "cannot read the manifest of the data",
        "{manifest} must be the same whole file everywhere",
    ),
    "results_problem": (
        "cannot write the event log",
        "--results-dir on a file system that all nodes share, with working locks",
    ),
    "staging_problem": (
        "cannot hold a copy of the images",
        "name another folder with --stage, or leave it out",
    ),
}
"""What it means where one of these facts tells of a problem, and what helps."""


@dataclass(frozen=True)
class Clock:
    """A node's clock against the command's, from the answer that was the fastest (ms)."""

    offset_ms: float = 0.0
    uncertainty_ms: float = 0.0

    @property
    def off(self) -> str:
        """How far it is surely off, where that is too far."""
        far = abs(self.offset_ms) - self.uncertainty_ms > CLOCK_BOUND_MS
        return f"{self.offset_ms / 1000:+.1f} s off" if far else ""


@dataclass(frozen=True)
class NodeFacts:
    """What one node said of itself, and what the command measured of its clock.

    `name` is what messages call it, such as "node n3" or "this machine".
    """

    name: str
    facts: Mapping[str, Any]
    clock: Clock = Clock()


def node_facts(job: Job, *, holds_log: bool) -> dict[str, Any]:
    """What this node has for `job`; `holds_log`: rank 0 is here and writes the event log.

    The manifest is read here, with all of its digests, and left for this node's workers to map.
    """
    on_gpus = job.configuration.device == "cuda"
    manifest, manifest_problem = None, ""
    try:
        manifest = share_manifest(job.manifest, job.manifest_image)
    except FourminError as error:
        manifest_problem = f"{error.what}: {error.why}"
    return {
        "package_digest": package_digest(),
        "configuration_digest": job.configuration.digest(),
        "manifest": None if manifest is None else sha256_hex(manifest.header),
        "manifest_problem": manifest_problem,
        "dataset": None if manifest is None else manifest.facts(),
        "data_dir": job.data_dir.is_dir(),
        "gpus": usable_gpus() if on_gpus else 0,
        # What never counts may share a GPU.
        "busy_gpus": _busy_after(IDLE_SECONDS) if on_gpus and not job.practice else [],
        "against_fast": against_this_machine() if job.configuration.step == "fast" else "",
        "results_problem": _results_problem(job) if holds_log else "",
        "staging_problem": "" if manifest is None else _staging_problem(job, manifest),
    }


def compare(job: Job, nodes: Sequence[NodeFacts]) -> None:
    """Raise FourminError, naming the nodes, for the first thing that is not as it must be."""
    manifest = header_digest(job.manifest)
    workers = job.configuration.procs_per_node
    for what, wrong, next_step in (
        (
            "another version of fourmin",
            lambda n: n.facts["package_digest"] != job.package_digest,
            "install the same one on every node, or on a file system that they share",
        ),
        (
            "another configuration",
            lambda n: n.facts["configuration_digest"] != job.configuration.digest(),
            "install the same fourmin on every node",
        ),
        (
            f"no folder {job.data_dir}",
            lambda n: not n.facts["data_dir"],
            "the data must lie at the same place on every node",
        ),
        (
            "another manifest of the data",
            lambda n: n.facts["manifest"] not in (None, manifest),
            f"{job.manifest} must be the same file everywhere",
        ),
        (
            "other images than the campaign was registered with",
            lambda n: not job.dataset.items() <= (n.facts["dataset"] or job.dataset).items(),
            f"put back the images that {job.manifest} listed then",
        ),
        (
            f"fewer than {workers} GPUs to use",
            lambda n: job.configuration.device == "cuda" and n.facts["gpus"] < workers,
            "--procs-per-node, or nodes that have them",
        ),
    ):
        if unlike := [node.name for node in nodes if wrong(node)]:
            why = "every node must be alike before the clock starts"
            raise FourminError(f"{shortened(unlike)}: {what}", why, next_step)
    for node in nodes:
        for fact, (what, next_step) in _UNFIT.items():
            if problem := node.facts[fact]:
                why = problem if isinstance(problem, str) else "; ".join(problem)
                step = next_step.format(manifest=job.manifest)
                raise FourminError(f"{node.name} {what}", why, step)
        if node.clock.off:
            raise FourminError(
                f"{node.name} has a clock that is {node.clock.off}",
                f"at most {CLOCK_BOUND_MS / 1000:g} s are accepted between nodes",
                "synchronize the clocks (chrony, ntpd)",
            )


def _results_problem(job: Job) -> str:
    """Why rank 0 could not write its log here, or ''.

    The campaign's plan must be there, a file can be made and locked, and the campaign's lock,
    which the command holds, is refused here: otherwise locks mean nothing between these hosts.
    """
    folder = job.events_log.parent
    probe = folder / f".preflight-{os.getpid()}"
    try:
        with probe.open("wb") as file:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return f"{folder}: {error.strerror or error}"
    finally:
        probe.unlink(missing_ok=True)
    plan = folder.parent / CAMPAIGN_FILE
    try:
        if sha256_hex(plan.read_bytes()) != job.campaign:
            return f"{plan} is not the plan of this campaign"
        with (folder.parent / LOCK_NAME).open("r+b") as lock:
            try:
                fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                return ""
            return f"the lock of {folder.parent}, which the command holds, is not seen here"
    except OSError as error:
        return f"{error.filename}: {error.strerror or error}"


def _staging_problem(job: Job, manifest: Manifest) -> str:
    """Why the images could not be copied to this node, or ''."""
    if job.stage is None:
        return ""
    try:
        ensure_writable_folder(job.stage, "staging folder")
        require_room_for_copy(job.stage, manifest, job.campaign)
    except FourminError as error:
        return f"{error.what}: {error.why}"
    return ""


def _busy_after(seconds: float) -> list[str]:
    deadline = time.monotonic() + seconds
    while (busy := busy_gpus()) and time.monotonic() < deadline:
        time.sleep(0.5)
    return busy
