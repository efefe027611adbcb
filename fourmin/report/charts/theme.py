"""Colours and letters of the charts: literal for a file of its own, the page's own in the page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

FONT = "Liberation Sans, Arial, Helvetica, sans-serif"
"""The first is part of vl-convert, so that a chart is the same file on every machine."""


@dataclass(frozen=True)
class Theme:
    """The colours of a chart. `runs` tells the runs of one result apart, `parts` those of a run."""

    background: str | None
    ink: str
    quiet: str
    grid: str
    mark: str
    mean: str
    runs: tuple[str, ...]
    parts: tuple[str, ...]


PAPER = Theme(
    background="#ffffff",
    ink="#1b1f24",
    quiet="#57606a",
    grid="#e4e7eb",
    mark="#0072b2",
    mean="#d55e00",
    runs=("#0072b2", "#d55e00", "#009e73", "#aa4499", "#7a6a00", "#56b4e9", "#000000", "#7f7f7f"),
    parts=("#9aa4b0", "#e0b000", "#56a0d3", "#d55e00", "#aa4499", "#1b1f24", "#009e73"),
)
"""After Okabe and Ito: colour-blind readers can tell them apart, and each stands out on white."""

PAGE = Theme(
    background=None,
    ink="var(--ink)",
    quiet="var(--quiet)",
    grid="var(--line)",
    mark="var(--mark)",
    mean="var(--mean)",
    runs=tuple(f"var(--run-{number})" for number in range(1, 9)),
    parts=tuple(f"var(--part-{number})" for number in range(1, 8)),
)
"""Names of the page's colours, so that a chart turns dark and light with it and prints on white."""


def config(theme: Theme) -> dict[str, Any]:
    """The `config` of a Vega-Lite specification.

    Marks, axes and legends are hidden from screen readers, which get the description and the
    table instead of a thousand unnamed dots.
    """
    return {
        "background": theme.background,
        "font": FONT,
        "padding": 8,
        "view": {"stroke": None},
        "mark": {"aria": False},
        "axis": {
            "aria": False,
            "domain": False,
            "gridColor": theme.grid,
            "labelColor": theme.quiet,
            "labelFlush": False,
            "labelFontSize": 11,
            "ticks": False,
            "labelPadding": 6,
            "titleColor": theme.quiet,
            "titleFontSize": 11,
            "titleFontWeight": "normal",
            "titlePadding": 8,
        },
        "axisY": {"labelColor": theme.ink},
        "legend": {
            "aria": False,
            "labelColor": theme.ink,
            "labelFontSize": 11,
            "titleColor": theme.quiet,
            "titleFontSize": 11,
            "titleFontWeight": "normal",
            "symbolStrokeWidth": 2,
        },
        "header": {
            "aria": False,
            "labelColor": theme.ink,
            "labelFontSize": 11,
            "labelLimit": 260,
            "labelAnchor": "start",
            "titleColor": theme.quiet,
        },
        "title": {
            "aria": False,
            "anchor": "start",
            "color": theme.ink,
            "fontSize": 14,
            "fontWeight": 600,
            "subtitleColor": theme.quiet,
            "subtitleFontSize": 11,
            "subtitlePadding": 5,
            "offset": 12,
        },
    }
