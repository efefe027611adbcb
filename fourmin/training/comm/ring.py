"""Ring all-reduce from point-to-point messages.

The tensor is cut into p parts. In the reduce-scatter phase each rank adds the part that comes
from its left neighbour and passes the sum on to the right; after p - 1 steps each rank holds
one finished part. In the all-gather phase the finished parts go once around. With n bytes,
latency a and b seconds a byte it takes 2(p - 1) a + 2 (p - 1)/p n b: the fewest bytes possible,
at a number of steps that grows with p.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from fourmin.recipe.topology import Topology
from fourmin.training.comm.base import AllReduceOptions, require_flat
from fourmin.training.comm.rounds import Rounds, Scratch, receive, run, send


class RingAllReduce:
    """A ring over all ranks, in ``ranks``'s order."""

    name = "ring"

    def __init__(self, ranks: Sequence[int], rank: int) -> None:
        self._ranks = tuple(ranks)
        self._rank = rank
        self._scratch = Scratch()

    def all_reduce(self, tensor: Tensor) -> None:
        """See ``base.AllReduce.all_reduce``."""
        require_flat(tensor)
        if len(self._ranks) == 1 or not tensor.numel():
            return
        run(self._rounds, [tensor])

    def _rounds(self, tensor: Tensor) -> Rounds:
        return ring_rounds(tensor, self._ranks, self._rank, self._scratch)


def ring_rounds(tensor: Tensor, ranks: Sequence[int], rank: int, scratch: Scratch) -> Rounds:
    """Sum ``tensor`` over ``ranks`` (global, in ring order), seen from ``rank``: 2(p - 1) rounds.

    Neighbours cut the tensor alike, so both sides of an empty message leave it out.
    """
    size = len(ranks)
    at = ranks.index(rank)
    right, left = ranks[(at + 1) % size], ranks[(at - 1) % size]
    parts = [tensor[start:end] for start, end in part_bounds(tensor.numel(), size)]
    buffer = scratch.take(tensor, max(part.numel() for part in parts))
    for step in range(size - 1):
        mine = parts[(at - step - 1) % size]
        incoming = buffer[: mine.numel()]
        yield [*receive(left, incoming), *send(right, parts[(at - step) % size])]
        mine.add_(incoming)
    scratch.give(buffer)
    for step in range(size - 1):
        incoming = parts[(at - step) % size]
        yield [*receive(left, incoming), *send(right, parts[(at + 1 - step) % size])]


def part_bounds(numel: int, parts: int) -> list[tuple[int, int]]:
    """Cut 0 .. numel into ``parts`` consecutive ranges whose sizes differ by at most 1."""
    return [(numel * i // parts, numel * (i + 1) // parts) for i in range(parts)]


def build(topology: Topology, options: AllReduceOptions) -> RingAllReduce:
    return RingAllReduce(range(topology.world_size), topology.rank)
