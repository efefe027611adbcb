"""Comma-separated values, one line a result, numbers in full precision."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fourmin.base.text import printable
from fourmin.report.gate import gate_lines
from fourmin.report.model import Comparison, Result
from fourmin.report.side_by_side import SideBySide

_FORMULA_STARTS = ("=", "+", "-", "@", "＝", "＋", "－", "＠")


def render(comparison: Comparison) -> str:
    """The results that count, then failed, pending and practice campaigns, as RFC 4180 asks."""
    return _text(_FIELDS, (_row(kind, result) for kind, result in _all(comparison)))


def render_pair(pair: SideBySide) -> str:
    """One line a fact: the times, what they say, and every difference."""
    concluded = {} if pair.conclusion is None else pair.conclusion.to_json()
    rows = [
        {"area": "result", "name": name, "a": values[0], "b": values[1]}
        for name, values in (
            ("path", (pair.a.path, pair.b.path)),
            ("minutes", (pair.a.minutes, pair.b.minutes)),
            ("scaled_minutes", (pair.a.scaled_minutes, pair.b.scaled_minutes)),
            ("status", (pair.a.status, pair.b.status)),
        )
    ]
    rows += [{"area": "not comparable", "name": reason} for reason in pair.obstacles]
    rows += [{"area": "note", "name": note} for note in pair.notes]
    rows += [
        {"area": "verdict", "name": name, "a": value}
        for name, value in {**concluded, **(concluded.get("welch") or {})}.items()
        if not isinstance(value, (dict, list)) and value is not None
    ]
    if pair.gate is not None:
        rows += [{"area": "gate", "name": "failed", "a": pair.gate.failed}]
        rows += [{"area": "gate", "name": said, "a": how} for how, said in gate_lines(pair.gate)]
    rows += [{"area": d.area, "name": d.name, "a": d.a, "b": d.b} for d in pair.differences]
    return _text(("area", "name", "a", "b"), rows)


_FIELDS = (
    "kind", "source", "path", "submitter", "system", "benchmark", "division", "chips", "chip",
    "global_batch_size", "quality_target", "minutes", "scaled_minutes", "ci95_low", "ci95_high",
    "cv", "epochs_mean", "rcp_epochs", "rcp_mean", "rcp_minimum", "quality", "images_per_second",
    "scaling_efficiency", "scaling_baseline", "exposed_ms", "energy_joules", "energy_method",
    "energy_scope", "cost", "cost_currency", "cost_per_hour", "cost_source", "cost_date",
    "campaigns", "waivers", "findings", "valid", "verified", "registration", "state", "dataset",
    "clock", "round", "citation", "run_minutes", "run_statuses", "status", "unchecked", "evidence",
    "rank", "ranked", "scaled", "nodes", "batches", "campaigns_at_batch", "failed_campaigns",
    "pending_campaigns", "known_campaigns", "shown_campaigns", "practice_campaigns",
    "attempts_before_start", "fails", "steady_share", "started_in_seconds", "typical_minutes",
    "smallest_detectable",
)  # fmt: skip


def _all(comparison: Comparison) -> list[tuple[str, Result]]:
    return [
        *(("result", result) for result in comparison.results),
        *(("failed", result) for result in comparison.failed),
        *(("pending", result) for result in comparison.pending),
        *(("practice", result) for result in comparison.practice),
    ]


def _row(kind: str, result: Result) -> dict[str, Any]:
    values = result.to_json()
    low, high = result.ci95 or (None, None)
    for name in ("energy", "cost", "rcp"):
        values |= {f"{name}_{key}": value for key, value in (values.pop(name) or {}).items()}
    values.update(
        kind=kind,
        ci95_low=low,
        ci95_high=high,
        waivers=" ".join(result.verdict.waivers),
        unchecked=" ".join(result.verdict.unchecked),
        fails=" ".join(result.verdict.fails),
        evidence="; ".join(result.evidence),
        run_minutes=" ".join("" if r.minutes is None else repr(r.minutes) for r in result.runs),
        run_statuses=" ".join(run.facts.status for run in result.runs),
        cost=values.get("cost_amount"),
    )
    return values


def _text(fields: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow(fields)
    writer.writerows([_cell(row.get(name)) for name in fields] for row in rows)
    return text.getvalue()


def _cell(value: Any) -> Any:
    """Text that a spreadsheet takes as text, and nothing else for numbers."""
    if not isinstance(value, str):
        return value
    shown = printable(value)
    return f"'{shown}" if shown.startswith(_FORMULA_STARTS) else shown
