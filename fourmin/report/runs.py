"""What a report shows of one run's event log, own or foreign: where its time went, what it cost."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from fourmin.base.values import mapping, number
from fourmin.log.timeline import Timeline
from fourmin.results.clock_use import ClockUse, clock_use, outside, rest_to_json
from fourmin.results.run_result import ABORTED, RunFacts, minutes_between

_MOST = 1e300


class Span(NamedTuple):
    """A part of a run: `initialization`, `run`, `epoch`, `block`, `evaluation`, or one that lies
    outside of these on the clock (see `fourmin.results.clock_use`).

    Start and stop are minutes since run_start, so negative before the clock; `stop` is None
    where the part never ended.
    """

    name: str
    epoch: float | None
    start: float
    stop: float | None


@dataclass(frozen=True, slots=True)
class Communication:
    """What gradient communication cost a step of rank 0, in milliseconds not hidden by compute."""

    exposed_ms_median: float
    exposed_ms_p95: float


@dataclass(frozen=True, slots=True)
class Energy:
    """Measured from run_start to run_stop: joules, by which meter, and of which parts."""

    joules: float
    method: str
    scope: str

    def to_json(self) -> dict[str, Any]:
        """Keys of result.json, marked as measured."""
        return {**asdict(self), "basis": "measured"}


@dataclass(frozen=True, kw_only=True)
class ReportedRun:
    """One run: its path, what its log says, and the minutes with which it counts."""

    path: str
    facts: RunFacts
    minutes: float | None
    spans: tuple[Span, ...] = ()
    communication: Communication | None = None
    energy: Energy | None = None
    clock_use: ClockUse | None = None
    started_in_seconds: float | None = None
    """From the ledger's run-intent to its run-start; None where no ledger says it."""

    @property
    def steady_share(self) -> float | None:
        """Of the clock, at the steady rate: a fraction, None where the events do not give it."""
        return None if self.clock_use is None else self.clock_use.steady_share

    @property
    def steady_rate(self) -> float | None:
        """Images/s of the steady epoch; None where the events do not give it."""
        use, rate = self.clock_use, self.facts.images_per_second
        if use is None or rate is None or not use.steady_epoch_seconds:
            return None
        return rate * use.mean_epoch_seconds / use.steady_epoch_seconds

    def exposed_share(self, batch: int | None) -> float | None:
        """Of a step at the steady rate, what the median exposed communication is: a fraction.

        `batch` is the global batch size (images). None where the events do not give it.
        """
        if self.communication is None or not batch or self.steady_rate is None:
            return None
        return self.communication.exposed_ms_median / 1000 * self.steady_rate / batch

    def to_json(self) -> dict[str, Any]:
        """As `fourmin report --format json` gives it."""
        names = ("status", "minutes", "epochs", "quality")
        told = {name: getattr(self.facts, name) for name in names}
        return {
            "path": self.path,
            **told,
            "minutes": self.minutes,
            "energy": self.energy and self.energy.to_json(),
            "steady_share": self.steady_share,
            "steady_rate": self.steady_rate,
            "rest_seconds": self.clock_use and rest_to_json(self.clock_use.rest_seconds),
            "started_in_seconds": self.started_in_seconds,
        }


def reported(
    path: str,
    facts: RunFacts,
    timeline: Timeline | None,
    practice: bool = False,
    started_in_seconds: float | None = None,
) -> ReportedRun:
    """A run as a report shows it; without a timeline nothing is told of where its time went."""
    return ReportedRun(
        path=path,
        facts=facts,
        minutes=facts.counted_minutes(practice),
        spans=_spans(timeline),
        communication=_communication(facts),
        energy=_energy(facts),
        clock_use=None if timeline is None or facts.status == ABORTED else clock_use(timeline),
        started_in_seconds=started_in_seconds,
    )


def _spans(timeline: Timeline | None) -> tuple[Span, ...]:
    """Initialization, run, blocks, epochs, evaluations, and what of the run lies outside of
    these.
    """
    begin = None if timeline is None else timeline.run_start_ms
    if timeline is None or begin is None:
        return ()
    parts = [
        ("initialization", None, timeline.init_start_ms, timeline.init_stop_ms),
        ("run", None, begin, timeline.run_stop_ms),
        *(("block", one.epoch, one.start_ms, one.stop_ms) for one in timeline.block_intervals),
        *(("epoch", one.epoch, one.start_ms, one.stop_ms) for one in timeline.epoch_intervals),
        *(("evaluation", e.epoch, e.start_ms, e.stop_ms) for e in timeline.eval_intervals),
        *((one.name, None, one.start_ms, one.stop_ms) for one in outside(timeline)),
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
    return None if median is None or p95 is None else Communication(median, p95)


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
