"""Tables in GitHub's Markdown, for a pull request."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Sequence
from itertools import groupby

from fourmin.base.text import printable
from fourmin.report.model import Comparison, Result
from fourmin.report.side_by_side import SideBySide
from fourmin.report.verdict_wording import conclusion, difference_cell, headline
from fourmin.report.wording import (
    COLUMNS,
    DETAILS,
    NONE,
    Column,
    apart,
    one_line,
    same_table,
    title,
)

_OWN_COLUMN_TOO = {"scaling"}
"""Said in full by the detail of the same name."""
_ALL = (*(column for column in COLUMNS if column[0] not in _OWN_COLUMN_TOO), *DETAILS)
_MEANINGFUL = re.compile(r"([\\`*_{}\[\]()#+!|~@:])")


def render(comparison: Comparison) -> str:
    """The comparison as Markdown."""
    lines: list[str] = []
    for _, group in groupby(comparison.results, key=same_table):
        results = list(group)
        lines += [f"### {escape(title(results[0]))}", "", *result_table(results), ""]
    if not comparison.results:
        lines += ["No benchmark result.", ""]
    for heading, others in apart(comparison):
        lines += [f"{heading[0].upper()}{heading[1:]}:", ""]
        lines += [f"- {escape(one_line(result))}" for result in others]
        lines.append("")
    lines.append(f"Ruleset {comparison.ruleset}.")
    return "\n".join(lines) + "\n"


def render_pair(pair: SideBySide) -> str:
    """Two results, what their times say, and every difference."""
    lines = [f"- {escape(headline(name, r))}" for name, r in (("A", pair.a), ("B", pair.b))]
    lines += ["", *(f"{escape(line.strip())}  " for line in conclusion(pair)), ""]
    if pair.differences:
        rows = [
            (d.area, printable(d.name), difference_cell(d.a), difference_cell(d.b))
            for d in pair.differences
        ]
        lines += _table(("what", "name", "A", "B"), rows)
    else:
        lines.append("No difference in hyperparameters, software or hardware is known.")
    return "\n".join(lines) + "\n"


def result_table(results: Sequence[Result], columns: Sequence[Column] = _ALL) -> Iterator[str]:
    """The lines of one table; columns that say nothing of any result are left out."""
    shown = [(name, say) for name, say in columns if any(say(r) != NONE for r in results)]
    rows = [[say(result) for _, say in shown] for result in results]
    yield from _table([name for name, _ in shown], rows)


def _table(names: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield "| " + " | ".join(names) + " |"
    yield "|" + "---|" * len(names)
    for row in rows:
        yield "| " + " | ".join(escape(cell) for cell in row) + " |"


def escape(text: str) -> str:
    """Text that Markdown shows as it is: no link, mention, image or HTML comes of it."""
    return html.escape(_MEANINGFUL.sub(r"\\\1", text), quote=False)
