"""Tables in GitHub's Markdown, for a pull request."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator, Sequence

from fourmin.report.columns import DETAILS, TEXT, Column, filled
from fourmin.report.model import Comparison, Result
from fourmin.report.pair_wording import conclusion, difference_rows, headline
from fourmin.report.side_by_side import SideBySide
from fourmin.report.wording import apart, one_line, tables

# Scaling is said in full by the detail of the same name.
_ALL = (*(column for column in TEXT if column.name != "scaling"), *DETAILS)
_MEANINGFUL = re.compile(r"([\\`*_{}\[\]()#+!|~@:])")


def render(comparison: Comparison) -> str:
    lines: list[str] = []
    for heading, results in tables(comparison.results):
        lines += [f"### {escape(heading)}", "", *result_table(results), ""]
    if not comparison.results:
        lines += ["No benchmark result.", ""]
    for heading, others in apart(comparison):
        lines += [f"{heading[0].upper()}{heading[1:]}:", ""]
        lines += [f"- {escape(one_line(result))}" for result in others]
        lines.append("")
    lines.append(f"Ruleset {comparison.ruleset}.")
    return "\n".join(lines) + "\n"


def render_pair(pair: SideBySide) -> str:
    lines = [f"- {escape(headline(name, r))}" for name, r in (("A", pair.a), ("B", pair.b))]
    lines += ["", *(f"{escape(line.strip())}  " for line in conclusion(pair)), ""]
    if pair.differences:
        lines += _table(("what", "name", "A", "B"), difference_rows(pair))
    else:
        lines.append("No difference in hyperparameters, software or hardware is known.")
    return "\n".join(lines) + "\n"


def result_table(results: Sequence[Result], columns: Sequence[Column] = _ALL) -> Iterator[str]:
    """The lines of one table; columns that say nothing of any result are left out."""
    shown, rows = filled(columns, results)
    yield from _table([column.name for column in shown], rows)


def _table(names: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield "| " + " | ".join(names) + " |"
    yield "|" + "---|" * len(names)
    for row in rows:
        yield "| " + " | ".join(escape(cell) for cell in row) + " |"


def escape(text: str) -> str:
    """Text that Markdown shows as it is: no link, mention, image or HTML comes of it."""
    return html.escape(_MEANINGFUL.sub(r"\\\1", text), quote=False)
