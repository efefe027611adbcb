"""The default format: tables for a terminal, wide content wrapped to its width."""

from __future__ import annotations

import io
from itertools import groupby

from rich.console import Console
from rich.table import Table

from fourmin.report.model import Comparison, Result
from fourmin.report.wording import COLUMNS, DETAILS, one_line, same_table, title
from fourmin.text import printable

UNBROKEN = {"95% interval", "time", "submitter"}
NAMES = {"submitter", "system"}
LONGEST_NAME = 24
"""Columns of the terminal that a name may take; the rest goes on in the next line."""
RIGHT = {"chips", "batch", "time", "CV", "epochs", "images/s", "scaling"}


def render(comparison: Comparison, width: int | None = None) -> str:
    """The tables as text; `width` in columns, that of the terminal without."""
    console = Console(
        file=io.StringIO(),
        width=width or max(110, Console().width),
        markup=False,
        highlight=False,
        emoji=False,
    )
    if not comparison.results:
        console.print("no benchmark result")
    for _, group in groupby(comparison.results, key=same_table):
        results = list(group)
        console.print(_table(results))
        for result in results:
            details = "; ".join(f"{name} {say(result)}" for name, say in DETAILS)
            console.print(f"  {printable(result.submitter)}, {printable(result.system)}: {details}")
    for heading, others in (
        ("failed, unfinished or abandoned campaigns", comparison.failed),
        ("practice campaigns, which never count", comparison.practice),
    ):
        if others:
            console.print(f"\n{heading}:")
            for result in others:
                console.print(f"  {one_line(result)}")
    console.print(f"\nruleset {comparison.ruleset}")
    text: str = console.file.getvalue()  # type: ignore[attr-defined]
    return text


def _table(results: list[Result]) -> Table:
    shown = [column for column in COLUMNS if any(column[1](result) != "-" for result in results)]
    table = Table(title=title(results[0]), title_justify="left")
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
