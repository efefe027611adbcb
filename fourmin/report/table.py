"""The default format: tables for a terminal, wide content wrapped to its width."""

from __future__ import annotations

import io
from itertools import groupby

from rich import box
from rich.console import Console
from rich.table import Table

from fourmin.base.text import printable
from fourmin.report.model import Comparison, Result
from fourmin.report.side_by_side import SideBySide
from fourmin.report.verdict_wording import conclusion, difference_cell, headline
from fourmin.report.wording import COLUMNS, DETAILS, NONE, apart, one_line, same_table, title

UNBROKEN = {"95% interval", "time", "epochs/RCP"}
NAMES = {"submitter", "system"}
LONGEST_NAME = 24
"""Columns of the terminal that a name may take; the rest goes on in the next line."""
RIGHT = {"chips", "batch", "time", "CV", "epochs/RCP", "images/s", "scaling"}
LEAST_WIDTH = 120


def render(comparison: Comparison, width: int | None = None) -> str:
    """The tables as text; `width` in columns, that of the terminal without."""
    console = _console(width)
    if not comparison.results:
        console.print("no benchmark result")
    for number, (_, group) in enumerate(groupby(comparison.results, key=same_table)):
        results = list(group)
        if number:
            console.print()
        console.print(title(results[0]))
        console.print(_table(results))
        for result in results:
            told = ((name, say(result)) for name, say in DETAILS)
            details = "; ".join(f"{name} {text}" for name, text in told if text != NONE)
            console.print(f"  {printable(result.submitter)}, {printable(result.system)}: {details}")
    for heading, others in apart(comparison):
        console.print(f"\n{heading}:")
        for result in others:
            console.print(f"  {one_line(result)}")
    console.print(f"\nruleset {comparison.ruleset}")
    return _text(console)


def render_pair(pair: SideBySide, width: int | None = None) -> str:
    """Two results, what their times say, and every difference."""
    console = _console(width)
    for line in (headline("A", pair.a), headline("B", pair.b), "", *conclusion(pair)):
        console.print(line)
    if not pair.differences:
        console.print("\nno difference in hyperparameters, software or hardware is known")
        return _text(console)
    table = _new_table()
    for name in ("", "name", "A", "B"):
        table.add_column(name, overflow="fold")
    for found in pair.differences:
        a, b = difference_cell(found.a), difference_cell(found.b)
        table.add_row(found.area, printable(found.name), a, b)
    console.print("\nwhat differs")
    console.print(table)
    return _text(console)


def _new_table() -> Table:
    # Without lines between the columns, eleven of them fit into a common terminal.
    return Table(box=box.SIMPLE_HEAD, pad_edge=False)


def _console(width: int | None) -> Console:
    return Console(
        file=io.StringIO(),
        width=width or max(LEAST_WIDTH, Console().width),
        markup=False,
        highlight=False,
        emoji=False,
    )


def _text(console: Console) -> str:
    text: str = console.file.getvalue()  # type: ignore[attr-defined]
    return "\n".join(line.rstrip() for line in text.split("\n"))


def _table(results: list[Result]) -> Table:
    shown = [column for column in COLUMNS if any(column[1](result) != NONE for result in results)]
    table = _new_table()
    for name, _ in shown:
        table.add_column(
            name,
            justify="right" if name in RIGHT else "left",
            no_wrap=name in UNBROKEN,
            # Somebody's long name must not push the numbers out of the table.
            max_width=LONGEST_NAME if name in NAMES else None,
            overflow="fold",
        )
    for result in results:
        table.add_row(*(say(result) for _, say in shown))
    return table
