"""`fourmin bench`: how fast this machine is at what a run does."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from fourmin.base.errors import FourminError
from fourmin.cli.output import stderr

app = typer.Typer(help="Measure what this machine does.", no_args_is_help=True)

Device = Annotated[str, typer.Option(help="auto, cuda or cpu.")]
Precision = Annotated[
    str, typer.Option(help="auto (fp16 on a GPU, bf16 without), fp16, bf16 or fp32.")
]


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
    device: Device = "auto",
    precision: Precision = "auto",
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
    _measure(
        "step",
        as_json,
        preset=preset,
        batch_sizes=tuple(batch_size or ()),
        peers=tuple(peers.split(",")) if peers else (),
        device=device,
        precision=precision,
        image_size=image_size,
        repeats=repeats,
        warmup=warmup,
        threads=threads,
    )


@app.command()
def data(
    data_dir: Annotated[
        Path | None,
        typer.Option(help="A tree of images or shards, with its manifest. Default: the digits."),
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(
            help="Model, image size, augmentation of this preset. Default: digits, and "
            "resnet50-256 with --data-dir.",
            metavar="NAME",
        ),
    ] = None,
    loader: Annotated[
        list[str] | None,
        typer.Option(help="dali or torchvision; may be repeated. Default: both."),
    ] = None,
    batch_size: Annotated[
        int | None,
        typer.Option(min=2, help="Images a batch. Default: 256 on a GPU, 64 without."),
    ] = None,
    device: Device = "auto",
    precision: Precision = "auto",
    decoder: Annotated[
        str | None, typer.Option(help="cpu or mixed: where DALI decodes. Default: the preset's.")
    ] = None,
    step: Annotated[str | None, typer.Option(help="eager or fast. Default: the preset's.")] = None,
    threads: Annotated[
        int | None, typer.Option(min=1, help="The loader's threads. Default: the preset's.")
    ] = None,
    decoded_cache: Annotated[
        int,
        typer.Option(
            min=0,
            metavar="MIB",
            help="Measure pipeline and training also with decoded images kept in memory, after an "
            "epoch that is not timed.",
        ),
    ] = 0,
    seconds: Annotated[float, typer.Option(min=0.01, help="Length of a window.")] = 2.0,
    repeats: Annotated[int, typer.Option(min=1, help="Windows of each measurement.")] = 3,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the report as JSON, with every window.")
    ] = False,
) -> None:
    """Time what feeds a worker, part by part, and the training step on it against synthetic images.

    One worker: one GPU, or the CPU. Medians of windows; those of training take turns.
    """
    _measure(
        "data",
        as_json,
        data_dir=data_dir,
        preset=preset,
        loaders=tuple(loader or ()),
        seconds=seconds,
        repeats=repeats,
        changes={
            "device": device,
            "precision": precision,
            "decoder": decoder,
            "global_batch_size": batch_size,
            "step": step,
            "loader_threads": threads,
            "decoded_cache": decoded_cache,
        },
    )


def _measure(name: str, as_json: bool, **options: Any) -> None:
    """Print what the microbenchmark of a name finds. Raises FourminError where torch is missing."""
    try:
        benchmark = importlib.import_module(f"fourmin.bench.{name}")
    except ImportError as error:
        raise FourminError(
            "the training stack is not installed", str(error), "pip install 'fourmin[train]'"
        ) from None
    say = stderr().print if sys.stderr.isatty() else lambda _line: None
    report = benchmark.measure(**options, say=say)
    text = json.dumps(report.to_json(), indent=2) + "\n" if as_json else report.to_text()
    sys.stdout.write(text)
