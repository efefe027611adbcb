"""Hierarchical all-reduce (Jia et al. 2018): reduce in the group, ring of masters, broadcast.

Of p ranks in groups of k only the m = p/k masters take part in the ring, so that the number of
steps falls from 2(p - 1) to about 4(k - 1) + 2(m - 1). The price is bytes: every byte crosses
the links inside a group twice more. With latency a and b seconds a byte (i inside a group,
e between groups) it takes
4(k - 1) a_i + 2(m - 1) a_e + 4 (k - 1)/k n b_i + 2 (m - 1)/m n b_e.

A tensor larger than ``pipeline_bytes`` is cut into chunks, so that the reduction of one chunk,
the ring of the chunk before and the broadcast of the one before that go on at the same time.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor

from fourmin.training.comm.base import AllReduceOptions, Topology, require_flat
from fourmin.training.comm.ring import RingAllReduce


class HierarchicalAllReduce:
    """The paper's three stages; groups may differ in size."""

    name = "hierarchical"

    def __init__(self, topology: Topology, pipeline_bytes: int, timeout: timedelta) -> None:
        """Make the process groups of this rank; a collective call over all ranks.

        ``pipeline_bytes`` is the size of a pipeline chunk.
        """
        self._pipeline_bytes = pipeline_bytes
        self._master = topology.group[0]
        self._alone = len(topology.group) == 1
        # All ranks make all groups, in the same order: torch names groups by a counter. The
        # ranks outside a group do not wait for it.
        made = {
            ranks: _process_group(ranks, topology.world_size, timeout)
            for ranks in (*topology.groups, topology.masters)
        }
        self._group = made[topology.group]
        self._ring: RingAllReduce | None = None
        if topology.rank == self._master:
            masters = topology.masters
            self._ring = RingAllReduce(masters, topology.rank, made[masters])

    def all_reduce(self, tensor: Tensor) -> None:
        require_flat(tensor)
        if not tensor.numel():
            return
        chunks = torch.split(tensor, max(1, self._pipeline_bytes // tensor.element_size()))
        if self._alone:
            for chunk in chunks:
                self._between_masters(chunk)
            return
        reductions = [
            dist.reduce(chunk, self._master, group=self._group, async_op=True) for chunk in chunks
        ]
        broadcasts = []
        for chunk, reduction in zip(chunks, reductions, strict=True):
            _wait(reduction)
            self._between_masters(chunk)
            broadcasts.append(dist.broadcast(chunk, self._master, group=self._group, async_op=True))
        for broadcast in broadcasts:
            _wait(broadcast)

    def _between_masters(self, chunk: Tensor) -> None:
        if self._ring is not None:
            self._ring.all_reduce(chunk)


def _wait(work: dist.Work | None) -> None:
    if work is None:
        raise RuntimeError("this process is not a member of its own group")
    work.wait()


def _process_group(
    ranks: Sequence[int], world_size: int, timeout: timedelta
) -> dist.ProcessGroup | None:
    """The process group of ``ranks``; None where the default group serves, or none is needed."""
    if len(ranks) in (1, world_size):
        return None
    group = dist.new_group(list(ranks), timeout=timeout)
    # To a rank outside the group torch gives a marker instead.
    return group if isinstance(group, dist.ProcessGroup) else None


def build(topology: Topology, options: AllReduceOptions) -> HierarchicalAllReduce:
    # A chunk costs two collectives of the whole group beside the ring: fewer, larger ones.
    return HierarchicalAllReduce(topology, 2 * options.pipeline_bytes, options.timeout)
