"""`fourmin bench`: how fast this machine is at what a run does."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from fourmin.base.errors import FourminError
from fourmin.base.installation import install
from fourmin.base.mishaps import told
from fourmin.base.values import parse_size
from fourmin.cli import options
from fourmin.cli.panels import App
from fourmin.recipe.configuration import FIELDS
from fourmin.recipe.settings import from_text

app = App(help="Measure what this machine does.")

Device = Annotated[str, options.one_of("auto", *FIELDS["device"].choices, help="Where.")]
Precision = Annotated[
    str,
    options.one_of(
        "auto",
        *FIELDS["precision"].choices,
        help="auto: fp16 on a GPU, on a CPU bf16 where it has instructions for it, or fp32.",
    ),
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
        list[str] | None,
        typer.Option(
            help="Of plain, compile, max-autotune, eager, fast, recompute and deterministic; may "
            "be repeated, or have commas. Default: the first five on a GPU; plain and eager "
            "without one."
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
    optimizers: Annotated[
        list[str] | None,
        options.one_of(
            *FIELDS["optimizer"].choices,
            help="Time the update by these, too; may be repeated: state, and bytes sent.",
        ),
    ] = None,
    as_json: options.Json = False,
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
        peers=tuple(",".join(peers).split(",")) if peers else (),
        device=device,
        precision=precision,
        image_size=image_size,
        repeats=repeats,
        warmup=warmup,
        threads=threads,
        optimizers=tuple(optimizers or ()),
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
        options.one_of(*FIELDS["loader"].choices, help="May be repeated. Default: all."),
    ] = None,
    batch_size: Annotated[
        int | None,
        typer.Option(min=2, help="Images a batch. Default: 256 on a GPU, 64 without."),
    ] = None,
    device: Device = "auto",
    precision: Precision = "auto",
    decoder: Annotated[
        str | None, options.of_field("decoder", more=" Default: the preset's.")
    ] = None,
    step: Annotated[str | None, options.of_field("step", more=" Default: the preset's.")] = None,
    threads: Annotated[
        int | None, typer.Option(min=1, help="The loader's threads. Default: the preset's.")
    ] = None,
    decoded_cache: Annotated[
        str,
        typer.Option(
            metavar="SIZE",
            help="Measure pipeline and training also with decoded images kept in memory, after an "
            "epoch that is not timed.",
        ),
    ] = "0",
    seconds: Annotated[
        float, typer.Option(min=0.01, callback=options.finite, help="Length of a window.")
    ] = 2.0,
    repeats: Annotated[int, typer.Option(min=1, help="Windows of each measurement.")] = 3,
    as_json: options.Json = False,
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
            "decoded_cache": from_text("decoded_cache", decoded_cache),
        },
    )


@app.command()
def allreduce(
    max_size: Annotated[str, typer.Option(metavar="SIZE", help="Largest tensor.")] = "1GiB",
    factor: Annotated[int, typer.Option(help="From one size to the next; the first is 1 KiB.")] = 4,
    iterations: Annotated[int, typer.Option(help="Samples of each size and algorithm.")] = 20,
    seconds: Annotated[
        float,
        typer.Option(
            callback=options.finite,
            help="Fewer samples where a size would last longer; each is measured twice.",
        ),
    ] = 20.0,
    procs: Annotated[int, typer.Option(help="Processes; 0: one for each GPU or core.")] = 0,
    group_size: Annotated[
        int, typer.Option(help="Processes in a group of the hierarchy; 0: all of them.")
    ] = 0,
    device: Device = "auto",
    dtype: Annotated[
        str, options.one_of("float32", "float16", "bfloat16", help="Of the tensors.")
    ] = "float32",
    output_format: Annotated[
        str,
        options.one_of(
            "table",
            "nccl-tests",
            names=("--format",),
            help="nccl-tests: the columns of all_reduce_perf, from 8 bytes, of one algorithm.",
        ),
    ] = "table",
    algorithm: Annotated[
        str, typer.Option(metavar="NAME", help="The one that --format nccl-tests measures.")
    ] = "native",
    output: Annotated[
        Path | None,
        options.output(metavar="FILE", help="Write JSON, for `fourmin run --tuning FILE`."),
    ] = None,
    chart: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write an SVG chart; with --output: beside it."),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Time every all-reduce algorithm by size, and make the table of `tuned`.

    Times, bandwidths as nccl-tests define them, and sums that are checked before each sample.
    """
    from fourmin.base.files import json_bytes, require_writable_file, write_output
    from fourmin.bench import allreduce as bench
    from fourmin.bench.nccl_tests import nccl_tests_lines
    from fourmin.cli.output import print_json, say, working

    alone = output_format == "nccl-tests"
    if alone and (output is not None or chart is not None):
        raise FourminError(
            "--format nccl-tests measures one algorithm, which makes no table of tuned"
        )
    if output is not None and chart is None:
        chart = output.with_suffix(".svg")
    written = [path for path in (output, chart) if path is not None]
    for path in written:
        require_writable_file(path, "measurement")
    size = parse_size(max_size)
    asked = bench.Options(
        size, factor, iterations, seconds, procs, group_size, device, dtype,
        *((8, algorithm) if alone else ()),
    )  # fmt: skip
    with working(f"measuring {algorithm if alone else 'every all-reduce'} by size"):
        result = bench.measure(asked)
    if output is not None:
        write_output(output, json_bytes(result))
    if chart is not None:
        write_output(chart, bench.chart(result).encode())
    lines = nccl_tests_lines(result) if alone else bench.table_lines(result)
    lines = [*lines, *(f"written: {path}" for path in written)]
    if as_json:
        print_json("bench-allreduce", result, indent=None)
    else:
        say(lines)


