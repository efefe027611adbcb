"""Small collectives over all ranks. Every rank calls them at the same point, outside a step."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor

from fourmin.training.comm.process_group import WorkerPlace


def barrier(place: WorkerPlace) -> None:
    dist.barrier(device_ids=[place.local_rank] if place.device.type == "cuda" else None)


def set_timeout(seconds: float) -> None:
    """How long a collective of the default group may last from now on: joining may take longer."""
    # The older name is that of torch before it was public.
    change = getattr(dist, "set_timeout", None) or dist.distributed_c10d._set_pg_timeout
    change(timedelta(seconds=seconds))


def gloo_group(
    ranks: list[int] | None = None, timeout: timedelta | None = None
) -> dist.ProcessGroup | None:
    """A group of `ranks` (None: all) that works on the CPU; None on a rank outside of it."""
    group = dist.new_group(ranks, timeout=timeout, backend="gloo")
    return group if isinstance(group, dist.ProcessGroup) else None


def mean_over_ranks(values: Tensor, place: WorkerPlace) -> list[float]:
    """The ranks' mean of each of `values`, which is left with the sum."""
    dist.all_reduce(values)
    means: list[float] = (values / place.world_size).tolist()
    return means


def gather(own: Tensor, place: WorkerPlace) -> list[Tensor]:
    """Each rank's tensor, in order of ranks; all have the shape and type of `own`."""
    shares = [torch.empty_like(own) for _ in range(place.world_size)]
    dist.all_gather(shares, own)
    return shares


def numbers_of_ranks(values: Sequence[float], place: WorkerPlace) -> NDArray[np.float64]:
    """What every rank has, as (ranks, values); all ranks have equally many."""
    own = torch.tensor(values, dtype=torch.float64, device=place.device)
    return torch.stack(gather(own, place)).cpu().numpy()
