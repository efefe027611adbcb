"""Charts as files of their own: one specification with its rows, drawn by vl-convert."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from html import escape
from importlib import import_module
from typing import Any, NamedTuple

from fourmin.base.errors import FourminError
from fourmin.base.installation import install
from fourmin.base.mishaps import told
from fourmin.report.charts import rows, specs
from fourmin.report.charts.theme import PAPER, config
from fourmin.report.model import Comparison, Result
from fourmin.report.wording import tables

WIDTH = 560
"""Pixels of a chart's axis."""
MOST_ACCURACY_CHARTS = 40
PNG_SCALE = 2.0

_READING = (
    "Times are scaled by reference points where there are any;",
    "marks are hollow where a check fails or could not be made.",
)

Spec = dict[str, Any]
Draw = Callable[[Sequence[Result]], tuple[Spec, list[rows.Row]]]


def svg(comparison: Comparison, chart: str) -> bytes:
    """A chart as an SVG file. Raises FourminError."""
    drawn: str = vl_convert().vegalite_to_svg(specification(comparison, chart))
    return drawn.encode() + b"\n"


def html(comparison: Comparison, chart: str) -> bytes:
    """A chart as a page of its own, on which nothing runs and nothing is fetched.

    Raises FourminError.
    """
    drawn = svg(comparison, chart).decode()
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'">\n'
        f"<title>{escape(_CHARTS[chart].heading)}</title>\n</head>\n"
        f"<body>\n{drawn}</body>\n</html>\n"
    ).encode()


def png(comparison: Comparison, chart: str) -> bytes:
    """A chart as a PNG file. Raises FourminError."""
    drawn: bytes = vl_convert().vegalite_to_png(specification(comparison, chart), scale=PNG_SCALE)
    return drawn


def specification(comparison: Comparison, chart: str) -> Spec:
    """The Vega-Lite specification of a chart with its rows.

    Results that must not be compared are in different panels, as they are in different tables.
    Practice has panels of its own, which say so. Raises FourminError where nothing has what the
    chart shows.
    """
    heading, marks, make, nothing = _CHARTS[chart]
    said = f"Ruleset {comparison.ruleset}. No invalid result is drawn."
    panels = make(rows.may_be_drawn(comparison.results))
    for panel in make(rows.may_be_drawn(comparison.practice)):
        panel["title"]["text"] = f"Practice, which never counts: {panel['title']['text']}"
        panels.append(panel)
    if not panels:
        if make([*comparison.results, *comparison.practice]):
            nothing = "only invalid results have it, and those are never drawn"
        raise FourminError(f"nothing to draw in the chart {chart}", nothing)
    described = [": ".join(filter(None, [heading, marks]))]
    described += [str(panel["title"]["text"]) for panel in panels]
    return {
        "$schema": specs.SCHEMA,
        "config": config(PAPER),
        "title": {
            "text": heading,
            "subtitle": [*filter(None, [marks]), said, *_READING],
            "fontSize": 16,
        },
        "description": " ".join(f"{text}." for text in described),
        "vconcat": panels,
        "spacing": 28,
        "resolve": {"scale": {"color": "independent"}},
    }


def _of_tables(draw: Draw, results: Sequence[Result]) -> list[Spec]:
    """A panel for each table of which `draw` gives a chart and rows."""
    drawn = ((heading, *draw(shown)) for heading, shown in tables(results))
    return [_panel(heading, spec, found) for heading, spec, found in drawn if found]


def _time(shown: Sequence[Result]) -> tuple[Spec, list[rows.Row]]:
    unit = rows.unit_of(run.minutes for result in shown for run in result.runs)
    drawn = rows.time_rows(shown, rows.labels(shown), unit, any(r.scaled for r in shown))
    return specs.time_chart(PAPER, WIDTH, unit), drawn


def _chips(shown: Sequence[Result]) -> tuple[Spec, list[rows.Row]]:
    unit = rows.unit_of(result.compared_minutes for result in shown)
    drawn = rows.chips_rows(shown, rows.labels(shown), unit)
    several = len({row["chips"] for row in drawn}) > 1
    return specs.chips_chart(PAPER, WIDTH, unit), drawn if several else []


def _exposed(group: Sequence[Result]) -> tuple[Spec, list[rows.Row]]:
    shown = [result for result in group if any(run.communication for run in result.runs)]
    return specs.exposed_chart(PAPER, WIDTH), rows.exposed_rows(shown, rows.labels(shown))


def _scaling(results: Sequence[Result]) -> list[Spec]:
    names = {result.path: name for result, name in zip(results, rows.labels(results), strict=True)}
    drawn = rows.scaling_rows(results, names)
    heading = "A square is the baseline, the dashed line ideal scaling from it"
    return [_panel(heading, specs.scaling_chart(PAPER, WIDTH // 2), drawn)] if drawn else []


def _accuracy(results: Sequence[Result]) -> list[Spec]:
    panels = []
    for result, name in zip(results, rows.labels(results), strict=True):
        unit = rows.unit_of(rows.run_times(result.runs))
        drawn = rows.accuracy_rows(result, unit)
        if drawn:
            panels.append(_panel(name, specs.accuracy_chart(PAPER, WIDTH, unit), drawn))
    if len(panels) > MOST_ACCURACY_CHARTS:
        raise FourminError(
            f"{len(panels)} results are too many for one chart of accuracy",
            f"each has a panel of its own, and at most {MOST_ACCURACY_CHARTS} fit",
            "name fewer paths, or write the page with --format html",
        )
    return panels


class _Chart(NamedTuple):
    """A chart: what its marks are, how its panels are made, and why there may be none."""

    heading: str
    marks: str
    make: Callable[[Sequence[Result]], list[Spec]]
    nothing: str


_CHARTS = {
    "time": _Chart(
        "Time to train",
        "a dot a run, a tall tick the benchmark result, a short one the geometric mean of all "
        "runs with its 95% interval",
        partial(_of_tables, _time),
        "no run reached its target",
    ),
    "chips": _Chart(
        "Time against chips",
        "a dot a result, the line the best time with no more chips",
        partial(_of_tables, _chips),
        "no two results that may be compared have different numbers of chips",
    ),
    "scaling": _Chart(
        "Throughput against chips",
        "",
        _scaling,
        "no result has a smaller one of the same submitter and chip to scale from",
    ),
    "accuracy": _Chart(
        "Accuracy against time",
        "a line a run, a point an evaluation, the target dashed; evaluations with more than "
        "three times its error are not drawn",
        _accuracy,
        "no run has an evaluation",
    ),
    "exposed": _Chart(
        "Exposed communication",
        "a dot a run at its median step, a line to the 95th percentile",
        partial(_of_tables, _exposed),
        "no result says what communication cost; MLPerf's and DAWNBench's never do",
    ),
}

CHARTS = tuple(_CHARTS)
"""The charts that there are by name."""


def _panel(heading: str, spec: Spec, drawn: list[rows.Row]) -> Spec:
    """A chart within the whole, with its rows."""
    panel = {key: value for key, value in spec.items() if key not in ("$schema", "config")}
    # A number that JSON cannot hold must not reach the file.
    panel["data"] = {"values": json.loads(json.dumps(drawn, allow_nan=False))}
    # Headings begin where the axes do, whatever room the names beside them take.
    panel["title"] = {"text": heading, "frame": "group"}
    return panel


def vl_convert() -> Any:
    """The library that draws, which the plain install has not. Raises FourminError."""
    with told("charts need vl-convert-python", install("report"), ImportError):
        return import_module("vl_convert")
