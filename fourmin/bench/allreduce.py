"""`fourmin bench allreduce`: start the measuring workers, and show what they found.

The workers are `fourmin.training.comm.measure`.

Bandwidths are those of nccl-tests: the algorithm bandwidth is bytes over time, the bus bandwidth
that times 2(p - 1)/p for p ranks, which is what each rank must at least send and receive, so that
it can be held against the speed of the hardware whatever p is.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fourmin.base.document import document
from fourmin.base.errors import FourminError, unknown
from fourmin.base.installation import install
from fourmin.base.processes import Scratch
from fourmin.launch.agent import Forge, agent_arguments
from fourmin.recipe.allreduces import ALL_REDUCES, NAMES
from fourmin.recipe.topology import check_group_size
from fourmin.recipe.tuning import fastest_table, shown_faster
from fourmin.report.charts.lines import log_chart
from fourmin.report.wording import number
from fourmin.system.hardware import memory_of, usable_gpus
from fourmin.system.software import installed_version

LEAST_SIZE = 1 << 10
ALONE = tuple(name for name, entry in ALL_REDUCES.items() if not entry.table)
"""Those that sum, and do not choose another."""
_KNOWN = {"device": ("auto", "cpu", "cuda"), "dtype": ("float32", "float16", "bfloat16")}
_MEMORY_FACTOR = 3.5
"""Bytes that a worker needs for each byte of the largest tensor: buffers, and the backend's."""


@dataclass(frozen=True)
class Options:
    """What is measured: on this machine, `workers` processes (0: one for each GPU or core)."""

    max_size: int = 1 << 30
    factor: int = 4
    iterations: int = 20
    seconds: float = 20.0
    workers: int = 0
    group_size: int = 0
    device: str = "auto"
    dtype: str = "float32"
    min_size: int = LEAST_SIZE
    algorithm: str = ""
    """The only one that is measured, in and out of place, as nccl-tests do; "": all, and tables."""


def format_size(nbytes: int) -> str:
    """Such as 64 KiB; plain bytes where no unit divides them."""
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if nbytes and nbytes % unit == 0:
            return f"{nbytes // unit} {name}"
    return f"{nbytes} B"


def sizes(max_size: int, factor: int, least: int = LEAST_SIZE) -> tuple[int, ...]:
    """`least`, then `factor` times as much each, up to `max_size`. Raises FourminError."""
    if factor < 2:
        raise FourminError(f"--factor {factor} does not grow", next_step="2 or more")
    if not 8 <= least <= max_size:
        raise FourminError(
            f"--max-size {max_size} is below the smallest size, {max(8, least)} bytes"
        )
    found = []
    size = least
    while size <= max_size:
        found.append(size)
        size *= factor
    return tuple(found)


def measure(options: Options) -> dict[str, Any]:
    """Run it; the content of the JSON file.

    Raises FourminError for options that cannot work here, or when the workers fail.
    """
    plan, workers = _plan(options)
    with Scratch() as folder:
        plan_path, result_path = folder / "plan.json", folder / "result.json"
        plan_path.write_text(json.dumps(plan))
        _run(workers, [str(plan_path), str(result_path)], folder)
        found = json.loads(result_path.read_text())
        found["tuning"] = fastest_table(shown_faster(found["rows"]))
        return with_bandwidths(found)


def with_bandwidths(result: Mapping[str, Any]) -> dict[str, Any]:
    """The workers' result, and the bandwidths of each row in GB/s (10^9 bytes a second)."""
    share = 2 * (result["workers"] - 1) / result["workers"]
    rows = [
        {
            **row,
            "algorithm_bandwidth": (speed := row["bytes"] / row["milliseconds"] / 1e6),
            "bus_bandwidth": speed * share,
            # A wrong sum ends the measurement; no row is left of it.
            "correct": True,
        }
        for row in result["rows"]
    ]
    return document("bench-allreduce", {**result, "rows": rows})


