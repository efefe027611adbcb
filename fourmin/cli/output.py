"""Where and how the commands print: standard output for results, standard error for the rest."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

from rich.console import Console
from rich.text import Text

from fourmin.base.document import document
from fourmin.base.errors import FourminError
from fourmin.base.text import columns_of, folded, printable_lines

MOST_ERROR_LINES = 20
_STYLES = {
    "bold red": r"error|not valid|cannot|missing",
    "yellow": r"warning|unchecked",
    "green": r"ok|can run|valid|no error",
    "dim": r"note",
}
"""What the words that a line begins with are shown in."""


def stdout() -> Console:
    """A console for what was asked for. Markup and highlighting are off: text is data."""
    return Console(markup=False, highlight=False, emoji=False, soft_wrap=True)


def stderr() -> Console:
    return Console(stderr=True, markup=False, highlight=False, emoji=False, soft_wrap=True)


def say(lines: Iterable[str]) -> None:
    """Print lines for people: folded to the terminal, the word that judges in colour.

    Several lines in one, such as a command to be copied, stay as they are.
    """
    console = stdout()
    for line in lines:
        text = Text(line if "\n" in line else folded(line, columns_of(console.file)))
        for style, words in _STYLES.items():
            if found := re.match(rf" *({words})\b", line):
                text.stylize(style, *found.span())
        console.print(text)


@contextmanager
def working(doing: str) -> Iterator[None]:
    """Show what is done, and for how long, while it lasts and standard error is a terminal."""
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
    shown = Progress(*columns, console=stderr(), transient=True)
    shown.add_task(doing, total=None)
    # Up to 13.9 rich ends a line even of what is disabled.
    with shown if sys.stderr.isatty() else nullcontext():
        yield


def print_json(kind: str, content: Mapping[str, Any], indent: int | None = 2) -> None:
    """Print a document on standard output, whatever the terminal's width."""
    sys.stdout.write(json.dumps(document(kind, content), indent=indent) + "\n")
    sys.stdout.flush()


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
