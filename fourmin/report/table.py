"""The default format: tables for a terminal, wide content wrapped to its width."""

from __future__ import annotations

import io
import os
import sys

from rich import box
from rich.console import Console
from rich.table import Table

from fourmin.base.text import printable
from fourmin.report.columns import DETAILS, TEXT, Column, filled
from fourmin.report.model import Comparison, Result
from fourmin.report.pair_wording import conclusion, difference_rows, headline
from fourmin.report.side_by_side import SideBySide
from fourmin.report.wording import NONE, apart, one_line, tables

LEAST_WIDTH = 80
USUAL_WIDTH = 120
"""Of a file or a pipe."""


def render(comparison: Comparison, width: int | None = None) -> str:
    """The tables as text; `width` in columns, that of the terminal without."""
    console = _console(width)
    if not comparison.results:
        console.print("no benchmark result")
    for place, (heading, results) in enumerate(tables(comparison.results)):
        if place:
            console.print()
        console.print(heading)
        narrow = console.width < USUAL_WIDTH
        console.print(_table(results, [c for c in TEXT if not (narrow and c.wide)]))
        beside = [c for c in TEXT if narrow and c.wide and c.name != "scaling"]
        for result in results:
            told = ((column.name, column.say(result)) for column in (*beside, *DETAILS))
            details = "; ".join(f"{name} {text}" for name, text in told if text != NONE)
            console.print(f"  {printable(result.submitter)}, {printable(result.system)}: {details}")
    for heading, others in apart(comparison):
        console.print(f"\n{heading}:")
        for result in others:
            console.print(f"  {one_line(result)}")
    console.print(f"\nruleset {comparison.ruleset}")
    return _text(console)


def render_pair(pair: SideBySide, width: int | None = None) -> str:
    console = _console(width)
    for line in (headline("A", pair.a), headline("B", pair.b), "", *conclusion(pair)):
        console.print(line)
    if not pair.differences:
        console.print("\nno difference in hyperparameters, software or hardware is known")
        return _text(console)
    table = _new_table()
    for name in ("", "name", "A", "B"):
        table.add_column(name, overflow="fold")
    for row in difference_rows(pair):
        table.add_row(*row)
    console.print("\nwhat differs")
    console.print(table)
    return _text(console)


def _new_table() -> Table:
    # Without lines between the columns, eleven of them fit into a common terminal.
    return Table(box=box.SIMPLE_HEAD, pad_edge=False)


def _console(width: int | None) -> Console:
    return Console(
        file=io.StringIO(),
        width=width or _width(),
        markup=False,
        highlight=False,
        emoji=False,
    )


def _width() -> int:
    """That of the terminal; of a file or a pipe that which `COLUMNS` asks for, or the usual one."""
    known = sys.stdout.isatty() or "COLUMNS" in os.environ
    return max(LEAST_WIDTH, Console().width) if known else USUAL_WIDTH


def _text(console: Console) -> str:
    text: str = console.file.getvalue()  # type: ignore[attr-defined]
    return "\n".join(line.rstrip() for line in text.split("\n"))


def _table(results: list[Result], all_columns: list[Column]) -> Table:
    columns, rows = filled(all_columns, results)
    table = _new_table()
    for column in columns:
        table.add_column(column.name, overflow="fold", **column.terminal)
    for row in rows:
        table.add_row(*row)
    return table
