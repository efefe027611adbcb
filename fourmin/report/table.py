"""The default format: tables for a terminal, wide content wrapped to its width."""

from __future__ import annotations

import io
import sys
from collections import Counter
from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

from fourmin.base.text import columns_of, folded, how_many, printable
from fourmin.report.columns import DETAILS, LONGEST_NAME, TEXT, Column, filled
from fourmin.report.model import Comparison, Result
from fourmin.report.pair_wording import conclusion, difference_rows, headline
from fourmin.report.side_by_side import SideBySide
from fourmin.report.wording import NONE, apart, one_line, short_verdict, tables

BRIEF = ("not checked", "runs", "95% interval", "warnings")
"""The details that are said of each result in any case."""
LEAST_WIDTH = 80
MOST_WIDTH = 10_000
USUAL_WIDTH = 120
"""Of a file or a pipe."""


def render(comparison: Comparison, width: int | None = None, verbose: bool = False) -> str:
    """The tables as text; `width` in columns, that of the terminal without.

    What stood the checks comes first, then every run; with `verbose` all that is known of each.
    """
    console = _console(width)
    console.print(f"{_standing(comparison)}\n")
    for heading, results in tables(comparison.results):
        console.print(heading)
        table, left = _fitting(results, console)
        console.print(table)
        details = DETAILS if verbose else [c for c in DETAILS if c.name in BRIEF]
        lines = []
        for result in results:
            told = ((column.name, column.say(result)) for column in (*left, *details))
            said = "; ".join(f"{name} {text}" for name, text in told if text != NONE)
            if said:
                name = f"{printable(result.submitter)}, {printable(result.system)}"
                lines.append(f"  {name}: {said}")
        _print(console, lines)
    for heading, others in apart(comparison):
        _print(console, (f"{heading}:", *(f"  {one_line(result)}" for result in others)))
    if comparison.results and not verbose:
        console.print("all that is known of each result: fourmin report -v")
    return _text(console)


def _print(console: Console, lines: Sequence[str]) -> None:
    """The lines and an empty one, if there are any."""
    for line in lines:
        console.print(folded(line, console.width, 4))
    if lines:
        console.print()


def _standing(comparison: Comparison) -> str:
    """How many results there are and how they stood the checks, in one line."""
    stood = Counter(short_verdict(result) for result in comparison.results)
    told = [f"{number} {verdict}" for verdict, number in stood.items()]
    said = f"{how_many(len(comparison.results), 'benchmark result')}: {', '.join(told)}"
    others = [
        how_many(len(those), f"{heading.partition(' ')[0]} campaign")
        for heading, those in apart(comparison)
    ]
    if not comparison.results:
        said = "no benchmark result" if others else "no benchmark result; `fourmin run` makes one"
    return f"{'; '.join((said, *others))}; ruleset {comparison.ruleset}"


def _fitting(results: list[Result], console: Console) -> tuple[Table, list[Column]]:
    """The table with as many columns as there is room for, and those that are said beside it."""
    columns = sorted(TEXT, key=lambda column: column.name not in ("#", "checked"))
    left: list[Column] = []
    while True:
        table = _table(results, columns)
        wide = [column for column in columns if column.wide]
        room = console.options.update(max_width=MOST_WIDTH)
        if not wide or Measurement.get(console, room, table).maximum <= console.width:
            return table, [column for column in left if column.name != "scaling"]
        columns.remove(wide[-1])
        left.insert(0, wide[-1])


def render_pair(pair: SideBySide, width: int | None = None) -> str:
    console = _console(width)
    for line in (headline("A", pair.a), headline("B", pair.b), "", *conclusion(pair)):
        console.print(folded(line, console.width, 3))
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
    return max(LEAST_WIDTH, columns_of(sys.stdout) or USUAL_WIDTH)


def _text(console: Console) -> str:
    text: str = console.file.getvalue()  # type: ignore[attr-defined]
    return "\n".join(line.rstrip() for line in text.split("\n"))


def _table(results: list[Result], all_columns: list[Column]) -> Table:
    columns, rows = filled(all_columns, results)
    table = _new_table()
    for place, column in enumerate(columns):
        words = " ".join((column.name, *(row[place] for row in rows))).split()
        least = min(LONGEST_NAME, max(map(len, words)))
        table.add_column(column.name, overflow="fold", min_width=least, **column.terminal)
    for row in rows:
        table.add_row(*row)
    return table
