"""What every all-reduce algorithm has in common: interface, topology, registry.

An algorithm lives in its own module, which offers ``build(topology, options)``. The registry
imports that module only when its name is asked for.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol, cast, runtime_checkable

import torch
from torch import Tensor

from fourmin.base.errors import NOT_CONVERGED, FourminError, list_names

_MODULES = {
    "native": "fourmin.training.comm.native",
    "ring": "fourmin.training.comm.ring",
    "hierarchical": "fourmin.training.comm.hierarchical",
    "hybrid": "fourmin.training.comm.hybrid",
    "halving-doubling": "fourmin.training.comm.halving_doubling",
    "torus": "fourmin.training.comm.torus",
    "tuned": "fourmin.training.comm.tuned",
}

DEFAULT_PIPELINE_BYTES = 1024 * 1024


class CommunicationError(FourminError):
    """A collective failed, or ranks that must agree do not. The run cannot go on."""

    def __init__(self, what: str, why: str = "", next_step: str = "") -> None:
        """As FourminError, with the exit code of a run that did not reach its target."""
        super().__init__(what, why, next_step, NOT_CONVERGED)


class AllReduce(Protocol):
    """One way to sum a tensor over all ranks."""

    @property
    def name(self) -> str:
        """The name under which the algorithm is registered."""

    def all_reduce(self, tensor: Tensor) -> None:
        """Sum ``tensor`` over all ranks, in place; every rank ends with the same bits.

        ``tensor`` is 1-D, contiguous, of a floating-point type, and of the same size on all
        ranks. On the CPU the call returns when the sum is there. On CUDA the sum is ordered
        after earlier work of the current stream and before later work of it.

        Raises ValueError for another kind of tensor, RuntimeError if a peer fails.
        """


@runtime_checkable
class Chooser(Protocol):
    """An algorithm that delegates to others by the size of the tensor."""

    def choose(self, nbytes: int) -> AllReduce:
        """Return the algorithm that sums a tensor of ``nbytes`` bytes."""


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
                + ", ".join(str(n) for n in _divisors(world_size)),
            )
        size = group_size or ranks_per_node
        whole_nodes = size <= world_size and size % ranks_per_node == 0
        if size < 1 or not (size <= ranks_per_node or whole_nodes):
            raise FourminError(
                f"--group-size {group_size} does not fit {world_size} processes, "
                f"{ranks_per_node} on each node",
                why="a group is a part of one node or a number of whole nodes",
                next_step=f"choose {_fitting_sizes(world_size, ranks_per_node)}",
            )
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
    ``tuning`` is the table of ``tuned``, see ``fourmin.recipe.tuning``.
    """

    hybrid_threshold: int
    pipeline_bytes: int
    timeout: timedelta
    tuning: tuple[str, ...] = ()


class _Module(Protocol):
    def build(self, topology: Topology, options: AllReduceOptions) -> AllReduce: ...


def known_algorithms() -> tuple[str, ...]:
    """The names that ``build_all_reduce`` accepts."""
    return tuple(_MODULES)


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
    if name not in _MODULES:
        raise FourminError(
            f"unknown all-reduce algorithm {name!r}",
            next_step="choose one of " + list_names(known_algorithms()),
        )
    module = cast(_Module, importlib.import_module(_MODULES[name]))
    return module.build(topology, options)


def require_flat(tensor: Tensor) -> None:
    """Raise ValueError unless ``tensor`` is 1-D, contiguous and of a floating-point type."""
    if tensor.dim() != 1 or not tensor.is_contiguous() or not torch.is_floating_point(tensor):
        raise ValueError(
            "all_reduce needs a 1-D contiguous floating-point tensor, not "
            f"{tensor.dtype} of shape {tuple(tensor.shape)} and strides {tensor.stride()}"
        )


def _divisors(number: int) -> list[int]:
    return [n for n in range(1, number + 1) if number % n == 0]


def _fitting_sizes(world_size: int, ranks_per_node: int) -> str:
    nodes = world_size // ranks_per_node
    text = f"1 to {world_size if ranks_per_node == 1 else ranks_per_node}"
    if nodes == 2 and ranks_per_node > 1:
        text += f", or {world_size}"
    elif nodes > 2 and ranks_per_node > 1:
        text += f", or a multiple of {ranks_per_node} up to {world_size}"
    return text + "; 0 stands for the node"
