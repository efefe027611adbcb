"""What every all-reduce algorithm has in common: interface, topology, registry.

An algorithm that sums lives in its own module, which offers ``build(topology, options)`` and is
imported only when its name is asked for. One that chooses among others is a table of sizes.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol, cast

import torch
from torch import Tensor

from fourmin.base.errors import NOT_CONVERGED, FourminError, list_names
from fourmin.recipe.allreduces import ALL_REDUCES, NAMES, Table, check_group_size, taken

DEFAULT_PIPELINE_BYTES = 1024 * 1024


class CommunicationError(FourminError):
    """A collective failed, or ranks that must agree do not. The run cannot go on."""

    def __init__(self, what: str, why: str = "", next_step: str = "") -> None:
        """As FourminError, with the exit code of a run that did not reach its target."""
        super().__init__(what, why, next_step, NOT_CONVERGED)


class AllReduce(Protocol):
    """One way to sum a tensor over all ranks."""

    @property
    def name(self) -> str: ...

    def all_reduce(self, tensor: Tensor) -> None:
        """Sum ``tensor`` over all ranks, in place; every rank ends with the same bits.

        ``tensor`` is 1-D, contiguous, of a floating-point type, and of the same size on all
        ranks. On the CPU the call returns when the sum is there. On CUDA the sum is ordered
        after earlier work of the current stream and before later work of it.

        Raises ValueError for another kind of tensor, RuntimeError if a peer fails.
        """


@dataclass(frozen=True)
class Topology:
    """Which ranks there are and how they are grouped; use ``Topology.build``.

    ``groups`` partitions 0 .. world_size - 1 into runs of consecutive ranks, in order; the first
    rank of a group is its master. Groups may differ in size: 6 ranks on one node in groups
    of 4 are (0, 1, 2, 3) and (4, 5).
    """

    rank: int
    world_size: int
    group_size: int
    groups: tuple[tuple[int, ...], ...]

    @classmethod
    def build(
        cls, rank: int, world_size: int, ranks_per_node: int, group_size: int = 0
    ) -> Topology:
        """Group ``world_size`` ranks, of which each node holds ``ranks_per_node`` in a row.

        ``group_size`` 0 takes the node as the group. A size up to ``ranks_per_node`` splits each
        node (its last group may be smaller); a larger one must be a number of whole nodes, so
        that no node is torn between two groups (the last group may have fewer nodes).

        Raises FourminError for what does not fit, naming the sizes that would.
        """
        if world_size < 1 or not 0 <= rank < world_size:
            raise FourminError(
                f"rank {rank} does not exist among {world_size} processes",
                why="ranks count from 0 to the number of processes - 1",
            )
        if ranks_per_node < 1 or world_size % ranks_per_node:
            raise FourminError(
                f"{world_size} processes cannot be spread evenly, {ranks_per_node} on each node",
                why="every node must run the same number of processes",
                next_step="choose --procs-per-node among "
                + ", ".join(str(n) for n in range(1, world_size + 1) if world_size % n == 0),
            )
        check_group_size(group_size, world_size, ranks_per_node)
        size = group_size or ranks_per_node
        # Within a node for small groups, over whole nodes otherwise.
        span = ranks_per_node if size <= ranks_per_node else world_size
        groups = tuple(
            tuple(range(start, min(start + size, first + span)))
            for first in range(0, world_size, span)
            for start in range(first, first + span, size)
        )
        return cls(rank=rank, world_size=world_size, group_size=size, groups=groups)

    @property
    def group(self) -> tuple[int, ...]:
        """The ranks of this rank's group, its master first."""
        return next(group for group in self.groups if self.rank in group)

    @property
    def masters(self) -> tuple[int, ...]:
        """The master of each group, in order."""
        return tuple(group[0] for group in self.groups)


@dataclass(frozen=True)
class AllReduceOptions:
    """What algorithms may need beside the topology.

    ``hybrid_threshold`` and ``pipeline_bytes`` are in bytes; ``timeout`` is that of the process
    groups an algorithm makes for itself (torch does not inherit it from the default group).
    ``tuning`` is the table of ``tuned``, see ``fourmin.recipe.allreduces``.
    """

    hybrid_threshold: int
    pipeline_bytes: int
    timeout: timedelta
    tuning: tuple[str, ...] = ()


class BySize:
    """An all-reduce that delegates by the size of the tensor; ranks hold the same table, so they
    choose alike.
    """

    def __init__(self, name: str, table: Table, built: Mapping[str, AllReduce]) -> None:
        """``built`` holds the algorithms that ``table`` names."""
        self.name = name
        self._table = table
        self._built = built

    def choose(self, nbytes: int) -> AllReduce:
        return self._built[taken(self._table, nbytes)]

    def all_reduce(self, tensor: Tensor) -> None:
        self.choose(tensor.numel() * tensor.element_size()).all_reduce(tensor)


class _Module(Protocol):
    def build(self, topology: Topology, options: AllReduceOptions) -> AllReduce: ...


def build_all_reduce(
    name: str,
    topology: Topology,
    *,
    hybrid_threshold: int,
    timeout_seconds: float,
    pipeline_bytes: int = DEFAULT_PIPELINE_BYTES,
    tuning: tuple[str, ...] = (),
) -> AllReduce:
    """Make the algorithm called ``name``.

    All ranks must call this at the same point, after the process group is up: some algorithms
    make process groups of their own. Raises FourminError for an unknown name or for values
    that make no sense.
    """
    if hybrid_threshold < 0:
        raise FourminError(
            f"--hybrid-threshold {hybrid_threshold} is negative", next_step="give bytes, 0 or more"
        )
    if timeout_seconds <= 0:
        raise FourminError(
            f"collective_timeout_seconds {timeout_seconds} is not positive",
            next_step="give seconds, for example 600",
        )
    if pipeline_bytes < 1:
        raise ValueError(f"pipeline_bytes must be positive, not {pipeline_bytes}")
    options = AllReduceOptions(
        hybrid_threshold, pipeline_bytes, timedelta(seconds=timeout_seconds), tuning
    )
    return build_with_options(name, topology, options)


def build_with_options(name: str, topology: Topology, options: AllReduceOptions) -> AllReduce:
    """Make the algorithm called ``name``; options are checked already. See build_all_reduce."""
    if name not in ALL_REDUCES:
        raise FourminError(
            f"unknown all-reduce algorithm {name!r}", next_step=f"known: {list_names(NAMES)}"
        )
    entry = ALL_REDUCES[name]
    if entry.table:
        table = entry.table(options.hybrid_threshold, options.tuning)
        # In one order on all ranks: some make process groups.
        among = sorted({each for _, each in table})
        return BySize(
            name, table, {each: build_with_options(each, topology, options) for each in among}
        )
    module = cast(_Module, importlib.import_module(f"fourmin.training.comm.{entry.module}"))
    return module.build(topology, options)


def require_flat(tensor: Tensor) -> None:
    """Raise ValueError unless ``tensor`` is 1-D, contiguous and of a floating-point type."""
    if tensor.dim() != 1 or not tensor.is_contiguous() or not torch.is_floating_point(tensor):
        raise ValueError(
            "all_reduce needs a 1-D contiguous floating-point tensor, not "
            f"{tensor.dtype} of shape {tuple(tensor.shape)} and strides {tensor.stride()}"
        )
