"""What a report shows of one run's event log, own or foreign: evaluations and where time went."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fourmin.base.values import mapping, number
from fourmin.log.intervals import Interval
from fourmin.log.timeline import Timeline
from fourmin.report.model import Communication, Energy, Evaluated, Span

_MS_A_MINUTE = 60_000
_MOST = 1e300


def evaluated(timeline: Timeline | None) -> tuple[Evaluated, ...]:
    """Every evaluation, in file order."""
    if timeline is None:
        return ()
    begin = timeline.run_start_ms
    return tuple(
        Evaluated(e.epoch, e.accuracy, _minutes(e.time_ms, begin)) for e in timeline.evaluations
    )


def spans(timeline: Timeline | None) -> tuple[Span, ...]:
    """Initialization, run, epochs (blocks where those were not logged) and evaluations."""
    begin = None if timeline is None else timeline.run_start_ms
    if timeline is None or begin is None:
        return ()
    found: list[Span] = []
    if timeline.init_start_ms is not None:
        start, stop = timeline.init_start_ms, timeline.init_stop_ms
        found.append(
            Span("initialization", None, (start - begin) / _MS_A_MINUTE, _minutes(stop, begin))
        )
    found.append(Span("run", None, 0.0, _minutes(timeline.run_stop_ms, begin)))
    name = "epoch" if timeline.epoch_intervals else "block"
    found += _of(name, timeline.epoch_intervals or timeline.block_intervals, begin)
    found += _of("evaluation", timeline.eval_intervals, begin)
    return tuple(found)


def _of(name: str, intervals: tuple[Interval, ...], begin: float) -> Iterator[Span]:
    for interval in intervals:
        if interval.start_ms is not None:
            start = (interval.start_ms - begin) / _MS_A_MINUTE
            yield Span(name, interval.epoch, start, _minutes(interval.stop_ms, begin))


def _minutes(time_ms: float | None, begin: float | None) -> float | None:
    return None if time_ms is None or begin is None else (time_ms - begin) / _MS_A_MINUTE


def communication(facts: Mapping[str, Any]) -> Communication | None:
    """What the log says of exposed communication; None where that is nothing usable."""
    value = mapping(facts.get("communication"))
    median, p95 = _amount(value.get("exposed_ms_median")), _amount(value.get("exposed_ms_p95"))
    if median is None or p95 is None:
        return None
    names = value.get("algorithms")
    algorithms = sorted({str(name) for name in names}) if isinstance(names, list) else []
    return Communication(median, p95, tuple(algorithms))


def energy(facts: Mapping[str, Any]) -> Energy | None:
    """The measured energy; None where there was no meter."""
    value = mapping(facts.get("energy"))
    joules = _amount(value.get("joules"))
    if joules is None:
        return None
    return Energy(joules, str(value.get("method")), str(value.get("scope")))


def _amount(value: Any) -> float | None:
    found = number(value)
    # The largest whole numbers of JSON have no float.
    return float(found) if found is not None and 0 <= found < _MOST else None
