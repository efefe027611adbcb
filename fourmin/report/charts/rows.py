"""What the charts are drawn from: plain rows, made from results and from nothing else.

A row names its result by `label`, which is unique within a chart. Times are in the chart's unit,
which `unit_of` chooses; text of a submitter is made printable.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from fourmin.base.text import how_many, printable
from fourmin.report.model import Result
from fourmin.report.runs import ReportedRun
from fourmin.report.wording import NOT_SCALED
from fourmin.results.clock_use import BEFORE, BETWEEN, END, RESTART

Row = dict[str, Any]
LONGEST_NAME = 60
LINE = "\n"
"""Between the lines of a family's name; no name holds one, for all are printable."""

MINUTES = "minutes"
SECONDS = "seconds"
EARLY = "early"
"""The kind of an evaluation too far below the target to be drawn."""
_MOST_ERROR = 3
_IN_A_MINUTE = {MINUTES: 1.0, SECONDS: 60.0}
_SIGNIFICANT = 7


def unit_of(minutes: Iterable[float | None]) -> str:
    """Seconds where every time is below a minute, else minutes."""
    longest = max((value for value in minutes if value is not None), default=0.0)
    return SECONDS if 0 < longest < 1 else MINUTES


def labels(results: Sequence[Result]) -> list[str]:
    """A name for each result, unique: submitter, system, and as much more as it takes.

    Round, chips and batch are added where they tell results of one name apart, then a number.
    """
    names = [f"{_name(result.submitter)}, {_name(result.system)}" for result in results]
    for say in _MORE:
        told: dict[str, set[str]] = {}
        for name, result in zip(names, results, strict=True):
            told.setdefault(name, set()).add(say(result))
        names = [
            f"{name}, {say(result)}" if len(told[name]) > 1 and say(result) else name
            for name, result in zip(names, results, strict=True)
        ]
    seen: Counter[str] = Counter()
    unique = []
    for name in names:
        seen[name] += 1
        unique.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return unique


_MORE: tuple[Callable[[Result], str], ...] = (
    lambda r: printable(r.round, LONGEST_NAME),
    lambda r: how_many(r.chips, "chip", ",") if r.chips else "",
    lambda r: f"batch {r.global_batch_size:,}" if r.global_batch_size else "",
)
"""What may tell results of one submitter and system apart."""


def time_rows(
    results: Sequence[Result], names: Sequence[str], unit: str, any_scaled: bool
) -> list[Row]:
    """One row a converged run and one a benchmark result, with its interval.

    Times are those that are compared: of runs and interval, too, scaled by the reference point.
    Runs that have no time are counted in the result's label: they have no place on the axis. With
    `any_scaled` it also says of a result that is not scaled that others are.
    """
    rows = []
    for order, (result, name) in enumerate(zip(results, names, strict=True)):
        converged, runs = sum(run.minutes is not None for run in result.runs), len(result.runs)
        notes = [] if converged == runs else [f"{converged} of {runs} converged"]
        unscaled = any_scaled and not result.scaled and result.minutes is not None
        notes += [NOT_SCALED] if unscaled else []
        shared = {**_drawn(result, name, *notes), "order": order}
        low, high = result.told_interval or (None, None)
        if result.minutes is not None:
            rows.append(
                {
                    **shared,
                    "kind": "result",
                    "value": _time(result.compared_minutes, unit),
                    "low": _time(low, unit, result.factor),
                    "high": _time(high, unit, result.factor),
                    "typical": _time(result.typical_minutes, unit, result.factor),
                }
            )
        rows += [
            {
                **shared,
                "kind": "run",
                "run": number,
                "value": _time(run.minutes, unit, result.factor),
            }
            for number, run in enumerate(result.runs, start=1)
            if run.minutes is not None
        ]
    return rows


def chips_rows(results: Sequence[Result], names: Sequence[str], unit: str) -> list[Row]:
    """One row a result that has a time and a number of chips: both have logarithmic axes."""
    return [
        {
            "label": name,
            "order": order,
            "chips": result.chips,
            "chip": _name(result.chip),
            "value": _time(result.compared_minutes, unit),
            "chip_minutes": _rounded(result.chip_minutes),
            **_hollow(result),
        }
        for order, (result, name) in enumerate(zip(results, names, strict=True))
        if (result.chips or 0) > 0 and (result.compared_minutes or 0) > 0
    ]


def accuracy_rows(result: Result, unit: str) -> list[Row]:
    """One row an evaluation, and the target as long as the longest run.

    The axis is around the target: an evaluation with more than three times its error is `EARLY`,
    unless its run has no better one.
    """
    rows: list[Row] = [
        {
            "run": number,
            "epoch": evaluated.epoch,
            "time": _time(evaluated.minutes, unit),
            "accuracy": _rounded(evaluated.accuracy),
            "kind": "run",
        }
        for number, run in enumerate(result.runs, start=1)
        for evaluated in run.facts.evaluations
        if evaluated.minutes is not None and evaluated.accuracy is not None
    ]
    if rows and result.quality_target is not None:
        latest = max(row["time"] for row in rows)
        best: dict[int, float] = {}
        for row in rows:
            best[row["run"]] = max(row["accuracy"], best.get(row["run"], 0.0))
        least = min(1 - _MOST_ERROR * (1 - result.quality_target), *best.values())
        for row in rows:
            row["kind"] = "run" if row["accuracy"] >= least else EARLY
        rows += [
            {"time": time, "accuracy": result.quality_target, "kind": "target"}
            for time in (0.0, latest)
        ]
    return rows


