"""The all-reduces: what each does, needs and costs.

A new one is an entry in `ALL_REDUCES`, its stages or its module in `fourmin/training/comm`, and its
cost function in `fourmin/estimate` for estimates. Commands, documentation, tuning, measurements
and estimates take their names from here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, Protocol

from fourmin.base.errors import FourminError, unknown
from fourmin.recipe.calls import Stage, hierarchical, torus
from fourmin.recipe.topology import Topology

Table = tuple[tuple[int, str], ...]
"""(first size in bytes, all-reduce from there on), beginning at 0 and rising."""

Need = Literal["group_size", "hybrid_threshold", "hybrid_large", "tuning"]


class Switches(Protocol):
    """What those that choose go by; a configuration has it."""

    @property
    def hybrid_threshold(self) -> int: ...
    @property
    def hybrid_large(self) -> str: ...
    @property
    def tuning(self) -> Sequence[str]: ...


@dataclass(frozen=True, kw_only=True)
class AllReduceEntry:
    """An all-reduce: one that sums has `stages` or a `module`, one that chooses a `table`."""

    name: str
    meaning: str
    """What it does, in one line of Markdown."""
    formula: str
    """Its cost in words; the symbols are explained in docs/allreduce.md."""
    needs: tuple[Need, ...] = ()
    """Fields of the configuration that it goes by."""
    stages: Callable[[Topology], tuple[Stage, ...]] | None = None
    """The collectives that it is composed of."""
    module: str = ""
    """In `fourmin.training.comm`, imported when it is built; offers `build(topology, options)`."""
    tabled: bool = True
    """Whether a tuning table may name it. One that chooses is never named by a table."""
    cost: str = ""
    """MODULE.FUNCTION in `fourmin.estimate`: what n bytes cost; "" with stages, or if unknown."""
    table: Callable[[Switches], Table] | None = None
    """From fields of the configuration to what is taken for each size."""


def hybrid_table(threshold: int, large: str) -> Table:
    """Hierarchical below `threshold` bytes of the tensor as it is sent, `large` from there on.

    Jia et al. 2018 take the ring there, and choose by the size of the (fused) tensor against a
    parameter eta, whose value they do not publish. Which side takes which follows from the cost
    models of the two. With p ranks in m = p/k groups of k, one latency a and b seconds a byte for
    all links, hierarchical saves 2(p - 1) - 4(k - 1) - 2(m - 1) steps and moves
    4(k - 1)/k + 2(m - 1)/m - 2(p - 1)/p times the tensor more, so it wins where latency matters.
    A ring of p ranks also adds p terms one after the other: see `MOST_IN_RING`.
    """
    below: Table = ((0, "hierarchical"),) if threshold else ()
    return (*below, (threshold, large))


def parse_entries(entries: Sequence[str]) -> Table:
    """The table of the texts "BYTES:ALGORITHM" in the configuration's `tuning`.

    Raises FourminError unless they begin at 0, rise, and name what may stand in a table.
    """
    parsed: list[tuple[int, str]] = []
    for entry in entries:
        size, separator, name = entry.partition(":")
        if not separator or not (size.isascii() and size.isdigit()):
            raise FourminError(
                f"tuning entry {entry!r} makes no sense",
                next_step="an entry is BYTES:ALGORITHM, such as 65536:torus",
            )
        if name not in CANDIDATES:
            raise unknown(f"tuning entry {entry!r} names an unknown algorithm", name, CANDIDATES)
        parsed.append((int(size), name))
    sizes = [size for size, _ in parsed]
    if not parsed or sizes[0] != 0 or any(a >= b for a, b in pairwise(sizes)):
        raise FourminError(
            "the tuning table has no algorithm for every size",
            f"its sizes are {', '.join(map(str, sizes)) or 'none'}: they must begin at 0 and rise",
            "measure one with `fourmin bench allreduce --output FILE` and give it by --tuning FILE",
        )
    return tuple(parsed)


ALL_REDUCES = {
    entry.name: entry
    for entry in (
        AllReduceEntry(
            name="native",
            meaning="the backend's own (NCCL, gloo)",
            formula="its choice",
            module="native",
            cost="collectives.native",
        ),
        AllReduceEntry(
            name="ring",
            meaning="a flat ring",
            formula="2(p-1) a + 2((p-1)/p) n b",
            module="ring",
            cost="collectives.ring",
        ),
        AllReduceEntry(
            name="hierarchical",
            meaning="reduce to the group's master, all-reduce of masters, broadcast "
            "(Jia et al. 2018)",
            formula="4(k-1) a_i + 2(m-1) a_e + 4((k-1)/k) n b_i + 2((m-1)/m) n b_e",
            needs=("group_size",),
            stages=hierarchical,
        ),
        AllReduceEntry(
            name="halving-doubling",
            meaning="pairs swap halves, then halves of halves; nearest partners first",
            formula="(2 log2 p - 1) a + 2((p-1)/p) n b",
            needs=("group_size",),
            module="halving_doubling",
            cost="collectives.halving_doubling",
        ),
        AllReduceEntry(
            name="torus",
            meaning="reduce-scatter in the group, all-reduce across, all-gather",
            formula="2(k-1) a_i + 2(m-1) a_e + 2((k-1)/k) n b_i + 2((m-1)/m)(n/k) b_e",
            needs=("group_size",),
            stages=torus,
        ),
        AllReduceEntry(
            name="hybrid",
            meaning="hierarchical below `--hybrid-threshold` bytes, `hybrid_large` from there on "
            "(the paper's switch; its large side is the ring)",
            formula="of the one taken",
            needs=("group_size", "hybrid_threshold", "hybrid_large"),
            table=lambda by: hybrid_table(by.hybrid_threshold, by.hybrid_large),
        ),
        AllReduceEntry(
            name="tuned",
            meaning="by a measured table, any of those that sum for each size",
            formula="the fastest measured",
            needs=("group_size", "tuning"),
            table=lambda by: parse_entries(by.tuning),
        ),
    )
}
"""By name; those that sum come first, so that a measurement has what the others choose among."""

NAMES = tuple(ALL_REDUCES)
OUT_OF_PLACE = "out-of-place"
"""What a measurement calls an algorithm whose sum lands in another tensor."""
CANDIDATES = tuple(e.name for e in ALL_REDUCES.values() if e.tabled and not e.table)
"""What a tuning table may name."""

LARGE = tuple(name for name in CANDIDATES if name != "hierarchical")
"""What `hybrid` may take for large tensors."""

MOST_IN_RING = 512
"""Ranks of a flat ring that FP16 sums well enough; see `tests/comm/test_half_precision.py`."""


def needs(name: str, field: Need) -> bool:
    """Whether the all-reduce `name`, known or not, goes by a field of the configuration."""
    return name in ALL_REDUCES and field in ALL_REDUCES[name].needs


def taken(table: Table, nbytes: int) -> str:
    """The all-reduce that `table` takes for `nbytes` bytes."""
    return [name for size, name in table if size <= nbytes][-1]
