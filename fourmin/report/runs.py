"""What a report shows of one run's event log, own or foreign: where its time went, what it cost."""

from __future__ import annotations

from typing import Any

from fourmin.base.values import mapping, number
from fourmin.log.timeline import Timeline
from fourmin.report.model import Communication, Energy, ReportedRun, Span
from fourmin.results.run_result import RunFacts, minutes_between

_MOST = 1e300


def reported(
    path: str, facts: RunFacts, timeline: Timeline | None, practice: bool = False
) -> ReportedRun:
    """A run as a report shows it; without a timeline nothing is told of where its time went."""
    return ReportedRun(
        path=path,
        facts=facts,
        minutes=facts.counted_minutes(practice),
        spans=_spans(timeline),
        communication=_communication(facts),
        energy=_energy(facts),
    )


def _spans(timeline: Timeline | None) -> tuple[Span, ...]:
    """Initialization, run, epochs (blocks where those were not logged) and evaluations."""
    begin = None if timeline is None else timeline.run_start_ms
    if timeline is None or begin is None:
        return ()
    epochs, kind = timeline.epoch_intervals, "epoch"
    if not epochs:
        epochs, kind = timeline.block_intervals, "block"
    parts = [
        ("initialization", None, timeline.init_start_ms, timeline.init_stop_ms),
        ("run", None, begin, timeline.run_stop_ms),
        *((kind, one.epoch, one.start_ms, one.stop_ms) for one in epochs),
        *(("evaluation", e.epoch, e.start_ms, e.stop_ms) for e in timeline.eval_intervals),
    ]
    return tuple(
        Span(name, epoch, start, minutes_between(begin, stop_ms))
        for name, epoch, start_ms, stop_ms in parts
        if (start := minutes_between(begin, start_ms)) is not None
    )


def _communication(facts: RunFacts) -> Communication | None:
    """What the log says of exposed communication; None where that is nothing usable."""
    value = mapping(facts.communication)
    median, p95 = _amount(value.get("exposed_ms_median")), _amount(value.get("exposed_ms_p95"))
    if median is None or p95 is None:
        return None
    names = value.get("algorithms")
    algorithms = sorted({str(name) for name in names}) if isinstance(names, list) else []
    return Communication(median, p95, tuple(algorithms))


def _energy(facts: RunFacts) -> Energy | None:
    """The measured energy; None where there was no meter."""
    value = mapping(facts.energy)
    joules = _amount(value.get("joules"))
    if joules is None:
        return None
    return Energy(joules, str(value.get("method")), str(value.get("scope")))


def _amount(value: Any) -> float | None:
    found = number(value)
    # The largest whole numbers of JSON have no float.
    return float(found) if found is not None and 0 <= found < _MOST else None