@app.command()
def ab(
    a: Annotated[str, typer.Option(metavar="OPTIONS", help="A's options, in one argument.")] = "",
    b: Annotated[str, typer.Option(metavar="OPTIONS", help="B's options, likewise.")] = "",
    what: Annotated[
        str, typer.Option(help="run (practice), or the benchmark step, data or allreduce.")
    ] = "run",
    python: Annotated[
        list[str] | None,
        typer.Option(metavar="PATH", help="Interpreter of both; given twice, A's and then B's."),
    ] = None,
    margin: Annotated[
        float,
        typer.Option(
            min=0.01, metavar="PERCENT", callback=options.finite, help="What may count as equal."
        ),
    ] = 5.0,
    minutes: Annotated[
        float, typer.Option(min=0, callback=options.finite, help="Start no pair after so long.")
    ] = 60.0,
    as_json: options.Json = False,
) -> None:
    """Measure two environments, presets or settings in turns: is B slower, faster, or equivalent?

    At least 10 pairs, until the intervals are narrow enough for the margin, or to the limit. Each
    quantity is judged for itself: of runs, time to the target, steady rate and epochs.
    """
    from fourmin.bench import ab as bench
    from fourmin.cli.output import print_json, say, stderr

    tell = stderr().print if sys.stderr.isatty() else lambda _line: None
    found, judged = bench.measure(what, (a, b), python or (), margin / 100, minutes, tell)
    if as_json:
        print_json("bench-ab", found)
    else:
        say(bench.to_text(found, judged).splitlines())


def _measure(name: str, as_json: bool, **options: Any) -> None:
    """Print what the microbenchmark of a name finds. Raises FourminError where torch is missing."""
    from fourmin.cli.output import print_json, stderr

    with told("the training stack is not installed", install("train"), ImportError):
        benchmark = importlib.import_module(f"fourmin.bench.{name}")
    say = stderr().print if sys.stderr.isatty() else lambda _line: None
    report = benchmark.measure(**options, say=say)
    if as_json:
        print_json(f"bench-{name}", report.to_json())
    else:
        sys.stdout.write(report.to_text())
