"""Line charts in the style of the others, drawn without a library: the plain install has them."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from html import escape
from itertools import cycle
from typing import TYPE_CHECKING

from fourmin.report.charts.theme import FONT, PAPER

if TYPE_CHECKING:
    from fourmin.estimate.run import Estimate

WIDTH, HEIGHT = 860, 480
LEFT, RIGHT, TOP, BOTTOM = 80, 670, 50, 420
"""Where the axes begin and end, in pixels; the names of the lines stand right of them."""

Points = Sequence[tuple[float, float]]


def log_chart(
    title: str,
    x_label: str,
    y_label: str,
    lines: Mapping[str, Points],
    x_ticks: Mapping[float, str],
) -> str:
    """A chart with two logarithmic axes, as SVG text.

    Coordinates must be positive; `x_ticks` maps places to labels.
    """
    if any(value <= 0 for points in lines.values() for point in points for value in point):
        raise ValueError("a logarithmic chart needs positive points")
    ys = [math.log10(y) for points in lines.values() for _, y in points]
    powers = range(math.floor(min(ys)), math.ceil(max(ys)) + 1)
    y_ticks = {10.0**power: f"{10.0**power:g}" for power in powers}
    return _chart((title, x_label, y_label), lines, x_ticks, y_ticks, scale=math.log10)


def linear_chart(
    title: str, x_label: str, y_label: str, lines: Mapping[str, Points], ideal: str
) -> str:
    """A chart with two linear axes that start at 0, as SVG text.

    Coordinates must not be negative. The line named `ideal` is dashed.
    """
    every = [point for points in lines.values() for point in points]
    x_ticks, y_ticks = (_ticks(max(point[axis] for point in every)) for axis in (0, 1))
    return _chart((title, x_label, y_label), lines, x_ticks, y_ticks, ideal)


def estimate_chart(estimate: Estimate) -> str:
    """Images/s by nodes against the ideal line, as SVG."""
    config, curve = estimate.configuration, estimate.curve
    counts = [one.workers // config.procs_per_node for one in curve]
    alone = curve[-1].images_per_second / curve[-1].time.efficiency / counts[-1]
    rates = [one.images_per_second for one in curve]
    return linear_chart(
        f"Estimate, not measured: {config.preset} on {estimate.profile.name}",
        f"nodes of {config.procs_per_node} workers, {estimate.step.local_batch} images each",
        "images/s",
        {
            "ideal": [(0.0, 0.0), *((n, n * alone) for n in counts)],
            f"estimate, {config.allreduce}": list(zip(counts, rates, strict=True)),
        },
        ideal="ideal",
    )


def _ticks(largest: float) -> dict[float, str]:
    """Round places from 0 to at least `largest`, with their labels."""
    power = 10.0 ** math.floor(math.log10(largest))
    step = next(s for s in (0.1, 0.2, 0.25, 0.5, 1.0, 2.0) if largest <= 8 * s * power) * power
    return {step * i: f"{step * i:,.10g}" for i in range(math.ceil(largest / step) + 1)}


def _chart(
    texts: tuple[str, str, str],
    lines: Mapping[str, Points],
    x_ticks: Mapping[float, str],
    y_ticks: Mapping[float, str],
    dashed: str = "",
    scale: Callable[[float], float] = float,
) -> str:
    """Axes span the ticks; every point lies between them. `scale` is that of both axes."""
    title, x_label, y_label = texts

    def across(x: float) -> float:
        return _place(x, x_ticks, LEFT, RIGHT, scale)

    def up(y: float) -> float:
        return _place(y, y_ticks, BOTTOM, TOP, scale)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="{escape(title)}" font-family="{FONT}" font-size="11">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="{PAPER.background}"/>',
        _text(LEFT, 25, title, f'font-size="14" font-weight="600" fill="{PAPER.ink}"'),
        _text((LEFT + RIGHT) / 2, HEIGHT - 14, x_label, 'text-anchor="middle"'),
        f'<g transform="rotate(-90 20 {(TOP + BOTTOM) / 2})">'
        + _text(20, (TOP + BOTTOM) / 2, y_label, 'text-anchor="middle"')
        + "</g>",
    ]
    for place, label in x_ticks.items():
        parts.append(_line(across(place), TOP, across(place), BOTTOM, PAPER.grid))
        parts.append(_text(across(place), BOTTOM + 18, label, 'text-anchor="middle"'))
    for place, label in y_ticks.items():
        parts.append(_line(LEFT, up(place), RIGHT, up(place), PAPER.grid))
        parts.append(_text(LEFT - 8, up(place) + 4, label, 'text-anchor="end"'))
    colours = cycle(PAPER.runs)
    for row, (name, points) in enumerate(lines.items()):
        colour = PAPER.quiet if name == dashed else next(colours)
        dash = 'stroke-dasharray="5 4"' if name == dashed else ""
        places = [(across(x), up(y)) for x, y in points]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        parts.append(
            f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2" {dash}/>'
        )
        if not dash:
            parts += [
                f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in places
            ]
        height, start = TOP + 10 + 20 * row, RIGHT + 20
        parts.append(_line(start, height, start + 24, height, colour, f'stroke-width="2" {dash}'))
        parts.append(_text(start + 32, height + 4, name, f'fill="{PAPER.ink}"'))
    return "\n".join([*parts, "</svg>"]) + "\n"


def _place(
    value: float,
    ticks: Collection[float],
    start: float,
    end: float,
    scale: Callable[[float], float],
) -> float:
    """Pixels of a value on an axis whose ends are its outermost ticks."""
    low, high, at = map(scale, (min(ticks), max(ticks), value))
    return start + (at - low) / ((high - low) or 1.0) * (end - start)


def _text(x: float, y: float, text: str, style: str) -> str:
    fill = "" if "fill=" in style else f' fill="{PAPER.quiet}"'
    return f'<text x="{x:.1f}" y="{y:.1f}" {style}{fill}>{escape(text)}</text>'


def _line(x1: float, y1: float, x2: float, y2: float, colour: str, style: str = "") -> str:
    places = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
    return f'<line {places} stroke="{colour}" {style}/>'
