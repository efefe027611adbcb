"""Writes docs/architecture.svg: the rooms of the package on their floors, as they are."""

from __future__ import annotations

import ast
import sys
import textwrap
from pathlib import Path
from xml.sax.saxutils import escape

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "support"))

from floors import FLOORS  # noqa: E402

PICTURE = ROOT / "docs" / "architecture.svg"
WIDTH, MARGIN, GAP = 1000, 20, 14
BOX_HEIGHT, FLOOR_HEIGHT, TOP = 80, 112, 64
INK, PAPER, LINE, QUIET = "#1b1f24", "#ffffff", "#8b949e", "#57606a"
RUN_COLOUR, CHECK_COLOUR = "#0b5cad", "#8a4b00"

RUN_WAY = ("cli", "campaign", "recipe", "ledger", "launch", "training", "log", "results")
CHECK_WAY = ("cli", "rules", "ledger", "log", "results", "report")
"""The rooms that `fourmin run` and `fourmin validate` go through, in their order."""


def purpose(room: str) -> str:
    """The first sentence of the room's own docstring."""
    folder = ROOT / "fourmin" / room
    source = folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")
    text = ast.get_docstring(ast.parse(source.read_text())) or ""
    return " ".join(text.split("\n\n")[0].split())


def picture() -> str:
    height = TOP + FLOOR_HEIGHT * len(FLOORS)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'font-family="system-ui, sans-serif" role="img" aria-labelledby="title">',
        '<title id="title">The rooms of fourmin: an import goes down, never up</title>',
        f'<rect width="{WIDTH}" height="{height}" fill="{PAPER}"/>',
        _text(MARGIN, 26, "The rooms of fourmin. An import goes down, never up.", 17, INK, 600),
        *_legend(),
    ]
    for number, floor in enumerate(reversed(FLOORS)):
        top = TOP + number * FLOOR_HEIGHT
        width = (WIDTH - 2 * MARGIN - GAP * (len(floor) - 1)) / len(floor)
        for place, room in enumerate(floor):
            parts += _room(MARGIN + place * (width + GAP), top, width, room)
        if number < len(FLOORS) - 1:
            middle = top + BOX_HEIGHT + (FLOOR_HEIGHT - BOX_HEIGHT) / 2
            parts.append(
                f'<path d="M{WIDTH / 2} {middle - 10} v14 m-5 -6 l5 7 l5 -7" fill="none" '
                f'stroke="{LINE}" stroke-width="2"/>'
            )
    return "\n".join([*parts, "</svg>"]) + "\n"


def _legend() -> list[str]:
    return [
        _mark(MARGIN + 8, 46, "1", RUN_COLOUR),
        _text(MARGIN + 22, 50, "the way of fourmin run", 13, RUN_COLOUR),
        _mark(MARGIN + 208, 46, "1", CHECK_COLOUR),
        _text(MARGIN + 222, 50, "the way of fourmin validate and report", 13, CHECK_COLOUR),
    ]


def _room(left: float, top: float, width: float, room: str) -> list[str]:
    parts = [
        f'<rect x="{left:.1f}" y="{top}" width="{width:.1f}" height="{BOX_HEIGHT}" rx="6" '
        f'fill="#f6f8fa" stroke="{LINE}"/>',
        _text(left + 10, top + 21, room, 15, INK, 600),
    ]
    wrapped = textwrap.wrap(purpose(room), max(16, int((width - 16) / 6.1)))
    for number, line in enumerate(wrapped[:3]):
        parts.append(_text(left + 10, top + 40 + 15 * number, line, 12, QUIET))
    right = left + 10 + 9.5 * len(room) + 14
    for way, colour in ((RUN_WAY, RUN_COLOUR), (CHECK_WAY, CHECK_COLOUR)):
        if room in way:
            parts.append(_mark(right, top + 16, str(way.index(room) + 1), colour))
            right += 22
    return parts


def _mark(x: float, y: float, text: str, colour: str) -> str:
    return f'<circle cx="{x:.1f}" cy="{y}" r="9" fill="{colour}"/>' + _text(
        x, y + 4, text, 11, PAPER, 600, anchor="middle"
    )


def _text(
    x: float, y: float, text: str, size: int, colour: str, weight: int = 400, anchor: str = "start"
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y}" font-size="{size}" font-weight="{weight}" fill="{colour}" '
        f'text-anchor="{anchor}">{escape(text)}</text>'
    )


if __name__ == "__main__":
    PICTURE.write_text(picture())
