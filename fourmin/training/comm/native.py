"""The backend's own all-reduce: NCCL's choice among its algorithms, or gloo's."""

from __future__ import annotations

import torch.distributed as dist
from torch import Tensor

from fourmin.recipe.topology import Topology
from fourmin.training.comm.base import AllReduceOptions, require_flat


class NativeAllReduce:
    """``torch.distributed.all_reduce`` over all ranks."""

    name = "native"

    def __init__(self, world_size: int) -> None:
        self._world_size = world_size

    def all_reduce(self, tensor: Tensor) -> None:
        require_flat(tensor)
        if self._world_size > 1 and tensor.numel():
            dist.all_reduce(tensor)


def build(topology: Topology, options: AllReduceOptions) -> NativeAllReduce:
    return NativeAllReduce(topology.world_size)
