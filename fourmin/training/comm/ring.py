"""Ring all-reduce from point-to-point messages.

The tensor is cut into p parts. In the reduce-scatter phase each rank adds the part that comes
from its left neighbour and passes the sum on to the right; after p - 1 steps each rank holds
one finished part. In the all-gather phase the finished parts go once around. With n bytes,
latency a and b seconds a byte it takes 2(p - 1) a + 2 (p - 1)/p n b: the fewest bytes possible,
at a number of steps that grows with p.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from fourmin.training.comm.base import AllReduceOptions, Topology, require_flat


class RingAllReduce:
    """A ring over ``ranks``, which must all call ``all_reduce`` in the same order."""

    name = "ring"

    def __init__(
        self, ranks: Sequence[int], rank: int, group: dist.ProcessGroup | None = None
    ) -> None:
        """``ranks`` are global ranks in ring order; ``group`` (None: all) must hold them all."""
        self._size = len(ranks)
        self._position = ranks.index(rank)
        self._right = ranks[(self._position + 1) % self._size]
        self._left = ranks[(self._position - 1) % self._size]
        self._group = group
        self._scratch: Tensor | None = None

    def all_reduce(self, tensor: Tensor) -> None:
        """See ``base.AllReduce.all_reduce``; sums over the ranks of this ring."""
        require_flat(tensor)
        if self._size == 1 or not tensor.numel():
            return
        parts = [tensor[start:end] for start, end in part_bounds(tensor.numel(), self._size)]
        scratch = self._scratch_like(tensor, max(part.numel() for part in parts))
        at = self._position
        for step in range(self._size - 1):
            mine = parts[(at - step - 1) % self._size]
            incoming = scratch[: mine.numel()]
            self._exchange(parts[(at - step) % self._size], incoming)
            mine.add_(incoming)
        for step in range(self._size - 1):
            self._exchange(parts[(at + 1 - step) % self._size], parts[(at - step) % self._size])

    def _exchange(self, outgoing: Tensor, incoming: Tensor) -> None:
        # Neighbours cut the tensor alike, so both sides of an empty message leave it out.
        messages = []
        if outgoing.numel():
            messages.append(dist.P2POp(dist.isend, outgoing, self._right, self._group))
        if incoming.numel():
            messages.append(dist.P2POp(dist.irecv, incoming, self._left, self._group))
        if messages:
            for work in dist.batch_isend_irecv(messages):
                work.wait()

    def _scratch_like(self, tensor: Tensor, numel: int) -> Tensor:
        kept = self._scratch
        if (
            kept is None
            or kept.numel() < numel
            or kept.dtype != tensor.dtype
            or kept.device != tensor.device
        ):
            kept = torch.empty(numel, dtype=tensor.dtype, device=tensor.device)
            self._scratch = kept
        return kept


def part_bounds(numel: int, parts: int) -> list[tuple[int, int]]:
    """Cut 0 .. numel into ``parts`` consecutive ranges whose sizes differ by at most 1."""
    return [(numel * i // parts, numel * (i + 1) // parts) for i in range(parts)]


def build(topology: Topology, options: AllReduceOptions) -> RingAllReduce:
    """Make a ring over all ranks, in rank order; it takes no options."""
    return RingAllReduce(range(topology.world_size), topology.rank)
