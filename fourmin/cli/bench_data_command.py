"""`fourmin bench data`: images/s of reading, decoding, the pipeline, and training fed by it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer


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
    device: Annotated[str, typer.Option(help="auto, cuda or cpu.")] = "auto",
    precision: Annotated[
        str, typer.Option(help="auto (fp16 on a GPU, bf16 without), fp16, bf16 or fp32.")
    ] = "auto",
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
    from fourmin.bench.data import measure_and_report
    from fourmin.cli.output import stderr

    report = measure_and_report(
        data_dir=data_dir,
        preset=preset,
        loaders=tuple(loader or ()),
        batch_size=batch_size,
        device=device,
        precision=precision,
        decoder=decoder,
        step=step,
        threads=threads,
        decoded_cache=decoded_cache,
        seconds=seconds,
        repeats=repeats,
        say=stderr().print if sys.stderr.isatty() else lambda _line: None,
    )
    if as_json:
        sys.stdout.write(json.dumps(report.to_json(), indent=2) + "\n")
    else:
        sys.stdout.write(report.to_text())
