"""What the clock of a run was spent on, from its events alone: how much of it at the steady rate.

Every millisecond from run_start to run_stop belongs to an epoch, to an evaluation, or to one of the
named parts outside of them, so that no part of a run goes untold.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from fourmin.log.intervals import Interval
from fourmin.log.timeline import Timeline
from fourmin.results.statistics import lower_quartile, mean

BEFORE = "before the first epoch"
BETWEEN = "between"
RESTART = "restart"
END = "end"
FIRST_EPOCH, FIRST_EVALUATION = "first epoch", "first evaluation"
OTHER_EPOCHS, OTHER_EVALUATIONS = "other epochs", "other evaluations"
_MOST_UNTOLD = 0.01
"""Of the clock, between it and all that the events tell of it."""


@dataclass(frozen=True, slots=True)
class ClockUse:
    """The share of the clock at the steady rate (a fraction), and the seconds of all the rest."""

    steady_share: float
    rest_seconds: Mapping[str, float]
    steady_epoch_seconds: float = 0.0
    mean_epoch_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Outside:
    """A part of the clock outside of epochs and evaluations; times as in the log (ms)."""

    name: str
    start_ms: float
    stop_ms: float


def outside(timeline: Timeline) -> Iterator[Outside]:
    """What lies between run_start and run_stop outside of all epochs (or blocks) and evaluations.

    `before the first epoch` opens the data; `between` reduces the last numbers of an epoch, checks
    that all ranks agree, and copies the state for a checkpoint; `restart` goes from the end of what
    counts to where training went on, with what was trained in vain; `end` follows the last epoch
    or evaluation that ended. Nothing is told of a log without both records.
    """
    start, stop = timeline.run_start_ms, timeline.run_stop_ms
    if start is None or stop is None:
        return
    restarts = sorted(one.time_ms for one in timeline.restarts if one.time_ms is not None)
    inside = sorted(
        (one.start_ms, one.stop_ms)
        for one in (*timeline.epoch_intervals, *timeline.block_intervals, *timeline.eval_intervals)
        if one.start_ms is not None and one.stop_ms is not None
    )
    covered = start
    for begins, ends in (*inside, (stop, stop)):
        begins = min(begins, stop)
        if begins > covered:
            name = BEFORE if covered == start else END if begins == stop else BETWEEN
            if bisect_left(restarts, covered) < bisect_right(restarts, begins):
                name = RESTART
            yield Outside(name, covered, begins)
        covered = max(covered, ends)


def clock_use(timeline: Timeline) -> ClockUse | None:
    """The share of the clock at the steady rate, and where the rest went.

    share = (epochs x steady epoch + evaluations x steady evaluation) / clock, where steady is the
    lower quartile (25% quantile) of the run's own times, and the clock the time to train. Epochs
    that a restart trained again are no epochs of this sum: they are part of `restart`. The rest
    says, in seconds, what the first and the other epochs and evaluations took beyond the steady
    ones (less than 0 where they took less), and what lies outside of them; with the steady part it
    makes the clock.

    None where the events do not allow it: without a clock, an epoch or an evaluation, where one
    has no end or takes no time, and where the parts miss the clock by more than 1%. So they do
    where epochs overlap evaluations, where the wall clock was set, and in logs of MLPerf whose
    epochs were logged before the device was done, so that only their blocks last long enough.
    What they miss below that counts as `between`.
    """
    clock = timeline.time_to_train_ms
    epochs, evaluations = _durations(timeline.epoch_intervals), _durations(timeline.eval_intervals)
    if not clock or clock < 0 or not epochs or not evaluations:
        return None
    rest = dict.fromkeys((BEFORE, FIRST_EPOCH, FIRST_EVALUATION), 0.0)
    steady = 0.0
    for durations, first, others in (
        (epochs, FIRST_EPOCH, OTHER_EPOCHS),
        (evaluations, FIRST_EVALUATION, OTHER_EVALUATIONS),
    ):
        usual = lower_quartile(durations)
        steady += len(durations) * usual
        rest[first] = durations[0] - usual
        rest[others] = sum(durations[1:]) - (len(durations) - 1) * usual
    for name in (BETWEEN, RESTART, END):
        rest[name] = 0.0
    for part in outside(timeline):
        rest[part.name] += part.stop_ms - part.start_ms
    untold = clock - steady - sum(rest.values())
    if abs(untold) > _MOST_UNTOLD * clock:
        return None
    rest[BETWEEN] += untold
    return ClockUse(
        steady / clock,
        {name: ms / 1000 for name, ms in rest.items()},
        lower_quartile(epochs) / 1000,
        mean(epochs) / 1000,
    )


def rest_to_json(rest_seconds: Mapping[str, float]) -> dict[str, float] | None:
    """The parts under names that scripts can write; None where nothing is known."""
    return {name.replace(" ", "_"): spent for name, spent in rest_seconds.items()} or None


def mean_rest(uses: Sequence[ClockUse]) -> dict[str, float]:
    """The mean of each part over several runs (s); empty without a run."""
    names = uses[0].rest_seconds if uses else ()
    return {name: mean([use.rest_seconds[name] for use in uses]) for name in names}


def _durations(intervals: Sequence[Interval]) -> list[float]:
    """Milliseconds of each, in order; empty where one has none that is above 0."""
    found = [one.duration_ms for one in intervals]
    return [ms for ms in found if ms is not None] if all(ms and ms > 0 for ms in found) else []
