"""Line charts as SVG, without a plotting library."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from html import escape

WIDTH, HEIGHT = 860, 520
LEFT, RIGHT, TOP, BOTTOM = 80, 190, 50, 60
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000", "#7f7f7f")
"""Colours that colour-blind readers can tell apart (Okabe and Ito)."""

Points = Sequence[tuple[float, float]]


def log_chart(
    title: str,
    x_label: str,
    y_label: str,
    lines: Mapping[str, Points],
    x_ticks: Mapping[float, str],
) -> str:
    """A chart with two logarithmic axes, as SVG text.

    Coordinates must be positive; ``x_ticks`` maps places to labels.
    """
    xs = [x for points in lines.values() for x, _ in points]
    ys = [y for points in lines.values() for _, y in points]
    if not xs or min(xs) <= 0 or min(ys) <= 0:
        raise ValueError("a logarithmic chart needs points, all of them positive")
    decades = [
        10.0**power
        for power in range(math.floor(math.log10(min(ys))), math.ceil(math.log10(max(ys))) + 1)
    ]
    return _chart(
        (title, x_label, y_label),
        lines,
        _Axis(min(xs), max(xs), LEFT, WIDTH - RIGHT, math.log10),
        _Axis(decades[0], decades[-1], HEIGHT - BOTTOM, TOP, math.log10),
        x_ticks,
        {decade: f"{decade:g}" for decade in decades},
    )


def linear_chart(
    title: str, x_label: str, y_label: str, lines: Mapping[str, Points], ideal: str
) -> str:
    """A chart with two linear axes that start at 0, as SVG text.

    Coordinates must not be negative. The line named ``ideal`` is dashed.
    """
    xs = [x for points in lines.values() for x, _ in points]
    ys = [y for points in lines.values() for _, y in points]
    if not xs or min(xs) < 0 or min(ys) < 0 or not max(xs) or not max(ys):
        raise ValueError("a chart needs points, none of them negative")
    x_ticks, y_ticks = _ticks(max(xs)), _ticks(max(ys))
    return _chart(
        (title, x_label, y_label),
        lines,
        _Axis(0, max(max(x_ticks), max(xs)), LEFT, WIDTH - RIGHT),
        _Axis(0, max(max(y_ticks), max(ys)), HEIGHT - BOTTOM, TOP),
        x_ticks,
        y_ticks,
        dashed=ideal,
    )


def _ticks(largest: float) -> dict[float, str]:
    """Round places from 0 to about ``largest``, with their labels."""
    power = 10.0 ** math.floor(math.log10(largest))
    step = next(s for s in (0.1, 0.2, 0.25, 0.5, 1.0, 2.0) if largest <= 8 * s * power) * power
    return {step * i: f"{step * i:,.10g}" for i in range(math.ceil(largest / step) + 1)}


def _chart(
    texts: tuple[str, str, str],
    lines: Mapping[str, Points],
    x_axis: _Axis,
    y_axis: _Axis,
    x_ticks: Mapping[float, str],
    y_ticks: Mapping[float, str],
    dashed: str = "",
) -> str:
    title, x_label, y_label = texts
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="{escape(title)}" font-family="sans-serif" font-size="12">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        _text(LEFT, 25, title, size=15),
        _text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 12, x_label, anchor="middle"),
        f'<g transform="rotate(-90 20 {HEIGHT / 2})">'
        + _text(20, HEIGHT / 2, y_label, anchor="middle")
        + "</g>",
    ]
    for place, label in x_ticks.items():
        x = x_axis.at(place)
        parts.append(_rule(x, TOP, x, HEIGHT - BOTTOM))
        parts.append(_text(x, HEIGHT - BOTTOM + 18, label, anchor="middle", size=10))
    for place, label in y_ticks.items():
        y = y_axis.at(place)
        parts.append(_rule(LEFT, y, WIDTH - RIGHT, y))
        parts.append(_text(LEFT - 8, y + 4, label, anchor="end"))
    for index, (name, points) in enumerate(lines.items()):
        colour = COLOURS[index % len(COLOURS)]
        stroke = f'stroke="{colour}" ' + ('stroke-dasharray="6 4" ' if name == dashed else "")
        places = [(x_axis.at(x), y_axis.at(y)) for x, y in points]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        parts.append(f'<polyline points="{path}" fill="none" {stroke}stroke-width="2"/>')
        if name != dashed:
            parts += [
                f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in places
            ]
        row = TOP + 10 + 22 * index
        start = WIDTH - RIGHT + 20
        parts.append(
            f'<line x1="{start}" y1="{row}" x2="{start + 24}" y2="{row}" {stroke}stroke-width="3"/>'
        )
        parts.append(_text(start + 32, row + 4, name))
    return "\n".join([*parts, "</svg>"]) + "\n"


class _Axis:
    """From a value to a place on paper."""

    def __init__(
        self,
        low: float,
        high: float,
        start: float,
        end: float,
        scale: Callable[[float], float] = float,
    ) -> None:
        self._scale = scale
        self._low = scale(low)
        self._span = (scale(high) - self._low) or 1.0
        self._start, self._end = start, end

    def at(self, value: float) -> float:
        share = (self._scale(value) - self._low) / self._span
        return self._start + share * (self._end - self._start)


def _text(x: float, y: float, text: str, anchor: str = "start", size: int = 12) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}">'
        f"{escape(text)}</text>"
    )


def _rule(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="#dddddd"/>'
