"""Where and how the commands print: standard output for results, standard error for the rest."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from rich.console import Console

from fourmin.base.errors import FourminError
from fourmin.base.text import printable_lines

MOST_ERROR_LINES = 20


def stdout() -> Console:
    """A console for what was asked for. Markup and highlighting are off: text is data."""
    return Console(markup=False, highlight=False, emoji=False, soft_wrap=True)


def stderr() -> Console:
    return Console(stderr=True, markup=False, highlight=False, emoji=False, soft_wrap=True)


def print_error(error: FourminError) -> None:
    """What, why and what next, on at most one screen."""
    console = stderr()
    lines = [*_first_lines("error: ", error.what), *_first_lines("  why: ", error.why)]
    lines = [*lines, *_first_lines(" next: ", error.next_step)]
    console.print(lines[0], style="bold red" if sys.stderr.isatty() else "")
    for line in lines[1:]:
        console.print(line)


def _first_lines(label: str, text: str) -> Iterable[str]:
    if not text:
        return
    lines = printable_lines(text).splitlines()
    if len(lines) > MOST_ERROR_LINES:
        cut = len(lines) - MOST_ERROR_LINES
        lines = [lines[0], f"… ({cut} lines left out)", *lines[-MOST_ERROR_LINES + 1 :]]
    yield label + lines[0]
    for line in lines[1:]:
        yield " " * len(label) + line
