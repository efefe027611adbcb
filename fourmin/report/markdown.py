"""Tables in GitHub's Markdown, for a pull request."""

from __future__ import annotations

import html
import re
from itertools import groupby

from fourmin.report.model import Comparison
from fourmin.report.wording import COLUMNS, DETAILS, one_line, same_table, title

_ALL = (*COLUMNS, *DETAILS)
_MEANINGFUL = re.compile(r"([\\`*_{}\[\]()#+!|~@:])")


def render(comparison: Comparison) -> str:
    """The comparison as Markdown."""
    lines: list[str] = []
    for _, group in groupby(comparison.results, key=same_table):
        results = list(group)
        lines += [f"### {_escape(title(results[0]))}", ""]
        lines.append("| " + " | ".join(name for name, _ in _ALL) + " |")
        lines.append("|" + "---|" * len(_ALL))
        lines += [
            "| " + " | ".join(_escape(say(result)) for _, say in _ALL) + " |" for result in results
        ]
        lines.append("")
    if not comparison.results:
        lines += ["No benchmark result.", ""]
    for heading, others in (
        ("Failed, unfinished or abandoned campaigns", comparison.failed),
        ("Practice campaigns, which never count", comparison.practice),
    ):
        if others:
            lines += [f"{heading}:", ""]
            lines += [f"- {_escape(one_line(result))}" for result in others]
            lines.append("")
    lines.append(f"Ruleset {comparison.ruleset}.")
    return "\n".join(lines) + "\n"


def _escape(text: str) -> str:
    """Text that Markdown shows as it is: no link, mention, image or HTML comes of it."""
    return html.escape(_MEANINGFUL.sub(r"\\\1", text), quote=False)
