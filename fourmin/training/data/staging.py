"""Node-local staging as a step of a run: on the clock, logged, and undone at its end."""

from __future__ import annotations

import os
import shutil
from datetime import timedelta
from pathlib import Path

import torch.distributed as dist

from fourmin.base.errors import FourminError
from fourmin.datasets.manifest import Manifest
from fourmin.datasets.staging import copy_dataset, left_behind, staged_folder
from fourmin.launch.job import Job
from fourmin.log import keys
from fourmin.log.writer import RunLog
from fourmin.training.comm.process_group import WorkerPlace
from fourmin.training.ranks import gloo_group

LONGEST = timedelta(days=1)
"""How long the nodes wait for the slowest copy; a collective's timeout would be too short."""
THREADS = 8


def refuse_shared_stage(job: Job, stage: Path, place: WorkerPlace) -> None:
    """Raise FourminError where several nodes see the same `stage`; before the clock starts.

    The first worker of each node leaves a file there, named after this launch and its node.
    """
    if place.world_size == place.ranks_per_node:
        return
    group = gloo_group()
    launch = (
        f".{staged_folder(stage, job.campaign, job.run).name}-{job.attempt}-{job.restart}-node-"
    )
    mark = stage / f"{launch}{place.rank // place.ranks_per_node}"
    seen: list[Path] = []
    if place.local_rank == 0:
        mark.touch()
    dist.barrier(group)
    if place.local_rank == 0:
        seen = list(stage.glob(f"{launch}*"))
    dist.barrier(group)
    if place.local_rank == 0:
        mark.unlink()
    if len(seen) > 1:
        raise FourminError(
            f"the staging folder {stage} is the same on {len(seen)} nodes",
            "each node copies the images for itself",
            "name a folder on a disk of each node with --stage, or leave it out",
        )


def stage_dataset(
    job: Job, manifest: Manifest, stage: Path, place: WorkerPlace, log: RunLog
) -> Path:
    """Have the dataset copied below `stage` on every node, and wait for all of them.

    The first worker of each node copies. What a run of the campaign left there when it was
    killed is removed, so that each run, and each restart, copies everything. Files and bytes are
    one node's.
    Raises FourminError.
    """
    log.start(keys.STAGING_START, None)
    group = gloo_group(timeout=LONGEST)
    folder = staged_folder(stage, job.campaign, job.run)
    copied = None
    if place.local_rank == 0:
        for left_over in left_behind(stage, job.campaign):
            shutil.rmtree(left_over, ignore_errors=True)
        threads = min(THREADS, 4 * (os.cpu_count() or 1))
        copied = copy_dataset(job.data_dir, manifest, folder, threads)
    dist.barrier(group)
    if copied is not None:
        log.end(keys.STAGING_STOP, None, files=copied.files, bytes=copied.bytes)
    return folder


def remove_staged(job: Job, stage: Path, place: WorkerPlace) -> None:
    """Remove this node's copy, if there is one; the first worker of the node does it."""
    if place.local_rank == 0:
        shutil.rmtree(staged_folder(stage, job.campaign, job.run), ignore_errors=True)
