"""Joining and leaving the default process group, from the environment that torchrun sets."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist

from fourmin.base.errors import FourminError
from fourmin.training.comm.base import CommunicationError


@dataclass(frozen=True)
class WorkerPlace:
    """Where this worker stands: its rank, its place on the node, and its device."""

    rank: int
    world_size: int
    local_rank: int
    ranks_per_node: int
    device: torch.device


def init_process_group(device: str, timeout_seconds: float) -> WorkerPlace:
    """Join the other workers; blocks until all are there, at most ``timeout_seconds``.

    ``device`` is ``"cpu"`` (gloo) or ``"cuda"`` (NCCL, one GPU a worker: that with the worker's
    local rank, made current here). The timeout also holds for every collective.

    Raises FourminError if torchrun's variables or the GPU are missing, CommunicationError if
    the others do not come.
    """
    if device not in ("cpu", "cuda"):
        raise ValueError(f"device must be cpu or cuda, not {device!r}")
    if timeout_seconds <= 0:
        raise FourminError(
            f"collective_timeout_seconds {timeout_seconds} is not positive",
            next_step="give seconds, for example 600",
        )
    rank, world_size, local_rank, ranks_per_node = _from_environment()
    place = torch.device("cpu")
    if device == "cuda":
        count = torch.cuda.device_count()
        if local_rank >= count:
            raise FourminError(
                f"worker {local_rank} of this node has no GPU",
                why=f"{count} GPUs are visible, {ranks_per_node} workers were started",
                next_step=f"start at most {count} workers a node (--procs-per-node)",
            )
        place = torch.device("cuda", local_rank)
        torch.cuda.set_device(place)
    backend = "gloo" if device == "cpu" else "nccl"
    # The device is not bound to the group: NCCL would then make later groups by splitting,
    # which needs all ranks, not only the members.
    try:
        dist.init_process_group(backend, timeout=timedelta(seconds=timeout_seconds))
        if device == "cuda":
            # NCCL connects at the first call, which all ranks must make; a round of messages
            # may leave some out.
            dist.barrier(device_ids=[local_rank])
    except (RuntimeError, ValueError) as error:
        raise CommunicationError(
            f"worker {rank} of {world_size} could not join the others over {backend}",
            why=str(error).strip().partition("\n")[0],
            next_step="look in the other workers' logs for the first failure; check that "
            f"{os.environ['MASTER_ADDR']} port {os.environ['MASTER_PORT']} can be reached",
        ) from error
    return WorkerPlace(rank, world_size, local_rank, ranks_per_node, place)


def destroy() -> None:
    """Leave the process group, if there is one; says nothing if peers are gone already."""
    if not dist.is_initialized():
        return
    # The run has ended or failed before this; what a dying peer adds would only hide it.
    with suppress(RuntimeError):
        dist.destroy_process_group()


def _from_environment() -> tuple[int, int, int, int]:
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
    needed = (*names, "MASTER_ADDR", "MASTER_PORT")
    absent = [name for name in needed if not os.environ.get(name)]
    if absent:
        raise FourminError(
            "this worker was not started by torchrun",
            why="not set in the environment: " + ", ".join(absent),
            next_step="start training with `fourmin run`",
        )
    try:
        values = [int(os.environ[name]) for name in names]
    except ValueError:
        raise FourminError(
            "the launcher's environment makes no sense",
            why=", ".join(f"{name}={os.environ[name]!r}" for name in names),
        ) from None
    return values[0], values[1], values[2], values[3]
