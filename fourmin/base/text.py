"""Text from somebody else's files, made harmless for a terminal, a page or a log."""

from __future__ import annotations

import shlex
import unicodedata
from typing import Any

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


def _escaped(char: str) -> str:
    if 0xD800 <= ord(char) <= 0xDFFF:  # half of a surrogate pair has no other spelling
        return f"\\u{ord(char):04x}"
    return char.encode("unicode_escape").decode("ascii")
