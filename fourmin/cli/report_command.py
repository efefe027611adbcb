"""`fourmin report`: compares campaigns and submissions."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from fourmin.cli import options


def report(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="PATH", help="Campaigns, or folders of them; default: submissions and results."
        ),
    ] = None,
    output_format: Annotated[
        str,
        typer.Option(
            "--format", help="table, markdown, csv, json, html; site; svg or png: a chart."
        ),
    ] = "table",
    output: Annotated[
        Path | None,
        options.output(help="Write to this file (site: folder), not to standard output."),
    ] = None,
    chart: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Alone (svg, png, html): time (default), chips, scaling, accuracy or exposed.",
        ),
    ] = None,
    pair: Annotated[
        tuple[str, str] | None,
        typer.Option(
            "--compare",
            metavar="A B",
            help="Two results, by path or a folder's name: do they differ, and in what?",
        ),
    ] = None,
    slower: Annotated[
        str | None,
        typer.Option(
            "--fail-if-slower",
            metavar="P%",
            help="With --compare: exit with 1 where the runs show that B is more than P% slower "
            "than A, or misses the target as A did not; formats github and junit, too.",
        ),
    ] = None,
    of: Annotated[
        list[str] | None,
        typer.Option(
            metavar="time|rate|epochs",
            help="What --fail-if-slower judges; may be repeated. Default: rate and epochs.",
        ),
    ] = None,
    beside: Annotated[
        list[str] | None,
        typer.Option("--with", metavar="published", help="Show what others published, too."),
    ] = None,
    price: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Stated prices of systems, for the cost to train."),
    ] = None,
    verbose: options.Verbose = False,
) -> None:
    """Compare benchmark results: every run, the spread, and what the checks found.

    An invalid result is shown as such; the exit code is 0 all the same, but for --fail-if-slower.
    """
    import sys

    from fourmin.base.errors import FourminError
    from fourmin.base.files import ensure_writable_folder, write_output
    from fourmin.report import (
        CHART_FORMATS,
        GATE_FORMATS,
        SITE,
        load_chart_renderer,
        load_pair_renderer,
        load_renderer,
        load_site,
    )
    from fourmin.report.collect import collect, collect_all
    from fourmin.report.gate import Asked, gate_verdict
    from fourmin.report.model import PUBLISHED
    from fourmin.report.prices import load_prices
    from fourmin.report.side_by_side import put_side_by_side
    from fourmin.ruleset import CURRENT

    for name in beside or ():
        if name != PUBLISHED:
            raise FourminError(
                f"nothing to show --with {name}",
                next_step=f"known: {PUBLISHED}; trees of MLPerf and DAWNBench are given by path",
            )
    if output_format == SITE:
        if output is None or pair is not None or chart is not None or slower is not None:
            raise FourminError(
                "a site has a folder, and all results", next_step="--format site --output DIR alone"
            )
        ensure_writable_folder(output, "folder of the site")
    else:
        options.require_output_file(output)
    prices = () if price is None else load_prices(price)
    alone = pair is not None or bool(beside)
    looked_in = paths or options.usual_folders("report on", needed=not alone)
    together = partial(collect, looked_in, published=bool(beside), prices=prices)
    content: str | bytes
    compared = None
    if slower is None and (of or output_format in GATE_FORMATS):
        raise FourminError("--of and --format github or junit need --fail-if-slower")
    if pair is not None:
        if chart is not None:
            raise FourminError("--compare has no charts", next_step="leave out --chart")
        asked = None if slower is None else Asked.parse(slower, of or ())
        render_pair = load_pair_renderer(output_format)
        named = [Path(name) for name in pair if Path(name).exists()]
        # Where both are paths nothing else needs to be read; a name is looked for in the others.
        places = [*named, *(() if len(named) == len(pair) else looked_in)]
        found = collect_all(places, published=bool(beside), prices=prices)
        compared = put_side_by_side(CURRENT, found, *pair, asked)
        content = render_pair(compared)
    elif slower is not None:
        raise FourminError(
            "--fail-if-slower needs --compare", next_step="name the two results: --compare A B"
        )
    elif output_format == SITE and output is not None:
        for name, text in load_site()(together()):
            (output / name).parent.mkdir(exist_ok=True)
            write_output(output / name, text.encode())
        return
    elif chart is not None or output_format in CHART_FORMATS:
        content = load_chart_renderer(output_format, chart or "time")(together())
    else:
        content = load_renderer(output_format, verbose=verbose)(together())
    if output is not None:
        write_output(output, content.encode() if isinstance(content, str) else content)
    elif isinstance(content, str):
        sys.stdout.write(content)
    elif sys.stdout.isatty():
        raise FourminError("a terminal shows no pictures", next_step="name a file with --output")
    else:
        sys.stdout.buffer.write(content)
    if compared is not None and compared.gate is not None and compared.gate.failed:
        sys.stderr.write(f"{gate_verdict(compared.gate)}\n")
        raise typer.Exit(1)
