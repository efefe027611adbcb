"""The all-reduces: what each does, needs and costs.

A new one is an entry in `ALL_REDUCES`, its module in `fourmin/training/comm` and, for estimates,
its cost function in `fourmin/estimate`. Commands, documentation, tuning, measurements and
estimates take their names from here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from fourmin.base.errors import FourminError, list_names

Table = tuple[tuple[int, str], ...]
"""(first size in bytes, all-reduce from there on), beginning at 0 and rising."""

Need = Literal["group_size", "hybrid_threshold", "tuning"]


@dataclass(frozen=True, kw_only=True)
class AllReduceEntry:
    """An all-reduce: one that sums has a `module`, one that chooses among those a `table`."""

    name: str
    meaning: str
    """What it does, in one line of Markdown."""
    formula: str
    """Its cost in words; the symbols are explained in docs/allreduce.md."""
    needs: tuple[Need, ...] = ()
    """Fields of the configuration that it goes by."""
    module: str = ""
    """In `fourmin.training.comm`, imported when it is built; offers `build(topology, options)`."""
    tabled: bool = True
    """Whether a tuning table may name it. One that chooses is never named by a table."""
    cost: str = ""
    """MODULE.FUNCTION in `fourmin.estimate`: the seconds of n bytes; "" where nobody knows."""
    table: Callable[[int, Sequence[str]], Table] | None = None
    """From the configuration's `hybrid_threshold` and `tuning` to what is taken for each size."""


def hybrid_table(threshold: int, _tuning: Sequence[str] = ()) -> Table:
    """Hierarchical below `threshold` bytes of the tensor as it is sent, the ring from there on.

    Jia et al. 2018 choose by the size of the (fused) tensor against a parameter eta, whose value
    they do not publish. Which side takes which follows from the cost models of the two. With p
    ranks in m = p/k groups of k, one latency a and b seconds a byte for all links, hierarchical
    saves 2(p - 1) - 4(k - 1) - 2(m - 1) steps and moves 4(k - 1)/k + 2(m - 1)/m - 2(p - 1)/p times
    the tensor more, so it wins where latency matters, that is below

        n* = a [2(p - 1) - 4(k - 1) - 2(m - 1)] / (b [4(k - 1)/k + 2(m - 1)/m - 2(p - 1)/p]) bytes.

    For p = 1024, k = 16 that is 1860 a / (3.72 b): at 10 us a step and 10 GB/s about 50 MB. Where
    the first bracket is not positive (few groups: p = 8, k = 4 gives 0) the ring is never slower,
    and the threshold should be 0.
    """
    below: Table = ((0, "hierarchical"),) if threshold else ()
    return (*below, (threshold, "ring"))


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
            raise FourminError(
                f"tuning entry {entry!r} names an unknown algorithm",
                next_step=f"known: {list_names(CANDIDATES)}",
            )
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
            meaning="reduce to the group's master, ring of masters, broadcast (Jia et al. 2018)",
            formula="4(k-1) a_i + 2(m-1) a_e + 4((k-1)/k) n b_i + 2((m-1)/m) n b_e",
            needs=("group_size",),
            module="hierarchical",
            cost="collectives.hierarchical",
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
            formula="2 a_i + (2 log2 m - 1) a_e + 2((k-1)/k) n b_i + 2((m-1)/m)(n/k) b_e",
            needs=("group_size",),
            module="torus",
            cost="collectives.torus",
        ),
        AllReduceEntry(
            name="hybrid",
            meaning="hierarchical below `--hybrid-threshold` bytes, ring from there on "
            "(the paper's switch)",
            formula="of the one taken",
            needs=("group_size", "hybrid_threshold"),
            table=hybrid_table,
        ),
        AllReduceEntry(
            name="tuned",
            meaning="by a measured table, any of those that sum for each size",
            formula="the fastest measured",
            needs=("group_size", "tuning"),
            table=lambda _threshold, tuning: parse_entries(tuning),
        ),
    )
}
"""By name; those that sum come first, so that a measurement has what the others choose among."""

NAMES = tuple(ALL_REDUCES)
CANDIDATES = tuple(e.name for e in ALL_REDUCES.values() if e.tabled and not e.table)
"""What a tuning table may name."""


def needs(name: str, field: Need) -> bool:
    """Whether the all-reduce `name`, known or not, goes by a field of the configuration."""
    return name in ALL_REDUCES and field in ALL_REDUCES[name].needs


def taken(table: Table, nbytes: int) -> str:
    """The all-reduce that `table` takes for `nbytes` bytes."""
    return [name for size, name in table if size <= nbytes][-1]


def check_group_size(group_size: int, workers: int, per_node: int) -> None:
    """Refuse groups that would tear a node in two, naming the sizes that fit; 0 is the node."""
    whole_nodes = group_size <= workers and group_size % per_node == 0
    if group_size >= 0 and (group_size <= per_node or whole_nodes):
        return
    fitting = f"1 to {workers if per_node == 1 else per_node}"
    if workers > per_node > 1:
        several = f"a multiple of {per_node} up to " if workers > 2 * per_node else ""
        fitting += f", or {several}{workers}"
    raise FourminError(
        f"group size {group_size} does not fit {workers} workers, {per_node} on each node",
        "a group is a part of one node or a number of whole nodes",
        f"--group-size {fitting}; 0 stands for the node",
    )
