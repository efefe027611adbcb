"""Comma-separated values, one line a result, numbers in full precision."""

from __future__ import annotations

import csv
import io
from typing import Any

from fourmin.report.model import Comparison, Result
from fourmin.text import printable

_FORMULA_STARTS = ("=", "+", "-", "@")


def render(comparison: Comparison) -> str:
    """The results that count, then failed and practice campaigns, as RFC 4180 asks."""
    text = io.StringIO()
    rows = [_row(result) for result in _all(comparison)]
    writer = csv.DictWriter(text, fieldnames=_FIELDS, lineterminator="\r\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


_FIELDS = [
    "kind", "source", "path", "submitter", "system", "benchmark", "division", "chips",
    "global_batch_size", "quality_target", "minutes", "scaled_minutes", "ci95_low", "ci95_high",
    "cv", "epochs_mean", "images_per_second", "scaling_efficiency", "campaigns", "waivers",
    "findings", "valid", "registration", "state", "run_minutes", "run_statuses",
]  # fmt: skip


def _all(comparison: Comparison) -> list[tuple[str, Result]]:
    return [
        *(("result", result) for result in comparison.results),
        *(("failed", result) for result in comparison.failed),
        *(("practice", result) for result in comparison.practice),
    ]


def _row(kind_and_result: tuple[str, Result]) -> dict[str, Any]:
    kind, result = kind_and_result
    values = result.to_json()
    low, high = result.ci95 or (None, None)
    values.update(
        kind=kind,
        ci95_low=low,
        ci95_high=high,
        waivers=" ".join(result.waivers),
        run_minutes=" ".join("" if r.minutes is None else repr(r.minutes) for r in result.runs),
        run_statuses=" ".join(run.status for run in result.runs),
    )
    return {name: _cell(values[name]) for name in _FIELDS}


def _cell(value: Any) -> Any:
    """Text that a spreadsheet takes as text, and nothing else for numbers."""
    if not isinstance(value, str):
        return value
    shown = printable(value)
    return f"'{shown}" if shown.startswith(_FORMULA_STARTS) else shown
