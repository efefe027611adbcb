"""Hogwild!: Niu, Recht, Re and Wright 2011, arXiv 1106.5730.

All workers of a host have the same weights in shared memory. Each reads them while it computes, and
adds its update to them, without a lock. The paper adds each component atomically; torch does not,
so that an update of two workers to the same weight may lose one of them.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from fourmin.training.algorithms.method import Method, Surroundings
from fourmin.training.assemble import Assembly
from fourmin.training.optim.build import build_optimizer
from fourmin.training.ranks import barrier


@torch.no_grad()
def share(model: nn.Module, path: Path, *, keep: bool) -> Tensor:
    """Move the parameters of `model` to the file's memory, which others move theirs to as well.

    With `keep` the memory takes their values, otherwise they take those of the memory. Returns
    the count of changes, (1,), that is shared beside them.
    """
    parameters = list(model.parameters())
    sizes = [parameter.numel() for parameter in parameters]
    memory = torch.from_file(str(path), shared=True, size=sum(sizes) + 1, dtype=torch.float32)
    for parameter, own in zip(parameters, memory[:-1].split(sizes), strict=True):
        there = own.as_strided(parameter.shape, parameter.stride(), own.storage_offset())
        if keep:
            there.copy_(parameter)
        parameter.data = there
    return memory[-1:].view(torch.int32)


class Hogwild(Method):
    def __init__(self, around: Surroundings) -> None:
        self._changes = share(around.model, _file(around.scratch), keep=False)
        self.optimizer = build_optimizer(around.model, around.config)
        self._seen = 0

    def before(self) -> None:
        self._seen = int(self._changes)

    def after(self, rate: float) -> None:
        # Counted as the weights are changed, without a lock.
        self.staleness = int(self._changes) - self._seen
        self._changes += 1


class SharedWeights:
    """A host's side: its model has the shared weights, and so has every other's."""

    def __init__(self, run: Assembly) -> None:
        self.bytes = (sum(one.nbytes for one in run.model.parameters()),)
        path = _file(run.job.scratch)
        if run.place.local_rank == 0:
            share(run.model, path, keep=True)
        barrier(run.place)
        if run.place.local_rank:
            share(run.model, path, keep=False)

    def gather(self) -> None:
        """All is everywhere."""


def _file(scratch: Path) -> Path:
    return scratch / "weights"


host_side, worker_side = SharedWeights, Hogwild
