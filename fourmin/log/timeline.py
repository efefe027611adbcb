"""What happened in a run, from its event log alone: own and foreign logs of every dialect."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from fourmin.base.canonical import JSON
from fourmin.base.values import number
from fourmin.log import keys
from fourmin.log.clocks import ClockSample, clock_samples, longest_ms
from fourmin.log.intervals import Interval, Pairing, epoch_of, time_of
from fourmin.log.reader import EventLog
from fourmin.log.records import MLL, MLLOG, MLP, Record
from fourmin.log.restarts import Restart, counted, restarts_in


@dataclass(frozen=True, slots=True)
class Evaluation:
    """One eval_accuracy record.

    `accuracy` is the number as logged (a fraction in every round of MLPerf; never rescaled), or
    None where the value is no finite number; `value` is what was logged. `samples` is
    samples_count, from this record or its evaluation's eval_start or eval_stop. `start_ms` and
    `stop_ms` are those of the evaluation, where it was logged.
    """

    epoch: float | None
    accuracy: float | None
    value: JSON
    time_ms: float | None
    samples: JSON
    line: int
    start_ms: float | None
    stop_ms: float | None


@dataclass(frozen=True, slots=True)
class BackwardStep:
    """A record whose time lies `by_ms` before the record's before it."""

    line: int
    key: str
    by_ms: float


class Timeline:
    """Typed access to any event log, however broken; it never raises.

    Epochs that a restart trained again are left out everywhere but in `log`, `backward_steps` and
    `clock_samples`.

    Keys are those of `fourmin.log.keys`; v0.5's names are found under the later ones. Where a
    key occurs more often than it should, every occurrence stays in `all(key)` and `count(key)`.
    """

    def __init__(self, log: EventLog) -> None:
        self.log = log
        self._by_key: dict[str, list[Record]] = {}
        evals, epochs, blocks = map(Pairing, (keys.EVAL_START, keys.EPOCH_START, keys.BLOCK_START))
        pairings = {
            keys.EVAL_START: evals,
            keys.EVAL_STOP: evals,
            keys.EPOCH_START: epochs,
            keys.EPOCH_STOP: epochs,
            keys.BLOCK_START: blocks,
            keys.BLOCK_STOP: blocks,
        }
        accuracies: list[tuple[Record, Interval | None]] = []
        aliases = {MLP: keys.V05_ALIASES, MLL: keys.V06_ALIASES}
        for record in counted(log.records):
            name = record.key
            if record.dialect != MLLOG:
                name = aliases[record.dialect].get(name, name)
            self._by_key.setdefault(name, []).append(record)
            if name in pairings:
                pairings[name].add(name, record)
            elif name == keys.EVAL_ACCURACY:
                accuracies.append((record, evals.around(record)))
        self.evaluations = tuple(_evaluation(*accuracy) for accuracy in accuracies)
        self.eval_intervals = tuple(evals.intervals)
        self.epoch_intervals = tuple(epochs.intervals)
        self.block_intervals = tuple(blocks.intervals)

    @cached_property
    def hyperparameters(self) -> dict[str, JSON]:
        """Each hyperparameter that was logged, with its first value."""
        return {key: self.value(key) for key in keys.HYPERPARAMETERS if key in self._by_key}

    @cached_property
    def backward_steps(self) -> tuple[BackwardStep, ...]:
        """The records that stand before the one above them, by their times."""
        return tuple(_backward_steps(self.log.records))

    @cached_property
    def restarts(self) -> tuple[Restart, ...]:
        """Where this project's run went on after it was cut off."""
        return restarts_in(self.log.records)

    def all(self, key: str) -> tuple[Record, ...]:
        """Every record of a key, in file order."""
        return tuple(self._by_key.get(key, ()))

    def count(self, key: str) -> int:
        return len(self._by_key.get(key, ()))

    def first(self, key: str) -> Record | None:
        records = self._by_key.get(key)
        return records[0] if records else None

    def last(self, key: str) -> Record | None:
        records = self._by_key.get(key)
        return records[-1] if records else None

    def value(self, key: str) -> JSON:
        """The value of the key's first record, None where there is none."""
        record = self.first(key)
        return None if record is None else record.value

    def values(self, key: str) -> tuple[JSON, ...]:
        """The distinct values of a key, in file order (1 and 1.0 are one value, 1 and true not)."""
        return _distinct(record.value for record in self._by_key.get(key, ()))

    @property
    def init_start_ms(self) -> float | None:
        """When the first init_start was logged (every process of some submissions logs one)."""
        return time_of(self.first(keys.INIT_START))

    @property
    def init_stop_ms(self) -> float | None:
        """When the last init_stop was logged."""
        return time_of(self.last(keys.INIT_STOP))

    @property
    def run_start_ms(self) -> float | None:
        """When the first run_start was logged."""
        return time_of(self.first(keys.RUN_START))

    @property
    def run_stop_ms(self) -> float | None:
        """When the last run_stop was logged."""
        return time_of(self.last(keys.RUN_STOP))

    @property
    def time_to_train_ms(self) -> float | None:
        """From the first run_start to the last run_stop, negative if the log says so.

        By the longer clock where both records carry both (`longest_ms`), else by time_ms alone.
        """
        start, stop = self.first(keys.RUN_START), self.last(keys.RUN_STOP)
        if start is None or stop is None or start.time_ms is None or stop.time_ms is None:
            return None
        timed = [one for one in self.clock_samples if start.line <= one.line <= stop.line]
        if timed and (timed[0].line, timed[-1].line) == (start.line, stop.line):
            return longest_ms(timed)
        return stop.time_ms - start.time_ms

    @property
    def status(self) -> str | None:
        """The status of the last run_stop as logged, None where there is none.

        Where only v0.5's `success` is logged: "success" or "aborted".
        """
        record = self.last(keys.RUN_STOP)
        if record is None:
            return None
        status = record.metadata.get(keys.STATUS)
        if status is None and isinstance(record.value, dict):
            status = record.value.get(keys.STATUS)
            if status is None and "success" in record.value:
                # Some submissions logged the text "true".
                succeeded = str(record.value["success"]).lower() == "true"
                return keys.SUCCESS if succeeded else keys.ABORTED
        return status if isinstance(status, str) else None

    @cached_property
    def clock_samples(self) -> tuple[ClockSample, ...]:
        """Every record that carries both clocks."""
        return clock_samples(self.log.records, self.restarts)

    def first_reaching(self, target: float) -> Evaluation | None:
        """The first evaluation with an accuracy of at least `target`."""
        for evaluation in self.evaluations:
            if evaluation.accuracy is not None and evaluation.accuracy >= target:
                return evaluation
        return None


