"""Time every all-reduce algorithm on this process group; the worker of `fourmin bench allreduce`.

Started by torchrun with the path of a JSON file (see `MeasurePlan`), the same for all ranks.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from fourmin.recipe.allreduces import ALL_REDUCES, NAMES, OUT_OF_PLACE
from fourmin.recipe.topology import Topology
from fourmin.recipe.tuning import fastest_table, hybrid_thresholds
from fourmin.results.statistics import coefficient_of_variation
from fourmin.training.comm import process_group
from fourmin.training.comm.base import AllReduce, CommunicationError, build_all_reduce
from fourmin.training.comm.process_group import WorkerPlace

_PERIOD = 251  # a prime: a part that lands in the wrong place does not fit by chance
_BLOCK = 1 << 22  # elements that are filled or compared at once
_LEAST_SAMPLES = 3
_LONG_ENOUGH = 0.04  # seconds: a sample repeats the call until it takes about so long
_MOST_CALLS = 40

MOST_OF_100, SOME = 100, 10
"""Samples that a 99th percentile, and that a coefficient of variation ask for."""
NEAR = 1.25
"""Algorithms within this factor of the fastest are measured again, and longer, for the table."""


@dataclass(frozen=True)
class MeasurePlan:
    """What to measure. ``sizes`` in bytes; ``iterations`` samples of each algorithm and size at
    most, fewer where those of a size would take longer than ``seconds``."""

    sizes: Sequence[int]
    device: str
    group_size: int = 0
    dtype: str = "float32"
    iterations: int = 20
    seconds: float = 20.0
    algorithm: str = ""
    """The only one that is measured, also out of place; nothing is tuned then."""
    timeout_seconds: float = 300.0


@dataclass(frozen=True)
class Row:
    """One algorithm at one size. Times in milliseconds, those of the slowest rank."""

    bytes: int
    algorithm: str
    milliseconds: float
    """Median of the samples."""
    least: float
    most: float
    samples: int
    calls_per_sample: int
    p99: float | None = None
    """Of calls that are alone, as is `cv`; None below `MOST_OF_100` samples."""
    cv: float | None = None
    """Coefficient of variation; None below `SOME` samples."""


class OutOfPlace:
    """Sums into another tensor, as torch lets it be done: a copy, and the sum in place."""

    def __init__(self, inner: AllReduce) -> None:
        self.name = OUT_OF_PLACE
        self._inner = inner
        self.sum = torch.empty(0)

    def all_reduce(self, tensor: Tensor) -> None:
        if self.sum.numel() != tensor.numel():
            self.sum = torch.empty_like(tensor)
        self._inner.all_reduce(self.sum.copy_(tensor))


class CheckedTensor:
    """A tensor of known content, refilled, summed and compared."""

    def __init__(self, nbytes: int, dtype: torch.dtype, place: WorkerPlace) -> None:
        self.tensor = torch.zeros(
            max(1, nbytes // torch.finfo(dtype).bits * 8), dtype=dtype, device=place.device
        )
        block = min(_BLOCK, self.tensor.numel()) + _PERIOD
        self._pattern = (torch.arange(block, device=place.device) % _PERIOD % 4 + 1).to(dtype)
        self._factor = place.rank % 3 + 1
        self._total = sum(rank % 3 + 1 for rank in range(place.world_size))
        # Small whole numbers are summed exactly, in any order, as long as the type holds the sum.
        epsilon = torch.finfo(dtype).eps
        exact = 4 * self._total <= 2 / epsilon
        self._tolerance = 0.0 if exact else (place.world_size - 1) * epsilon
        self._place = place

    def fill(self) -> None:
        for part, pattern in self._blocks():
            torch.mul(pattern, self._factor, out=part)

    def check(self, algorithm: str) -> None:
        """Raise CommunicationError, on every rank, unless every rank holds the sum."""
        wrong = torch.zeros(1, device=self._place.device)
        for part, pattern in self._blocks():
            exact = pattern.float() * self._total
            close = (part.float() - exact).abs() <= self._tolerance * exact
            wrong += (~close).sum()
        dist.all_reduce(wrong)
        if wrong.item():
            raise CommunicationError(
                f"{algorithm} gives a wrong sum for {self.tensor.numel()} elements",
                f"{int(wrong.item())} elements over all ranks are off by more than rounding",
                "do not train with it on this system, and report it",
            )

    def _blocks(self) -> list[tuple[Tensor, Tensor]]:
        return [
            (part, self._pattern[index % _PERIOD :][: part.numel()])
            for index, part in enumerate(torch.split(self.tensor, _BLOCK))
        ]


def measure(
    algorithms: Mapping[str, AllReduce], plan: MeasurePlan, place: WorkerPlace
) -> list[Row]:
    """Time ``algorithms`` at every size, taking turns, so that a disturbance meets them all.

    A sample is one call whose sum is then checked on every rank or, where that is too short to
    be timed well, several calls back to back after a checked one. Raises CommunicationError for
    a wrong sum.
    """
    rows: list[Row] = []
    for nbytes in plan.sizes:
        probe = CheckedTensor(nbytes, getattr(torch, plan.dtype), place)
        calls, samples = _extent(algorithms, plan, place, probe)
        times: dict[str, list[float]] = {name: [] for name in algorithms}
        alone: dict[str, list[float]] = {name: [] for name in algorithms}
        order = list(algorithms)
        for _ in range(samples):
            for name in order:
                seconds = _checked(algorithms[name], probe, place)
                alone[name].append(seconds)
                if calls[name] > 1:
                    seconds = _back_to_back(algorithms[name], probe, calls[name], place)
                times[name].append(seconds)
            order = [*order[1:], order[0]]
        for name in algorithms:
            slowest = _slowest([t * 1000 for t in times[name]], place)
            single = sorted(_slowest([t * 1000 for t in alone[name]], place))
            rows.append(
                Row(
                    bytes=nbytes,
                    algorithm=name,
                    milliseconds=statistics.median(slowest),
                    least=min(slowest),
                    most=max(slowest),
                    samples=samples,
                    calls_per_sample=calls[name],
                    p99=single[math.ceil(0.99 * samples) - 1] if samples >= MOST_OF_100 else None,
                    cv=coefficient_of_variation(single) if samples >= SOME else None,
                )
            )
    return rows


def tune_and_measure(plan: MeasurePlan, place: WorkerPlace) -> dict[str, Any]:
    """Measure what sums, make the tables of it, and measure what chooses by them as well."""
    topology = Topology.build(place.rank, place.world_size, place.ranks_per_node, plan.group_size)

    build = partial(
        build_all_reduce,
        topology=topology,
        timeout_seconds=plan.timeout_seconds,
        hybrid_threshold=0,
    )
    common = {
        "workers": place.world_size,
        "workers_per_node": place.ranks_per_node,
        "group_size": plan.group_size,
        "device": plan.device,
        "backend": dist.get_backend(),
        "dtype": plan.dtype,
        "torch": torch.__version__,
    }
    if plan.algorithm:
        only = build(plan.algorithm)
        rows = measure({only.name: only, OUT_OF_PLACE: OutOfPlace(only)}, plan, place)
        return {**common, "rows": [dataclasses.asdict(row) for row in rows]}
    algorithms = {name: build(name) for name, entry in ALL_REDUCES.items() if not entry.table}
    found = by_size(measure(algorithms, replace(plan, seconds=plan.seconds / 3), place))
    for nbytes, times in found.items():
        # What is far behind needs no better figure; the others share its time.
        near = {
            name: algorithms[name] for name in times if times[name] <= NEAR * min(times.values())
        }
        if len(near) > 1:
            again = measure(near, replace(plan, sizes=(nbytes,)), place)
            times.update(by_size(again)[nbytes])
    table, thresholds = fastest_table(found), hybrid_thresholds(found)
    large, threshold = next(iter(thresholds.items()))
    algorithms = {
        name: algorithms.get(name)
        or build(name, hybrid_threshold=threshold, hybrid_large=large, tuning=table)
        for name in NAMES
    }
    rows = measure(algorithms, plan, place)
    return {
        **common,
        "tuning": list(table),
        "hybrid_large": large,
        "hybrid_thresholds": thresholds,
        "rows": [dataclasses.asdict(row) for row in rows],
    }


def by_size(rows: Sequence[Row]) -> dict[int, dict[str, float]]:
    """Milliseconds by algorithm, by size."""
    found: dict[int, dict[str, float]] = {}
    for row in rows:
        found.setdefault(row.bytes, {})[row.algorithm] = row.milliseconds
    return found


def _checked(algorithm: AllReduce, probe: CheckedTensor, place: WorkerPlace) -> float:
    """Seconds of one call, from a common start; its sum is checked."""
    probe.fill()
    _synchronize(place)
    dist.barrier()
    start = time.perf_counter()
    algorithm.all_reduce(probe.tensor)
    _synchronize(place)
    seconds = time.perf_counter() - start
    if isinstance(algorithm, OutOfPlace):
        probe.tensor.copy_(algorithm.sum)
    probe.check(algorithm.name)
    return seconds


def _back_to_back(
    algorithm: AllReduce, probe: CheckedTensor, calls: int, place: WorkerPlace
) -> float:
    """Seconds of one of ``calls`` calls, as nccl-tests times them."""
    probe.tensor.zero_()  # sums of sums would overflow
    _synchronize(place)
    start = time.perf_counter()
    for _ in range(calls):
        algorithm.all_reduce(probe.tensor)
    _synchronize(place)
    return (time.perf_counter() - start) / calls


def _extent(
    algorithms: Mapping[str, AllReduce], plan: MeasurePlan, place: WorkerPlace, probe: CheckedTensor
) -> tuple[dict[str, int], int]:
    """Calls in a sample, by algorithm, and samples; the same on all ranks. Warms up as well."""
    for each in algorithms.values():
        _checked(each, probe, place)
    start = time.perf_counter()
    once = _slowest([_back_to_back(each, probe, 2, place) for each in algorithms.values()], place)
    for each in algorithms.values():
        _checked(each, probe, place)
    (passed,) = _slowest([time.perf_counter() - start], place)
    calls = {
        name: min(_MOST_CALLS, max(1, round(_LONG_ENOUGH / seconds)))
        for name, seconds in zip(algorithms, once, strict=True)
    }
    # A turn is a checked call of each, and the calls back to back where there are several.
    turn = passed - 2 * sum(once)
    turn += sum(
        calls[name] * seconds
        for name, seconds in zip(algorithms, once, strict=True)
        if calls[name] > 1
    )
    wanted = int(plan.seconds / max(turn, 1e-9))
    return calls, max(min(_LEAST_SAMPLES, plan.iterations), min(plan.iterations, wanted))


def _slowest(values: Sequence[float], place: WorkerPlace) -> list[float]:
    gathered = torch.tensor(values, dtype=torch.float64, device=place.device)
    dist.all_reduce(gathered, op=dist.ReduceOp.MAX)
    result: list[float] = gathered.tolist()
    return result


def _synchronize(place: WorkerPlace) -> None:
    if place.device.type == "cuda":
        torch.cuda.synchronize(place.device)


def main() -> None:
    """Measure as the plan in the first argument says; rank 0 writes the second."""
    plan = MeasurePlan(**json.loads(Path(sys.argv[1]).read_text()))
    place = process_group.init_process_group(plan.device, plan.timeout_seconds)
    try:
        result = tune_and_measure(plan, place)
        if place.rank == 0:
            Path(sys.argv[2]).write_text(json.dumps(result))
        dist.barrier()
    finally:
        process_group.destroy()


if __name__ == "__main__":
    main()
    # Without finalizers: threads of torch can still be there, and abort the process.
    os._exit(0)
