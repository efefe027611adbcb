"""The table of the all-reduce `tuned`: which algorithm sums a tensor of which size.

`fourmin bench allreduce` measures it, `fourmin run --tuning FILE` takes it into the configuration
before registration, so that all runs of a campaign share it and it enters the digest. An entry
is a text "BYTES:ALGORITHM": from so many bytes on, up to the next entry, that algorithm is taken.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from fourmin.base.errors import FourminError
from fourmin.recipe.allreduces import CANDIDATES, hybrid_table, needs, parse_entries, taken

Measured = Mapping[int, Mapping[str, float]]
"""Time by algorithm, by size in bytes; any unit, the same for all."""


@dataclass(frozen=True)
class Tuning:
    """What a file of `fourmin bench allreduce` says that a run can use."""

    entries: tuple[str, ...]
    hybrid_threshold: int
    """Bytes from which on the ring is faster than hierarchical."""
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
            follows.setdefault("hybrid_threshold", self.hybrid_threshold)
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


def hybrid_threshold(measured: Measured) -> int:
    """The threshold of `hybrid` that loses least against the faster of its two at each size.

    What counts is the largest factor by which it is slower, and among equal ones their product.
    """
    sizes = sorted(measured)
    both = [name for _, name in hybrid_table(1)]
    ceilings = [0, *(math.ceil(math.sqrt(a * b)) for a, b in pairwise(sizes))]

    def loss(threshold: int) -> tuple[float, float]:
        table = hybrid_table(threshold)
        factors = [measured[s][taken(table, s)] / min(measured[s][n] for n in both) for s in sizes]
        return max(factors), math.prod(factors)

    return min([*ceilings, 2 * sizes[-1]], key=loss)


def load_tuning(path: Path) -> Tuning:
    """Read the file that `fourmin bench allreduce --output` wrote.

    Raises FourminError when it cannot be read or is something else.
    """
    try:
        content: Any = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise FourminError(f"cannot read {path}", error.strerror or str(error)) from None
    except ValueError as error:
        raise FourminError(f"{path} is not JSON", str(error), _MEASURE) from None
    try:
        tuning = Tuning(
            entries=tuple(str(entry) for entry in content["tuning"]),
            hybrid_threshold=int(content["hybrid_threshold"]),
            workers=int(content["workers"]),
            workers_per_node=int(content["workers_per_node"]),
            group_size=int(content["group_size"]),
            device=str(content["device"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise FourminError(
            f"{path} is no tuning file", f"missing or wrong: {error}", _MEASURE
        ) from (None)
    parse_entries(tuning.entries)
    return tuning


_MEASURE = "`fourmin bench allreduce --output FILE` writes one"
