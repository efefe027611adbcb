"""Tuned all-reduce: for each size the algorithm that a measurement on this system found fastest."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence

from torch import Tensor

from fourmin.recipe.tuning import parse_entries
from fourmin.training.comm.base import (
    AllReduce,
    AllReduceOptions,
    Topology,
    build_with_options,
)


class TunedAllReduce:
    """Delegates by a table of sizes in bytes; ranks hold the same table, so choose alike."""

    name = "tuned"

    def __init__(self, table: Sequence[tuple[int, str]], built: Mapping[str, AllReduce]) -> None:
        """``table`` rises from size 0; ``built`` holds the algorithms that it names."""
        self._sizes = [size for size, _ in table]
        self._algorithms = [built[name] for _, name in table]

    def choose(self, nbytes: int) -> AllReduce:
        """The algorithm that sums a tensor of ``nbytes`` bytes."""
        return self._algorithms[bisect_right(self._sizes, nbytes) - 1]

    def all_reduce(self, tensor: Tensor) -> None:
        """See ``base.AllReduce.all_reduce``."""
        self.choose(tensor.numel() * tensor.element_size()).all_reduce(tensor)


def build(topology: Topology, options: AllReduceOptions) -> TunedAllReduce:
    """Make every algorithm that ``options.tuning`` names. Raises FourminError for a bad table."""
    table = parse_entries(options.tuning)
    # In one order on all ranks: some make process groups.
    names = sorted({name for _, name in table})
    return TunedAllReduce(
        table, {name: build_with_options(name, topology, options) for name in names}
    )
