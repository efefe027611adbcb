"""`fourmin bench`: how fast this machine is at what a run does."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

app = typer.Typer(help="Measure what this machine does.", no_args_is_help=True)


@app.callback()
def main() -> None:
    """Measure what this machine does."""


@app.command()
def step(
    preset: Annotated[
        str | None,
        typer.Option(
            help="Model, image size, optimizer of this preset. Default: resnet50-64k on a GPU, "
            "digits without one.",
            metavar="NAME",
        ),
    ] = None,
    batch_size: Annotated[
        list[int] | None,
        typer.Option(
            min=2, help="Images a step; may be repeated. Default: 256 on a GPU, 128 without."
        ),
    ] = None,
    peers: Annotated[
        str | None,
        typer.Option(
            help="Comma-separated, of eager-nchw, eager, compile and fast. Default: all on a GPU; "
            "eager-nchw and eager without one."
        ),
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cuda or cpu.")] = "auto",
    precision: Annotated[
        str, typer.Option(help="auto (fp16 on a GPU, bf16 without), fp16, bf16 or fp32.")
    ] = "auto",
    image_size: Annotated[
        int | None,
        typer.Option(min=16, help="Height and width in pixels; the preset's if left out."),
    ] = None,
    repeats: Annotated[int, typer.Option(min=3, help="Steps timed.")] = 20,
    warmup: Annotated[int, typer.Option(min=1, help="Steps before, not timed.")] = 5,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Threads on the CPU. Default: one a processor.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the report as JSON, with every time.")
    ] = False,
) -> None:
    """Time the training step against the machine's own ceilings and other ways to take it.

    Synthetic images that are on the device already, all steps in one process, medians. One GPU,
    or the CPU.
    """
    from fourmin.bench.step import measure_and_report
    from fourmin.cli.output import stderr

    report = measure_and_report(
        preset=preset,
        batch_sizes=tuple(batch_size or ()),
        peers=tuple(peers.split(",")) if peers else (),
        device=device,
        precision=precision,
        image_size=image_size,
        repeats=repeats,
        warmup=warmup,
        threads=threads,
        say=stderr().print if sys.stderr.isatty() else lambda _line: None,
    )
    if as_json:
        sys.stdout.write(json.dumps(report.to_json(), indent=2) + "\n")
    else:
        sys.stdout.write(report.to_text())
