"""What every all-reduce algorithm has in common: interface, topology, registry.

An algorithm that sums is composed of collectives, or lives in its own module, which offers
``build(topology, options)``; both are imported only when asked for. One that chooses among others
is a table of sizes.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol

import torch
from torch import Tensor

from fourmin.base.errors import NOT_CONVERGED, FourminError, unknown
from fourmin.recipe.allreduces import ALL_REDUCES, NAMES, Table, taken
from fourmin.recipe.calls import PIPELINE_BYTES
from fourmin.recipe.topology import Topology


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
class AllReduceOptions:
    """What algorithms may need beside the topology.

    ``hybrid_threshold`` and ``pipeline_bytes`` are in bytes; ``timeout`` is that of the process
    groups an algorithm makes for itself (torch does not inherit it from the default group).
    ``hybrid_large`` and ``tuning`` say what ``hybrid`` and ``tuned`` take, see
    ``fourmin.recipe.allreduces``.
    """

    hybrid_threshold: int
    timeout: timedelta
    pipeline_bytes: int = PIPELINE_BYTES
    hybrid_large: str = "ring"
    tuning: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.hybrid_threshold < 0:
            raise FourminError(
                f"--hybrid-threshold {self.hybrid_threshold} is negative",
                next_step="give bytes, 0 or more",
            )
        if self.pipeline_bytes < 1:
            raise ValueError(f"pipeline_bytes must be positive, not {self.pipeline_bytes}")


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
        self.choose(tensor.nbytes).all_reduce(tensor)


def build_all_reduce(
    name: str, topology: Topology, *, timeout_seconds: float, **more: Any
) -> AllReduce:
    """Make the algorithm called ``name``; ``more`` are fields of ``AllReduceOptions``.

    All ranks must call this at the same point, after the process group is up: some algorithms
    make process groups of their own. Raises FourminError for an unknown name or for values
    that make no sense.
    """
    if timeout_seconds <= 0:
        raise FourminError(
            f"collective_timeout_seconds {timeout_seconds} is not positive",
            next_step="give seconds, for example 600",
        )
    timeout = timedelta(seconds=timeout_seconds)
    return build_with_options(name, topology, AllReduceOptions(timeout=timeout, **more))


def build_with_options(name: str, topology: Topology, options: AllReduceOptions) -> AllReduce:
    """Make the algorithm called ``name``; options are checked already. See build_all_reduce."""
    if name not in ALL_REDUCES:
        raise unknown(f"unknown all-reduce algorithm {name!r}", name, NAMES)
    entry = ALL_REDUCES[name]
    if entry.table:
        table = entry.table(options)
        # In one order on all ranks: some make process groups.
        among = sorted({each for _, each in table})
        return BySize(
            name, table, {each: build_with_options(each, topology, options) for each in among}
        )
    module = importlib.import_module(f"fourmin.training.comm.{entry.module or 'composed'}")
    build: Callable[..., AllReduce] = module.build
    if entry.stages:
        return build(name, entry.stages(topology), topology.rank, options)
    return build(topology, options)


def require_flat(tensor: Tensor) -> None:
    """Raise ValueError unless ``tensor`` is 1-D, contiguous and of a floating-point type."""
    if tensor.dim() != 1 or not tensor.is_contiguous() or not torch.is_floating_point(tensor):
        raise ValueError(
            "all_reduce needs a 1-D contiguous floating-point tensor, not "
            f"{tensor.dtype} of shape {tuple(tensor.shape)} and strides {tensor.stride()}"
        )
