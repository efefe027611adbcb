"""Torus all-reduce: reduce-scatter in the group, all-reduce across, all-gather in the group.

The ranks form a grid, a row for each group. In a row every rank sends each other rank the part
that belongs to it, all at once, and adds what comes; then the ranks of a column sum their part
over the groups; then the parts go back to the row. With groups of k, m of them, latency a and b
seconds a byte (i inside, e between groups) it takes

    2 (k - 1) a_i + 2 (m - 1) a_e + 2 ((k - 1)/k) n b_i + 2 ((m - 1)/m) (n/k) b_e

with a ring across, b_e for one rank: all k columns use the links between groups together, and
only n/k crosses them for each. Here the k - 1 messages of a row make one round, and a column
whose length is a power of two takes halving and doubling.

Groups of different sizes have as many columns as the smallest has ranks; the ranks beyond them
give their parts to the others and own none.
"""

from __future__ import annotations

from torch import Tensor

from fourmin.training.comm.base import AllReduceOptions, Topology, require_flat
from fourmin.training.comm.halving_doubling import (
    flat_plan,
    flat_round_count,
    power_of_two_below,
)
from fourmin.training.comm.ring import part_bounds, ring_rounds
from fourmin.training.comm.rounds import (
    Message,
    Rounds,
    Scratch,
    later,
    pieces,
    receive,
    run,
    send,
)


class TorusAllReduce:
    """Rows are the groups of the topology, columns the ranks of one place in them."""

    name = "torus"

    def __init__(self, topology: Topology, pipeline_bytes: int) -> None:
        """``pipeline_bytes`` is the size of the pieces that follow each other across."""
        self._pipeline_bytes = pipeline_bytes
        self._world_size = topology.world_size
        self._rank = topology.rank
        self._row = topology.group
        self._rows = len(topology.groups)
        self._columns = min(len(group) for group in topology.groups)
        self._place = self._row.index(self._rank)
        self._column = (
            tuple(group[self._place] for group in topology.groups)
            if self._place < self._columns
            else ()
        )
        # Without a power of two the ring sends fewer bytes than folding does.
        self._halving = power_of_two_below(self._rows) == self._rows
        self._scratch = Scratch()

    def all_reduce(self, tensor: Tensor) -> None:
        require_flat(tensor)
        if self._world_size == 1 or not tensor.numel():
            return
        # In one row all links are alike, and there is nothing to overlap.
        run(self._rounds, pieces(tensor, self._pipeline_bytes) if self._rows > 1 else [tensor])

    def _rounds(self, tensor: Tensor) -> Rounds:
        parts = [tensor[start:end] for start, end in part_bounds(tensor.numel(), self._columns)]
        others = [rank for rank in self._row if rank != self._rank]
        owners = dict(zip(self._row, parts, strict=False))
        mine = owners.pop(self._rank, None)
        given = [message for rank, part in owners.items() for message in send(rank, part)]
        # Each owner has read our part before it can answer with the sum.
        back = [message for rank, part in owners.items() for message in receive(rank, part)]
        across_count = self._across_count()
        back = later(1 + across_count, back)
        if mine is None:
            yield [*back, *given]
            for _ in range(across_count + 1):
                yield []
            return
        size = mine.numel()
        buffer = self._scratch.take(mine, size * len(others))
        slots = [buffer[i * size : (i + 1) * size] for i in range(len(others))]
        taken = [m for rank, slot in zip(others, slots, strict=True) for m in receive(rank, slot)]
        ahead, across = self._across(mine)
        yield [*taken, *later(1, ahead), *back, *given]
        for slot in slots:
            mine.add_(slot)
        self._scratch.give(buffer)
        yield from across
        yield [message for rank in others for message in send(rank, mine)]

    def _across(self, part: Tensor) -> tuple[list[Message], Rounds]:
        if self._halving:
            return flat_plan(part, self._column, self._rank, self._scratch)
        return [], ring_rounds(part, self._column, self._rank, self._scratch)

    def _across_count(self) -> int:
        return flat_round_count(self._rows) if self._halving else 2 * (self._rows - 1)


def build(topology: Topology, options: AllReduceOptions) -> TorusAllReduce:
    return TorusAllReduce(topology, options.pipeline_bytes)
