"""The table of the all-reduce `tuned`: which algorithm sums a tensor of which size.

`fourmin bench allreduce` measures it, `fourmin run --tuning FILE` takes it into the configuration
before registration, so that all runs of a campaign share it and it enters the digest. An entry
is a text "BYTES:ALGORITHM": from so many bytes on, up to the next entry, that algorithm is taken.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from fourmin.base.canonical import loads_strict
from fourmin.base.errors import FourminError
from fourmin.base.files import read_given
from fourmin.base.mishaps import told
from fourmin.recipe.allreduces import (
    CANDIDATES,
    LARGE,
    hybrid_table,
    needs,
    parse_entries,
    taken,
)
from fourmin.recipe.fields import AUTO

WELL_SWITCHED = 1.05

Measured = Mapping[int, Mapping[str, float]]
"""Time by algorithm, by size in bytes; any unit, the same for all."""


@dataclass(frozen=True)
class Tuning:
    """What a file of `fourmin bench allreduce` says that a run can use."""

    entries: tuple[str, ...]
    hybrid_large: str
    """The large side with which `hybrid` loses least."""
    hybrid_thresholds: Mapping[str, int]
    """Bytes from which on each large side is faster than hierarchical."""
    workers: int
    workers_per_node: int
    group_size: int
    """As it was asked for; 0: the workers of a node."""
    device: str

    def changes(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Configuration fields that follow from the table, where `given` does not name them."""
        follows = {"allreduce": "tuned", "group_size": self.group_size, **given}
        follows["tuning"] = self.entries
        if needs(follows["allreduce"], "hybrid_threshold"):
            large = follows.setdefault("hybrid_large", self.hybrid_large)
            if follows.get("hybrid_threshold", AUTO) == AUTO and large in self.hybrid_thresholds:
                follows["hybrid_threshold"] = self.hybrid_thresholds[large]
        return follows

    def check_fits(self, path: Path, run: Mapping[str, Any]) -> None:
        """Raise FourminError unless it was measured as `run` (fields of this class) will train."""
        differences = [
            f"{name.replace('_', ' ')} {getattr(self, name)} there, {value} in this run"
            for name, value in run.items()
            if getattr(self, name) != value
        ]
        if differences:
            raise FourminError(
                f"{path} was measured under other conditions",
                "; ".join(differences),
                "measure again with `fourmin bench allreduce`, as the run will train",
            )


def fastest_table(measured: Measured) -> tuple[str, ...]:
    """The entries that take the fastest candidate at each measured size.

    Between two sizes with different winners the change lies at their geometric mean.
    """
    entries: list[str] = []
    before, last = 0, ""
    for size in sorted(measured):
        times = {name: time for name, time in measured[size].items() if name in CANDIDATES}
        winner = min(times, key=lambda name: (times[name], name))
        if winner != last:
            entries.append(f"{math.ceil(math.sqrt(before * size))}:{winner}")
        before, last = size, winner
    return tuple(entries)


def shown_faster(rows: Iterable[Mapping[str, Any]]) -> dict[int, dict[str, float]]:
    """The median times by size and all-reduce of those that are shown to be faster than native.

    One whose median native reached in some sample is not; native itself always stays.
    """
    times: dict[int, dict[str, float]] = {}
    least = {row["bytes"]: row["least"] for row in rows if row["algorithm"] == "native"}
    for row in rows:
        name, time = row["algorithm"], row["milliseconds"]
        if name == "native" or time < least.get(row["bytes"], math.inf):
            times.setdefault(row["bytes"], {})[name] = time
    return times


def hybrid_thresholds(measured: Measured) -> dict[str, int]:
    """For each large side of `hybrid` the threshold that loses least against the faster of its two
    sides at each size; the side to be taken first.

    What counts is the largest factor by which it is slower, and among equal ones their product.
    Sides whose factor is at most `WELL_SWITCHED` are equal; of them the fastest over all sizes is
    taken.
    """
    sizes = sorted(measured)
    ceilings = [0, *(math.ceil(math.sqrt(a * b)) for a, b in pairwise(sizes)), 2 * sizes[-1]]

    def loss(large: str, threshold: int) -> tuple[float, float]:
        both, table = ("hierarchical", large), hybrid_table(threshold, large)
        factors = [measured[s][taken(table, s)] / min(measured[s][n] for n in both) for s in sizes]
        return max(factors), math.prod(factors)

    def rank(large: str) -> tuple[float, float]:
        table = hybrid_table(best[large], large)
        times = math.prod(measured[s][taken(table, s)] for s in sizes)
        return max(WELL_SWITCHED, loss(large, best[large])[0]), times

    known = [name for name in LARGE if all(name in times for times in measured.values())]
    best = {large: min(ceilings, key=lambda at: loss(large, at)) for large in known}
    return {large: best[large] for large in sorted(known, key=rank)}


def load_tuning(path: Path) -> Tuning:
    """Read the file that `fourmin bench allreduce --output` wrote.

    Raises FourminError when it cannot be read or is something else.
    """
    with told(f"{path} is not JSON", _MEASURE, ValueError), told(f"cannot read {path}"):
        content: Any = loads_strict(read_given(path))
    try:
        tuning = Tuning(
            entries=tuple(str(entry) for entry in content["tuning"]),
            hybrid_large=str(content["hybrid_large"]),
            hybrid_thresholds={
                str(name): int(size) for name, size in content["hybrid_thresholds"].items()
            },
            workers=int(content["workers"]),
            workers_per_node=int(content["workers_per_node"]),
            group_size=int(content["group_size"]),
            device=str(content["device"]),
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise FourminError(
            f"{path} is no tuning file", f"missing or wrong: {error}", _MEASURE
        ) from (None)
    parse_entries(tuning.entries)
    return tuning


_MEASURE = "`fourmin bench allreduce --output FILE` writes one"
