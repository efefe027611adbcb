"""The charts as Vega-Lite specifications: linear axes, times from zero, every run a mark.

Each takes its rows from the data set `rows` (see `rows.py`), so that the same specification
draws a file here and follows a reader's filter in the page.
"""

from __future__ import annotations

from typing import Any

from fourmin.report.charts.rows import PARTS
from fourmin.report.charts.theme import Theme, config

Spec = dict[str, Any]

SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
ROWS = "rows"
LONGEST_LABEL = 340
"""Pixels that a result's name may take beside the axis."""
ROW_STEP = 19
"""Pixels from one result or run to the next."""
MOST_TICKS = 8
CONTAINER = "container"
"""A width: that of the element of the page that holds the chart."""

Width = int | str


def time_chart(theme: Theme, width: Width, unit: str) -> Spec:
    """Time to train: a dot a run, a tall tick for the benchmark result; a line for the interval,
    with a short tick at what it is around.
    """
    axis = f"time to train in {unit}"
    value = _zero_based("value", axis)
    result = "datum.kind === 'result'"
    return {
        **_whole(theme, width),
        "height": {"step": ROW_STEP},
        "encoding": {"y": _named_rows()},
        "layer": [
            _layer(
                _line_to(theme),
                f"{result} && isValid(datum.low)",
                x=_zero_based("low", axis),
                x2={"field": "high"},
            ),
            _layer(
                _dot(),
                "datum.kind === 'run'",
                x=value,
                **_filled(theme),
                tooltip=_tooltip(result="label", run="run", **{unit: "value"}),
            ),
            _layer(
                _tick(theme, 13),
                result,
                x=value,
                tooltip=_tooltip(result="label", **{f"benchmark result in {unit}": "value"}),
            ),
            _layer(
                _tick(theme, 6),
                f"{result} && isValid(datum.typical)",
                x=_zero_based("typical", axis),
                tooltip=_tooltip(
                    result="label",
                    **{f"geometric mean of all runs in {unit}": "typical"},
                    **{"95% interval from": "low", "to": "high"},
                ),
            ),
        ],
    }


def chips_chart(theme: Theme, width: Width, unit: str) -> Spec:
    """Time against chips, a dot a result, both on logarithmic axes, which say so; a line for the
    best time with no more chips, of results that nothing speaks against.
    """
    axis = f"time to train in {unit}"
    best = [{"op": "min", "field": "value", "as": "best"}]
    lower = [{"op": "min", "field": "best", "as": "best"}]
    return {
        **_whole(theme, width),
        "height": 280,
        "encoding": {"x": _logarithmic("chips", "chips", ",d", base=2)},
        "layer": [
            {
                "transform": [
                    {"filter": "!isValid(datum.doubt)"},
                    {"aggregate": best, "groupby": ["chips"]},
                    {"window": lower, "sort": [{"field": "chips"}], "frame": [None, 0]},
                ],
                "mark": {"type": "line", "interpolate": "step-after", "color": theme.mean},
                "encoding": {"y": _logarithmic("best", axis)},
            },
            _layer(
                _dot(),
                y=_logarithmic("value", axis),
                **_filled(theme),
                tooltip=_tooltip(
                    result="label", chips="chips", chip="chip",
                    **{unit: "value", "chip-minutes": "chip_minutes", "checked": "doubt"},
                ),
            ),
        ],
    }  # fmt: skip


def accuracy_chart(theme: Theme, width: Width, unit: str) -> Spec:
    """Accuracy against time: a line a run, a point an evaluation, the target dashed.

    What matters is near the target, so this axis alone does not begin at zero.
    """
    return {
        **_whole(theme, width),
        "height": 260,
        "encoding": {
            "x": _zero_based("time", f"{unit} since run_start"),
            "y": {
                "field": "accuracy",
                "type": "quantitative",
                "scale": {"zero": False, "type": "linear", "nice": True},
                "axis": {"format": ".1~%", "tickCount": 5, "title": "accuracy"},
            },
        },
        "layer": [
            _layer(_dashed(theme), "datum.kind === 'target'"),
            _layer(
                {"type": "line", "strokeWidth": 1.5, "point": {"filled": True, "size": 22}},
                "datum.kind === 'run'",
                color={
                    "field": "run",
                    "type": "ordinal",
                    "scale": {"range": list(theme.runs)},
                    "legend": {"orient": "top", "direction": "horizontal", "columns": 8},
                },
                tooltip=_tooltip(run="run", epoch="epoch", accuracy="accuracy", **{unit: "time"}),
            ),
        ],
    }


def timeline_chart(theme: Theme, width: Width, unit: str) -> Spec:
    """What each run spent its time on, from initialization to run_stop."""
    return {
        **_whole(theme, width),
        "height": {"step": ROW_STEP},
        "mark": {"type": "bar", "height": 11, "stroke": theme.background, "strokeWidth": 0.5},
        "encoding": {
            "x": _zero_based("start", f"{unit} since run_start"),
            "x2": {"field": "stop"},
            "y": {"field": "run", "type": "ordinal", "axis": {"title": "run", "grid": False}},
            "color": {
                "field": "part",
                "type": "nominal",
                "scale": {
                    "domain": list(dict.fromkeys(PARTS.values())),
                    "range": list(theme.parts),
                },
                "legend": {"title": None, "orient": "top", "symbolType": "square", "columns": 3},
            },
            "tooltip": _tooltip(
                run="run", part="part", epoch="epoch", **{"from": "start", "to": "stop"}
            ),
        },
    }