def timeline_rows(result: Result, unit: str) -> list[Row]:
    """One row a part of a run, from its start to its stop; 0 is run_start."""
    rows = []
    for number, run in enumerate(result.runs, start=1):
        for span in run.spans:
            part = PARTS.get(span.name)
            if part is not None and span.stop is not None:
                rows.append(
                    {
                        "run": number,
                        "part": part,
                        "epoch": span.epoch,
                        "start": _time(span.start, unit),
                        "stop": _time(span.stop, unit),
                    }
                )
    return rows


PARTS = {
    "initialization": "initialization",
    BEFORE: BEFORE,
    "block": "training",
    "epoch": "training",
    "evaluation": "evaluation",
    BETWEEN: BETWEEN,
    RESTART: RESTART,
    END: END,
}
"""What the parts of a run are called in a timeline."""


def exposed_rows(results: Sequence[Result], names: Sequence[str]) -> list[Row]:
    """One row a run: the median of a step's exposed communication and its 95th percentile, ms."""
    return [
        {
            **_drawn(result, name),
            "order": order,
            "run": number,
            "median": _rounded(run.communication.exposed_ms_median),
            "p95": _rounded(run.communication.exposed_ms_p95),
        }
        for order, (result, name) in enumerate(zip(results, names, strict=True))
        for number, run in enumerate(result.runs, start=1)
        if run.communication is not None
    ]


def families(results: Sequence[Result]) -> dict[str, list[Result]]:
    """Results that scale from one baseline, by its path: the baseline first, then by chips.

    Where the baseline itself is not among `results`, the family is left out.
    """
    by_path = {result.path: result for result in results}
    found: dict[str, list[Result]] = {}
    for result in results:
        base = result.baseline
        if base is not None and base.path in by_path and result.images_per_second:
            found.setdefault(base.path, [by_path[base.path]]).append(result)
    for members in found.values():
        members.sort(key=lambda result: (result.chips or 0, result.path))
    return dict(sorted(found.items(), key=lambda item: (-len(item[1]), item[0])))


def scaling_rows(results: Sequence[Result], names: Mapping[str, str]) -> list[Row]:
    """One row a result of a family, and the ideal line from 0 through the baseline.

    `names` gives the label of a result by its path.
    """
    rows = []
    taken: Counter[str] = Counter()
    for order, (path, members) in enumerate(families(results).items()):
        base = members[0]
        what = " ".join(_name(part) for part in (base.benchmark, base.round) if part)
        title = f"{_name(base.submitter)}, {what}{LINE}{_name(base.chip)}"
        taken[title] += 1
        shared = {
            "family": title if taken[title] == 1 else f"{title} ({taken[title]})",
            "order": order,
        }
        most = max(member.chips or 0 for member in members)
        per_chip = (base.images_per_second or 0.0) / (base.chips or 1)
        rows += [
            {**shared, "kind": "ideal", "chips": chips, "value": _rounded(per_chip * chips)}
            for chips in (0, most)
        ]
        rows += [
            {
                **shared,
                "kind": "baseline" if member.path == path else "result",
                "chips": member.chips,
                "value": _rounded(member.images_per_second),
                "efficiency": _rounded(member.scaling_efficiency),
                "label": names[member.path],
                **_hollow(member),
            }
            for member in members
        ]
    return rows


def run_times(runs: Iterable[ReportedRun]) -> list[float | None]:
    """The minutes of everything that an accuracy chart or a timeline of these runs shows."""
    return [
        value
        for run in runs
        for value in (
            run.minutes,
            *(evaluated.minutes for evaluated in run.facts.evaluations),
            *(span.stop for span in run.spans),
        )
    ]


def may_be_drawn(results: Iterable[Result]) -> list[Result]:
    """Those that a chart compares: an invalid result has no place beside others."""
    return [result for result in results if not result.apart]


def _drawn(result: Result, name: str, *notes: str) -> Row:
    """The name of a result with what a reader must know, and whether its marks are hollow."""
    hollow = _hollow(result)
    told = [*notes, *hollow.values()]
    return {"label": f"{name} ({', '.join(told)})" if told else name, **hollow}


def _hollow(result: Result) -> Row:
    """What could not be checked of a result, or fails, whose marks are hollow for it."""
    return {"doubt": result.doubt} if result.doubt else {}


def _name(text: str) -> str:
    return printable(text, LONGEST_NAME)


def _time(minutes: float | None, unit: str, factor: float = 1.0) -> float | None:
    return None if minutes is None else _rounded(minutes * factor * _IN_A_MINUTE[unit])


def _rounded(value: float | None) -> float | None:
    """As many digits as a chart can show: the page holds hundreds of thousands of numbers.

    None for what no axis can show.
    """
    try:
        shown = None if value is None else float(f"{value:.{_SIGNIFICANT}g}")
    except OverflowError:  # an integer that no float can be
        return None
    return shown if shown is not None and math.isfinite(shown) else None