def table_lines(result: Mapping[str, Any]) -> list[str]:
    wide = max(map(len, NAMES)) + 1
    lines = [
        f"{result['workers']} workers ({result['backend']}, {result['device']}), groups of "
        f"{result['group_size'] or result['workers_per_node']}, {result['dtype']}; "
        "time of the slowest rank, a star the fastest of a size, bandwidths in GB/s",
        "",
        f"{'size':>9}  {'algorithm':<{wide}} {'median ms':>11} {'least':>10} {'most':>10}"
        f" {'CV':>6} {'p99':>9} {'algorithmic':>11} {'bus':>8}  sum",
    ]
    slower_first = sorted(
        result["rows"], key=lambda row: (row["milliseconds"], row["algorithm"]), reverse=True
    )
    fastest = {row["bytes"]: row["algorithm"] for row in slower_first}
    before = None
    for row in result["rows"]:
        size = "" if row["bytes"] == before else format_size(row["bytes"])
        before = row["bytes"]
        star = "*" if fastest[row["bytes"]] == row["algorithm"] else ""
        lines.append(
            f"{size:>9}  {row['algorithm'] + star:<{wide}} {row['milliseconds']:>11.3f}"
            f" {row['least']:>10.3f} {row['most']:>10.3f}"
            f" {number(row.get('cv'), '.1%'):>6} {number(row.get('p99'), '.3f'):>9}"
            f" {row['algorithm_bandwidth']:>11.3f} {row['bus_bandwidth']:>8.3f}"
            f"  {'ok' if row['correct'] else 'WRONG'}"
        )
    return [
        *lines,
        "",
        f"tuned: {', '.join(result['tuning'])}",
        f"hybrid: {result['hybrid_large']} from "
        f"{result['hybrid_thresholds'][result['hybrid_large']]} bytes on",
    ]


def chart(result: Mapping[str, Any]) -> str:
    """Bus bandwidth by size, a line for each algorithm, as SVG."""
    lines: dict[str, list[tuple[float, float]]] = {}
    for row in result["rows"]:
        lines.setdefault(row["algorithm"], []).append((row["bytes"], row["bus_bandwidth"]))
    return log_chart(
        f"All-reduce, {result['workers']} workers ({result['backend']}, {result['device']})",
        "size of the tensor",
        "bus bandwidth, GB/s",
        lines,
        {row["bytes"]: format_size(row["bytes"]) for row in result["rows"]},
    )


def _plan(options: Options) -> tuple[dict[str, Any], int]:
    if installed_version("torch") is None:
        raise FourminError("measuring needs torch, not installed here", "",
                           install("train"))  # fmt: skip
    for name, known in _KNOWN.items():
        if (value := getattr(options, name)) not in known:
            raise unknown(f"--{name} {value} is not known", value, known)
    gpus = usable_gpus()
    device = options.device if options.device != "auto" else ("cuda" if gpus else "cpu")
    most = gpus if device == "cuda" else len(os.sched_getaffinity(0))
    workers = options.workers or most
    if device == "cuda" and workers > gpus:
        raise FourminError(f"{workers} workers on GPUs, but {gpus} can be used here",
                           next_step=f"--procs {gpus}, or --device cpu")  # fmt: skip
    if workers < 2:
        raise FourminError(f"{workers} worker has nobody to sum with",
                           next_step="--procs 2, or more")  # fmt: skip
    check_group_size(options.group_size, workers, workers)
    if options.iterations < 1:
        raise FourminError(f"--iterations {options.iterations}: at least 1 is needed")
    if options.algorithm not in ("", *ALONE):
        raise unknown(f"no --algorithm {options.algorithm}", options.algorithm, ALONE)
    measured = sizes(options.max_size, options.factor, options.min_size)
    same = ("group_size", "dtype", "iterations", "seconds", "algorithm")
    plan = {name: getattr(options, name) for name in same} | {"sizes": measured, "device": device}
    if device == "cpu":
        _check_memory(measured[-1], workers)
    return plan, workers


def _check_memory(largest: int, workers: int) -> None:
    needed, available = _MEMORY_FACTOR * largest * workers / 2**30, memory_of("MemAvailable")
    if available is not None and needed > available:
        raise FourminError(
            f"{format_size(largest)} on {workers} workers needs about {needed:.1f} GiB",
            f"{available:.1f} GiB of memory are free here",
            "a smaller --max-size, such as 64MiB, or fewer --procs",
        )


def _run(workers: int, arguments: list[str], folder: Path) -> None:
    forge = Forge()
    agent = agent_arguments(workers, ["--standalone"], "fourmin.training.comm.measure")
    try:
        started = forge.spawn([*agent, *arguments], 1, folder, {})
        if started.wait():
            text = started.output().strip().splitlines()
            raise FourminError(
                "the measuring workers failed", "\n".join(text[-15:]), "see their output above"
            )
    finally:
        forge.close()
