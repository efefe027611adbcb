"""The two clocks of a log: which readings compare, and what they say of a run's time.

The wall clock runs through everything, and can be set. The monotonic clock cannot, but each boot of
each machine has its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fourmin.base.values import number
from fourmin.log import keys
from fourmin.log.records import LATEST_MS, Record
from fourmin.log.restarts import Restart


@dataclass(frozen=True, slots=True)
class ClockSample:
    """Both clocks as read for one record, in ms (this project's own logs).

    Monotonic times compare within one `boot`. A restart that does not say in which boot it went on
    has one of its own.
    """

    line: int
    time_ms: float
    monotonic_ms: float
    boot: str


def clock_samples(
    records: Sequence[Record], restarts: Sequence[Restart]
) -> tuple[ClockSample, ...]:
    """Every record that carries both clocks."""
    start = next((record for record in records if record.key == keys.RUN_START), None)
    boot = "unknown" if start is None else str(start.metadata.get(keys.BOOT))
    boots = {one.line: one.boot or f"restart in line {one.line}" for one in restarts}
    samples = []
    for record in records:
        boot = boots.get(record.line, boot)
        if keys.MONOTONIC_MS not in record.metadata:
            continue
        monotonic = number(record.metadata[keys.MONOTONIC_MS])
        if record.time_ms is not None and monotonic is not None and 0 <= monotonic <= LATEST_MS:
            samples.append(ClockSample(record.line, record.time_ms, monotonic, boot))
    return tuple(samples)


def longest_ms(samples: Iterable[ClockSample]) -> float:
    """The time from the first sample to the last.

    Within a boot the longer of both clocks, from its first sample to its last, whatever they say
    in between; from one boot to another the wall clock, which takes nothing off where it was set
    back. A run that comes back to an earlier boot finds that boot's monotonic clock gone on.
    """
    elapsed = begun = 0.0
    boots: dict[str, tuple[float, float]] = {}
    first: ClockSample | None = None
    before: ClockSample | None = None
    for sample in samples:
        if first is None or before is None or sample.boot != before.boot:
            if before is not None:
                elapsed += max(0.0, sample.time_ms - before.time_ms)
            at, monotonic_ms = boots.setdefault(sample.boot, (elapsed, sample.monotonic_ms))
            begun = max(elapsed, at + sample.monotonic_ms - monotonic_ms)
            first = sample
        wall = sample.time_ms - first.time_ms
        elapsed = begun + max(wall, sample.monotonic_ms - first.monotonic_ms)
        before = sample
    return elapsed
