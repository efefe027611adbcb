"""`fourmin data`: verify a dataset and write its manifest."""

from __future__ import annotations

import sys
from enum import Enum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fourmin.cli import options
from fourmin.cli.output import print_json
from fourmin.cli.panels import App

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.progress import Progress as Bar

    from fourmin.datasets.pool import Progress
    from fourmin.datasets.prepare import PreparedData
    from fourmin.datasets.report import CheckReport, Known

app = App(help="Write or verify a dataset and its manifest.")

NAMES_SHOWN = 20

Dest = Annotated[Path, typer.Argument(metavar="DIR", help="The folder to write.")]
Workers = Annotated[
    int | None, typer.Option(min=1, help="Processes that work. Default: one a core.")
]


@app.callback()
def main() -> None:
    """Write or verify a dataset and its manifest."""


@app.command()
def check(
    data_dir: Annotated[
        Path,
        typer.Argument(metavar="DIR", help="The folder that holds train/ and val/, or shards."),
    ],
    benchmark: Annotated[
        str | None,
        typer.Option(help="Compare the tree with this benchmark's dataset.", metavar="NAME"),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Processes that decode. Default: one a core.")
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Read, hash and decode every image of DIR once, and write its manifest when it is clean.

    Shards have their manifest already: every byte of them is compared with it.
    Exit code 0: the tree is clean (and is the benchmark's); 2: it is not.
    """
    from fourmin.datasets.check import check_shards, check_tree
    from fourmin.datasets.report import compare_with_benchmark
    from fourmin.datasets.shards import holds_shards

    known = _known(benchmark)
    examine = check_shards if holds_shards(data_dir) else check_tree
    with _bar(as_json) as bar:
        report = examine(data_dir, workers, _follow(bar, "checking"), known=known)
    differences = (
        [] if report.manifest is None else compare_with_benchmark(report.manifest, known.expected)
    )
    if as_json:
        told = report.to_json() | {"benchmark": benchmark, "differences": differences}
        print_json("data-check", told, indent=None)
    else:
        _render(report, benchmark, differences)
    if report.problems or differences:
        raise typer.Exit(2)


@app.command()
def prepare(
    sources: Annotated[
        list[Path],
        typer.Argument(
            metavar="SOURCE",
            help="What there is of the dataset: archives, folders, parquet, TFRecord, labels.",
        ),
    ],
    dest: Dest,
    tree: Annotated[
        bool, typer.Option("--tree", help="Write DIR/<split>/<class>/<image> instead of shards.")
    ] = False,
    shard_size: Annotated[
        int, typer.Option(min=1, metavar="MIB", help="Largest size of a shard in MiB.")
    ] = 256,
    workers: Workers = None,
    as_json: options.Json = False,
) -> None:
    """Write a dataset, in whatever form it is, as tar shards with an index (or as a tree).

    Forms: the official archives of ImageNet with the devkit; folders of classes; a flat val with
    the devkit or a CSV of labels; Kaggle's folders; parquet; WebDataset; TFRecord; Tiny ImageNet's,
    CIFAR-10's and Fashion-MNIST's files. Bytes of images are never changed. Run it again after a
    kill: what was read or written is kept.
    """
    from fourmin.datasets.fashion_mnist import is_source
    from fourmin.datasets.prepare import prepare as write
    from fourmin.datasets.prepare import prepare_fashion_mnist

    with _bar(as_json) as bar:
        if len(sources) == 1 and is_source(sources[0]):
            done = prepare_fashion_mnist(sources[0], dest, _follow(bar, "writing"))
        else:
            done = write(
                sources,
                dest,
                tree=tree,
                shard_bytes=shard_size << 20,
                workers=workers,
                stage=partial(_follow, bar),
                say=(lambda _: None) if as_json else print,
                known=_known(None),
            )
    _tell("data-prepare", done, as_json)


class Generated(str, Enum):
    """What `fourmin data generate` makes."""

    FRACTALS = "fractals"


@app.command()
def generate(
    dataset: Annotated[Generated, typer.Argument(help="The dataset.")],
    dest: Dest,
    classes: Annotated[int, typer.Option(min=1, max=10_000, help="Classes: the first ones.")] = 100,
    train: Annotated[
        int, typer.Option(min=1, max=100_000, help="Training images a class: the first ones.")
    ] = 1300,
    val: Annotated[
        int, typer.Option(min=1, max=100_000, help="Validation images a class: the first ones.")
    ] = 50,
    workers: Workers = None,
    as_json: options.Json = False,
) -> None:
    """Make a dataset of ImageNet's shape from nothing, as tar shards with an index.

    fractals: 100 classes of figures, 1,300 training and 50 validation JPEGs each, about 500x375
    pixels and 112 kB (15.3 GB in all), the same bytes on every machine. Other numbers of classes or
    images are another dataset, of the same images. What a kill left is written anew.
    """
    from fourmin.datasets.generate import Size, generate_fractals

    with _bar(as_json) as bar:
        size, progress = Size(classes, train, val), _follow(bar, "writing")
        done = generate_fractals(dest, size, workers, progress)
    _tell("data-generate", done, as_json)


def _tell(kind: str, done: PreparedData, as_json: bool) -> None:
    if as_json:
        print_json(kind, done.to_json(), indent=None)
        return
    kept = f" ({done.kept:,} were there already)" if done.kept else ""
    shards = f"{done.shards:,} shards{kept}, " if done.shards else ""
    sys.stdout.write(
        f"{done.folder}: {shards}{done.images:,} images, {done.bytes / 1e9:,.3f} GB in "
        f"{done.seconds:,.1f} s\n"
    )
    sys.stdout.writelines(f"{name} digest {one}\n" for name, one in done.digests.items())


def _known(benchmark: str | None) -> Known:
    """The datasets of the ruleset, and that of `benchmark`."""
    from fourmin.datasets.report import Known
    from fourmin.ruleset import load_ruleset

    rules = load_ruleset()
    expected = {} if benchmark is None else rules.benchmark(benchmark).dataset
    return Known(expected, [rules.benchmark(name).dataset for name in rules.benchmark_names()])


def _bar(as_json: bool) -> Bar:
    """A progress bar with images a second and the time left, or nothing at all."""
    from rich import progress
    from rich.console import Console

    console = Console(stderr=True)
    return progress.Progress(
        "{task.description}",
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        "{task.fields[rate]} images/s, time left",
        progress.TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=as_json or not console.is_terminal,
    )


def _follow(bar: Bar, doing: str) -> Progress:
    """Begin anew on the bar, with this work; what its progress is told to."""
    for before in bar.task_ids:
        bar.remove_task(before)
    task = bar.add_task(doing, total=None, rate="-")

    def update(done: int, total: int) -> None:
        speed = bar.tasks[0].speed
        bar.update(task, completed=done, total=total, rate=f"{speed:,.0f}" if speed else "-")

    return update


def _render(report: CheckReport, benchmark: str | None, differences: list[str]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from fourmin.datasets.manifest import BY_NAME

    console = Console()
    table = Table(show_header=False, box=None)
    table.add_column(no_wrap=True)
    # A digest is of no use without its end.
    table.add_column(overflow="fold")
    rows = [
        ("folder", escape(str(report.data_dir))),
        ("training images", f"{report.images['train']:,}"),
        ("validation images", f"{report.images['val']:,}"),
        ("classes", f"{report.classes:,}"),
        *([("shards", f"{report.shards:,}")] if report.shards else []),
        ("size", f"{report.total_bytes / 1e9:,.3f} GB"),
        ("time", _pace(report)),
    ]
    for note in report.notes.values():
        names = ", ".join(escape(name) for name in note.examples)
        more = ", ..." if note.count > len(note.examples) else ""
        rows.append(("note", f"{note.count:,} {note.text}: {names}{more}"))
    if report.manifest is not None:
        rows += [
            ("manifest", escape(str(report.manifest_path))),
            ("train digest", report.manifest.digest("train")),
            ("val digest", report.manifest.digest("val")),
            *((f"{name} pin", pin) for name, pin in report.manifest.pins.items()),
            ("order", f"by {report.manifest.about.get('order', BY_NAME)}"),
        ]
        if claims := report.manifest.about.get("claims"):
            rows.append(("claims", escape(str(claims))))
    for name, value in rows:
        table.add_row(name, value)
    console.print(table)
    _render_trouble(report, benchmark, differences, lambda text: console.print(escape(text)))


def _pace(report: CheckReport) -> str:
    count = sum(report.images.values())
    return f"{report.seconds:,.1f} s ({count / max(report.seconds, 1e-9):,.0f} images/s)"


def _render_trouble(
    report: CheckReport,
    benchmark: str | None,
    differences: list[str],
    say: Callable[[str], None],
) -> None:
    if report.problems:
        say(f"\nNo manifest was written: {len(report.problems):,} problems.")
        for problem in report.problems[:NAMES_SHOWN]:
            say(f"  {problem.path}: {problem.reason}")
        if len(report.problems) > NAMES_SHOWN:
            say(f"  and {len(report.problems) - NAMES_SHOWN:,} more (all of them with --json)")
        say("Put these right, or fetch the files again, then run the check again.")
        return
    if differences:
        say(f"\nThe tree is readable, but it is not the dataset of {benchmark}:")
        for difference in differences:
            say(f"  {difference}")
    elif benchmark is not None:
        say(f"\nThe tree is the dataset of {benchmark}, as far as the benchmark states it.")
    else:
        say("\n".join(["\nThe tree is clean.", *report.beside_official()]))