def scaling_chart(theme: Theme, width: Width) -> Spec:
    """Images/s against chips for each family of results, with the ideal line of its baseline."""
    chips = {
        **_zero_based("chips", "chips"),
        "axis": {"tickCount": 4, "tickMinStep": 1, "format": ",d", "title": "chips"},
    }
    images = {
        **_zero_based("value", "images/s"),
        "axis": {
            "tickCount": 4,
            "title": "images/s",
            "labelExpr": "format(datum.value, '~s')",
        },
    }
    whole = _whole(theme, width)
    size = {"width": whole.pop("width"), "height": 170}
    return {
        **whole,
        "facet": {
            "field": "family",
            "type": "nominal",
            "sort": {"field": "order", "op": "min"},
            "header": {"title": None, "labelExpr": "split(datum.value, '\\n')"},
        },
        "columns": 3,
        "spec": {
            **size,
            "encoding": {"x": chips, "y": images},
            "layer": [
                _layer(_dashed(theme), "datum.kind === 'ideal'"),
                _layer(
                    {"type": "point", "size": 46, "strokeWidth": 1.5},
                    "datum.kind !== 'ideal'",
                    **_filled(theme),
                    shape={
                        "condition": {"test": "datum.kind === 'baseline'", "value": "square"},
                        "value": "circle",
                    },
                    tooltip=_tooltip(
                        result="label", chips="chips", efficiency="efficiency",
                        **{"images/s": "value", "checked": "doubt"},
                    ),
                ),
            ],
        },
        "resolve": {"scale": {"x": "independent", "y": "independent"}},
    }  # fmt: skip


def exposed_chart(theme: Theme, width: Width, by_run: bool = False) -> Spec:
    """Exposed communication of a step: a dot a run at its median, a line to its 95th percentile.

    `by_run` gives each run a row of its own, for the chart of one result.
    """
    rows: Spec = {"y": _named_rows(), "yOffset": {"field": "run", "type": "ordinal"}}
    if by_run:
        rows = {"y": {"field": "run", "type": "ordinal", "axis": {"title": "run", "grid": False}}}
    axis = "milliseconds a step, not hidden by compute"
    return {
        **_whole(theme, width),
        "height": {"step": ROW_STEP if by_run else 2 * ROW_STEP, "for": "position"},
        "encoding": {
            **rows,
            "tooltip": _tooltip(
                result="label", run="run", **{"median in ms": "median", "95th percentile": "p95"}
            ),
        },
        "layer": [
            _layer(_line_to(theme), x=_zero_based("median", axis), x2={"field": "p95"}),
            _layer(_dot(), x=_zero_based("median", axis), **_filled(theme)),
        ],
    }


def _layer(mark: Spec, only: str = "", **encoding: Any) -> Spec:
    """A mark for each row, or for those that a filter lets through."""
    transform: Spec = {"transform": [{"filter": only}]} if only else {}
    return {**transform, "mark": mark, **({"encoding": encoding} if encoding else {})}


def _dot() -> Spec:
    return {"type": "point", "size": 30, "opacity": 0.75, "strokeWidth": 1.5}


def _tick(theme: Theme, size: int) -> Spec:
    return {"type": "tick", "thickness": 2, "size": size, "color": theme.mean}


def _filled(theme: Theme) -> Spec:
    """The colour of a mark, which is hollow where not all could be checked, or a check
    fails."""
    paper = theme.background or "var(--paper)"
    return {
        "stroke": {"value": theme.mark},
        "fill": {
            "condition": {"test": "isValid(datum.doubt)", "value": paper},
            "value": theme.mark,
        },
    }


def _line_to(theme: Theme) -> Spec:
    return {"type": "rule", "color": theme.mean, "strokeWidth": 1.5, "opacity": 0.7}


def _dashed(theme: Theme) -> Spec:
    return {"type": "line", "color": theme.quiet, "strokeDash": [5, 4]}


def _whole(theme: Theme, width: Width) -> Spec:
    whole = {
        "$schema": SCHEMA,
        "config": config(theme),
        "data": {"name": ROWS},
        "width": width,
    }
    if width == CONTAINER:  # the height follows from the rows
        whole["autosize"] = {"type": "fit-x", "contains": "padding"}
    return whole


def _zero_based(field: str, title: str) -> Spec:
    """A linear axis that begins at zero; layers that share it need the same title."""
    return {
        "field": field,
        "type": "quantitative",
        "scale": {"zero": True, "type": "linear", "nice": True},
        "axis": {"title": title, "tickCount": MOST_TICKS, "labelOverlap": True},
    }


def _logarithmic(field: str, title: str, form: str = ",~g", base: int = 10) -> Spec:
    """An axis that says that it is logarithmic; layers that share it need the same title."""
    return {
        "field": field,
        "type": "quantitative",
        "scale": {"type": "log", "base": base, "nice": False, "padding": 12},
        "axis": {
            "title": f"{title} (log scale)",
            "format": form,
            "tickCount": 5,
            "labelOverlap": True,
        },
    }


def _named_rows() -> Spec:
    """One row a result, in the rows' own order."""
    return {
        "field": "label",
        "type": "nominal",
        "sort": {"field": "order", "op": "min"},
        "axis": {"title": None, "labelLimit": LONGEST_LABEL, "grid": True},
    }


def _tooltip(**fields: str) -> list[Spec]:
    """What a mark says when pointed at: words of ours, each with the field that it shows."""
    return [{"field": field, "title": title} for title, field in fields.items()]
