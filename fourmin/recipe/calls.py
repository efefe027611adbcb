"""All-reduces composed of collectives, as data: the calls that a rank makes, in their order.

A tensor is cut into pieces, and each piece goes through the same stages, one collective each. At
tick t piece p is in stage t - p, so that the stages of several pieces go on at the same time. Ranks
call in one order, tick by tick and the oldest piece first, and leave out the communicators of
others: no two ranks ever wait for each other on different communicators, which NCCL would not
survive. Training makes these calls; whoever counts or simulates an all-reduce reads them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from fourmin.recipe.topology import Topology

PIPELINE_BYTES = 1 << 20
MOST_PIECES = 16
_ALIGNMENT = 64
"""Elements at whose multiples a piece begins in each of its parts: vectorised kernels want it."""

Kind = Literal["reduce", "reduce_scatter", "all_reduce", "all_gather", "broadcast"]


@dataclass(frozen=True)
class Stage:
    """One collective over each of `communicators`, of which a rank is in one or none.

    Those of one rank have nothing to do. Reductions and broadcasts end and begin at the first rank
    of a communicator. `parts` is 1 where each communicator takes the whole piece, else their
    number: each takes the part of its place among them.
    """

    kind: Kind
    communicators: tuple[tuple[int, ...], ...]
    parts: int = 1

    def of(self, rank: int) -> tuple[int, tuple[int, ...]]:
        """The place and the ranks of `rank`'s communicator; no ranks where it has no call."""
        for place, ranks in enumerate(self.communicators):
            if rank in ranks:
                return place, ranks if len(ranks) > 1 else ()
        return 0, ()


@dataclass(frozen=True, slots=True)
class Call:
    """A collective over `ranks`, of `count` elements from `start` of a piece."""

    tick: int
    piece: int
    stage: int
    ranks: tuple[int, ...]
    start: int
    count: int


def hierarchical(topology: Topology) -> tuple[Stage, ...]:
    """Reduce to the group's master, all-reduce among masters, broadcast (Jia et al. 2018)."""
    return _grid(topology, 1)


def torus(topology: Topology) -> tuple[Stage, ...]:
    """Reduce-scatter in the group, all-reduce across the groups, all-gather in the group.

    There are as many columns as the smallest group has ranks. In a larger group each rank beyond
    them gives its tensor to one of a column first, and gets the sum from it at last.
    """
    return _grid(topology, min(map(len, topology.groups)))


def _grid(topology: Topology, columns: int) -> tuple[Stage, ...]:
    groups = topology.groups
    rows = tuple(group[:columns] for group in groups)
    # A rank of a column, and the ranks beyond the columns that give to it.
    folds = tuple(group[place::columns] for group in groups for place in range(columns))
    stages = [Stage("all_reduce", tuple(zip(*rows, strict=True)), columns)]
    if len(groups) == 1:
        stages = []
    if columns > 1:
        stages = [Stage("reduce_scatter", rows), *stages, Stage("all_gather", rows)]
    if any(len(fold) > 1 for fold in folds):
        stages = [Stage("reduce", folds), *stages, Stage("broadcast", folds)]
    return tuple(stages)


def piece_sizes(
    stages: Sequence[Stage], numel: int, itemsize: int, pipeline_bytes: int = PIPELINE_BYTES
) -> list[int]:
    """Elements of each piece of `numel` elements of `itemsize` bytes; the last may be padded.

    One piece where there is nothing to overlap: one stage, or stages that all keep the same links
    busy. Else their number grows with the root of the size: p pieces of n bytes in s stages take
    (p + s - 1) (a + n b/p) where each stage costs a and b a byte, least at
    p = sqrt((s - 1) n b/a). A piece is of equal parts for the ranks of a row, so the last one may
    be larger than what is left of the tensor.
    """
    kinds = {stage.kind for stage in stages}
    row = max((len(s.communicators[0]) for s in stages if s.kind == "reduce_scatter"), default=1)
    pieces = 1
    if len(stages) > 1 and kinds != {"reduce_scatter", "all_gather"}:
        pieces = min(MOST_PIECES, math.ceil(math.sqrt(numel * itemsize / pipeline_bytes)))
    if pieces == 1:
        return [-(-numel // row) * row]
    size = -(-numel // (pieces * row * _ALIGNMENT)) * row * _ALIGNMENT
    whole, rest = divmod(numel, size)
    return [size] * whole + ([-(-rest // row) * row] if rest else [])


def calls(stages: Sequence[Stage], sizes: Sequence[int], rank: int) -> Iterator[Call]:
    """The calls of `rank`, in their order; `sizes` are those of `piece_sizes`."""
    own = [stage.of(rank) for stage in stages]
    for tick in range(len(sizes) + len(stages) - 1):
        for index in reversed(range(len(stages))):
            piece = tick - index
            place, ranks = own[index]
            if ranks and 0 <= piece < len(sizes):
                count = sizes[piece] // stages[index].parts
                start = place * count if stages[index].parts > 1 else 0
                yield Call(tick, piece, index, ranks, start, count)