def _evaluation(record: Record, interval: Interval | None) -> Evaluation:
    value = record.value
    if isinstance(value, dict) and "value" in value:  # v0.5: {"epoch": .., "value": ..}
        value = value["value"]
    start = None if interval is None else interval.start
    stop = None if interval is None else interval.stop
    counts = [
        item.metadata.get(keys.SAMPLES_COUNT) for item in (record, stop, start) if item is not None
    ]
    return Evaluation(
        epoch=epoch_of(record),
        accuracy=number(value),
        value=record.value,
        time_ms=record.time_ms,
        samples=next((count for count in counts if count is not None), None),
        line=record.line,
        start_ms=time_of(start),
        stop_ms=time_of(stop),
    )


def _distinct(values: Iterable[JSON]) -> tuple[JSON, ...]:
    """The distinct values in order; linear. 1 and 1.0 are one value, 1 and true are two."""
    found: dict[str, JSON] = {}
    for value in values:
        count = number(value)
        whole = count is not None and count == int(count)
        spelling = (
            str(int(count)) if whole and count is not None else json.dumps(value, sort_keys=True)
        )
        found.setdefault(spelling, value)
    return tuple(found.values())


def _backward_steps(records: Iterable[Record]) -> Iterator[BackwardStep]:
    before = 0.0
    for record in records:
        time_ms = record.time_ms
        if time_ms is not None:
            if time_ms < before:
                yield BackwardStep(record.line, record.key, before - time_ms)
            before = time_ms
