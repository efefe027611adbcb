"""`fourmin bench allreduce`: measures every all-reduce algorithm on this machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer


def allreduce(
    max_size: Annotated[str, typer.Option(metavar="SIZE", help="Largest tensor.")] = "1GiB",
    factor: Annotated[int, typer.Option(help="From one size to the next; the first is 1 KiB.")] = 4,
    iterations: Annotated[int, typer.Option(help="Samples of each size and algorithm.")] = 20,
    seconds: Annotated[
        float,
        typer.Option(help="Fewer samples where a size would last longer; each is measured twice."),
    ] = 20.0,
    procs: Annotated[int, typer.Option(help="Processes; 0: one for each GPU or core.")] = 0,
    group_size: Annotated[
        int, typer.Option(help="Processes in a group of the hierarchy; 0: all of them.")
    ] = 0,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    dtype: Annotated[str, typer.Option(help="float32, float16 or bfloat16.")] = "float32",
    output: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write JSON, for `fourmin run --tuning FILE`."),
    ] = None,
    chart: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write an SVG chart; with --output: beside it."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, not a table.")] = False,
) -> None:
    """Time every all-reduce algorithm by size, and make the table of `tuned`.

    Times, bandwidths as nccl-tests define them, and sums that are checked before each sample.
    """
    from fourmin.base.files import ensure_writable_folder, json_bytes
    from fourmin.bench.allreduce import Options, measure, parse_size, table_lines
    from fourmin.cli.output import stdout

    if output is not None and chart is None:
        chart = output.with_suffix(".svg")
    for path in filter(None, (output, chart)):
        ensure_writable_folder(path.parent, "folder of the measurement")
    result = measure(
        Options(
            max_size=parse_size(max_size),
            factor=factor,
            iterations=iterations,
            seconds=seconds,
            workers=procs,
            group_size=group_size,
            device=device,
            dtype=dtype,
        )
    )
    if output is not None:
        output.write_bytes(json_bytes(result))
    if chart is not None:
        chart.write_text(_chart(result), encoding="utf-8")
    console = stdout()
    if as_json:
        console.print(json.dumps(result))
        return
    for line in table_lines(result):
        console.print(line)
    for path in filter(None, (output, chart)):
        console.print(f"written: {path}")


def _chart(result: dict[str, Any]) -> str:
    from fourmin.bench.allreduce import format_size
    from fourmin.report.charts.lines import log_chart

    lines: dict[str, list[tuple[float, float]]] = {}
    for row in result["rows"]:
        lines.setdefault(row["algorithm"], []).append((row["bytes"], row["bus_bandwidth"]))
    ticks = {row["bytes"]: format_size(row["bytes"]) for row in result["rows"]}
    return log_chart(
        f"All-reduce, {result['workers']} workers ({result['backend']}, {result['device']})",
        "size of the tensor",
        "bus bandwidth, GB/s",
        lines,
        ticks,
    )
