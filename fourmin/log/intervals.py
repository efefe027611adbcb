"""Pairs of start and stop in an event log."""

from __future__ import annotations

from dataclasses import dataclass

from fourmin.base.values import number
from fourmin.log import keys
from fourmin.log.records import MLP, Record


@dataclass(slots=True)
class Interval:
    """A *_start record and its *_stop, None while it is open.

    `epoch` is epoch_num, for a block first_epoch_num.
    """

    start: Record
    epoch: float | None
    stop: Record | None = None

    @property
    def epoch_count(self) -> float | None:
        """How many epochs a block says that it has."""
        return number(self.start.metadata.get(keys.EPOCH_COUNT))

    @property
    def samples(self) -> float | None:
        """samples_count of the stop."""
        return None if self.stop is None else number(self.stop.metadata.get(keys.SAMPLES_COUNT))

    @property
    def start_ms(self) -> float | None:
        return self.start.time_ms

    @property
    def stop_ms(self) -> float | None:
        return time_of(self.stop)

    @property
    def duration_ms(self) -> float | None:
        """From start to stop; None where either is missing."""
        return difference(self.stop_ms, self.start_ms)


class Pairing:
    """Pairs every start with a later stop of the same epoch.

    A stop without an epoch ends the newest interval that is still open; one whose epoch no open
    interval has is left out. `intervals` holds all of them, in order of their starts.
    """

    def __init__(self, start_key: str) -> None:
        self.intervals: list[Interval] = []
        self._start_key = start_key
        self._open: list[Interval] = []
        self._open_by_epoch: dict[float | None, list[Interval]] = {}
        self._latest_by_epoch: dict[float | None, Interval] = {}

    def add(self, name: str, record: Record) -> None:
        """Take a start or a stop, by the key that it has in today's logs."""
        epoch = epoch_of(record)
        if name == self._start_key:
            interval = Interval(record, epoch)
            self.intervals.append(interval)
            self._open.append(interval)
            self._open_by_epoch.setdefault(epoch, []).append(interval)
            self._latest_by_epoch[epoch] = interval
            return
        waiting = self._open if epoch is None else self._open_by_epoch.get(epoch)
        while waiting:
            interval = waiting.pop()
            if interval.stop is None:
                interval.stop = record
                return

    def around(self, record: Record) -> Interval | None:
        """The interval that a record within or right after it belongs to."""
        epoch = epoch_of(record)
        if epoch is not None and epoch in self._latest_by_epoch:
            return self._latest_by_epoch[epoch]
        latest = self.intervals[-1] if self.intervals else None
        return latest if latest is None or epoch is None or latest.epoch is None else None


def difference(later: float | None, earlier: float | None) -> float | None:
    """None without both."""
    return None if later is None or earlier is None else later - earlier


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
