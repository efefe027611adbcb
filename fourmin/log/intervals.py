"""Pairs of start and stop in an event log."""

from __future__ import annotations

from dataclasses import dataclass

from fourmin.base.values import number
from fourmin.log import keys
from fourmin.log.records import MLP, Record


@dataclass(frozen=True, slots=True)
class Interval:
    """A pair of *_start and *_stop records; `stop_ms` and `stop_line` are None while it is open.

    `epoch` is epoch_num, for a block first_epoch_num; `epoch_count` only a block's.
    """

    epoch: float | None
    epoch_count: float | None
    start_ms: float | None
    start_line: int
    stop_ms: float | None
    stop_line: int | None

    @property
    def duration_ms(self) -> float | None:
        """From start to stop; None where either is missing."""
        if self.start_ms is None or self.stop_ms is None:
            return None
        return self.stop_ms - self.start_ms


class OpenInterval:
    """An interval that may still get its stop."""

    __slots__ = ("epoch", "start", "stop")

    def __init__(self, start: Record) -> None:
        self.start = start
        self.stop: Record | None = None
        self.epoch = epoch_of(start)

    def closed(self) -> Interval:
        """What it has come to; open where no stop was found."""
        return Interval(
            epoch=self.epoch,
            epoch_count=number(self.start.metadata.get(keys.EPOCH_COUNT)),
            start_ms=self.start.time_ms,
            start_line=self.start.line,
            stop_ms=time_of(self.stop),
            stop_line=None if self.stop is None else self.stop.line,
        )


class Pairing:
    """Pairs every start with a later stop of the same epoch.

    A stop without an epoch ends the newest interval that is still open; one whose epoch no open
    interval has is left out.
    """

    def __init__(self, start_key: str, stop_key: str) -> None:
        self.keys = (start_key, stop_key)
        self._start_key = start_key
        self._all: list[OpenInterval] = []
        self._open: list[OpenInterval] = []
        self._open_by_epoch: dict[float | None, list[OpenInterval]] = {}
        self._latest_by_epoch: dict[float | None, OpenInterval] = {}

    def add(self, name: str, record: Record) -> None:
        if name == self._start_key:
            interval = OpenInterval(record)
            self._all.append(interval)
            self._open.append(interval)
            self._open_by_epoch.setdefault(interval.epoch, []).append(interval)
            self._latest_by_epoch[interval.epoch] = interval
        else:
            epoch = epoch_of(record)
            waiting = self._open if epoch is None else self._open_by_epoch.get(epoch)
            while waiting:
                interval = waiting.pop()
                if interval.stop is None:
                    interval.stop = record
                    break

    def around(self, record: Record) -> OpenInterval | None:
        """The interval that a record within or right after it belongs to."""
        epoch = epoch_of(record)
        if epoch is not None and epoch in self._latest_by_epoch:
            return self._latest_by_epoch[epoch]
        latest = self._all[-1] if self._all else None
        return latest if latest is None or epoch is None or latest.epoch is None else None

    def intervals(self) -> tuple[Interval, ...]:
        """All of them, in order of their starts."""
        return tuple(interval.closed() for interval in self._all)


def time_of(record: Record | None) -> float | None:
    """A record's time (ms), None without a record."""
    return None if record is None else record.time_ms


def epoch_of(record: Record) -> float | None:
    """The epoch a record belongs to, from the metadata or where v0.5 put it: the value."""
    metadata = record.metadata
    for name in (keys.EPOCH_NUM, "epoch", keys.FIRST_EPOCH_NUM):
        if name in metadata:
            return number(metadata[name])
    if record.dialect == MLP:
        if isinstance(record.value, dict):
            return number(record.value.get("epoch"))
        if record.key != keys.EVAL_ACCURACY:
            return number(record.value)
    return None
