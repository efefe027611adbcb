"""What a restart leaves of a run's log: what was trained after the checkpoint does not count.

A run that was cut off goes on in the same log. Its `run_restart` record names the epoch of the
checkpoint from which it goes on (0: from the start of training); epochs after that one were
trained before, are trained again, and stay in the log, where the clock ran through them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fourmin.log import keys
from fourmin.log.intervals import difference
from fourmin.log.records import Record

_TRAINING = frozenset(
    (
        keys.EPOCH_START,
        keys.EPOCH_STOP,
        keys.EVAL_START,
        keys.EVAL_ACCURACY,
        keys.EVAL_STOP,
        keys.TRACKED_STATS,
        keys.STEP_LOSS,
        keys.WEIGHTS_DIGEST,
        keys.STATE,
        keys.CHECKPOINT,
    )
)


@dataclass(frozen=True, slots=True)
class Restart:
    """One run_restart record: `number` counts from 1; the run goes on after `epoch`.

    Both are None where the record does not give a possible number. `boot` tells boots of
    machines apart, None where it is not known. `lost_ms` is the time from the end of what
    counts, the evaluation after `epoch` or run_start, to the restart.
    """

    number: int | None
    epoch: int | None
    boot: str | None
    time_ms: float | None
    line: int
    lost_ms: float | None


def _is_restart(record: Record) -> bool:
    """Whether a record is this project's run_restart."""
    return record.key == keys.RUN_RESTART and record.namespace == keys.FOURMIN_NAMESPACE


def restarts_in(records: Sequence[Record]) -> tuple[Restart, ...]:
    """Every restart, in file order."""
    if not _restarted(records):
        return ()
    found: list[Restart] = []
    saved: dict[int, float | None] = {}
    for record in records:
        if record.key == keys.RUN_START:
            saved.setdefault(0, record.time_ms)
        elif record.key == keys.EVAL_STOP:
            saved[_epoch(record)] = record.time_ms
        elif _is_restart(record):
            value = record.value if isinstance(record.value, dict) else {}
            epoch = _count(value.get("epoch"))
            since = None if epoch is None else saved.get(epoch)
            boot = record.metadata.get(keys.BOOT)
            found.append(
                Restart(
                    number=_count(value.get("restart")) or None,
                    epoch=epoch,
                    boot=boot if isinstance(boot, str) else None,
                    time_ms=record.time_ms,
                    line=record.line,
                    lost_ms=difference(record.time_ms, since),
                )
            )
    return tuple(found)


def counted(records: Sequence[Record]) -> Sequence[Record]:
    """The records that count: without the epochs that a later restart trained again."""
    if not _restarted(records):
        return records
    limit = math.inf
    kept: list[Record] = []
    for record in reversed(records):
        if _is_restart(record):
            value = record.value if isinstance(record.value, dict) else {}
            epoch = _count(value.get("epoch"))
            limit = limit if epoch is None else min(limit, epoch)
        elif record.key in _TRAINING and _epoch(record) > limit:
            continue
        kept.append(record)
    kept.reverse()
    return kept


def _restarted(records: Sequence[Record]) -> bool:
    """Whether it is worth looking closer: nearly no log has a restart."""
    return any(record.key == keys.RUN_RESTART for record in records)


def _epoch(record: Record) -> int:
    """The epoch of a record of training; the losses of the first steps are epoch 1's."""
    if record.key == keys.STEP_LOSS:
        return 1
    return _count(record.metadata.get(keys.EPOCH_NUM)) or 0


def _count(value: object) -> int | None:
    """`value` if it is an integer from 0, otherwise None."""
    return value if type(value) is int and value >= 0 else None
