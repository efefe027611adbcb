"""Text from somebody else's files, made harmless for a terminal, a page or a log."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import textwrap
import unicodedata
from typing import IO, Any

_HARMFUL = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
"""Unicode categories that move cursors, reorder or hide text, or mean nothing."""


def printable(value: Any, limit: int = 500) -> str:
    """`value` as one line of text, with every character that is not plain text made visible.

    Control characters, terminal escapes, bidirectional marks and line separators become
    backslash escapes; longer text is cut at `limit` characters with an ellipsis.
    """
    text = value if isinstance(value, str) else str(value)
    if len(text) > limit:
        text = text[: limit - 1] + "…"
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        char if unicodedata.category(char) not in _HARMFUL else _escaped(char) for char in text
    )


def printable_lines(text: str, limit: int = 20_000) -> str:
    """Several lines of text, each made printable; the line ends stay."""
    return "\n".join(printable(line) for line in text[:limit].splitlines())


def command(*words: object) -> str:
    """`fourmin` with these words, as a shell takes it."""
    return shlex.join(["fourmin", *map(str, words)])


def how_many(number: int, noun: str, form: str = "") -> str:
    """A number with its noun, in the plural where it takes one; `form` is the number's format."""
    return f"{number:{form}} {noun}{'' if number == 1 else 's'}"


def columns_of(stream: IO[str]) -> int | None:
    """How wide a line may be: COLUMNS, or the terminal's width; None of a file or a pipe."""
    asked = os.environ.get("COLUMNS", "")
    if asked.isdecimal() and int(asked):
        return int(asked)
    return shutil.get_terminal_size().columns if stream.isatty() else None


def folded(line: str, width: int | None, hang: int | None = None) -> str:
    """`line` in lines of at most `width` columns (None: any), words whole, figures with their unit.

    The further ones begin at column `hang`, or where the last column of `line` does: what two
    spaces stand before.
    """
    if width is None or len(line) <= width:
        return line
    if hang is None:
        starts = [gap.end() for gap in re.finditer(r"^ +|  +", line[: width // 2])]
        hang = starts[-1] if starts else 2
    indent = " " * max(0, min(hang, width - max(map(len, line.split()))))
    whole = re.sub(r"(?<=\d) (?=(s|min|GB|MiB|GiB)\b)", "\xa0", line)  # where it does not break
    lines = textwrap.wrap(
        whole, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
    return "\n".join(lines).replace("\xa0", " ")


def _escaped(char: str) -> str:
    if 0xD800 <= ord(char) <= 0xDFFF:  # half of a surrogate pair has no other spelling
        return f"\\u{ord(char):04x}"
    return char.encode("unicode_escape").decode("ascii")
