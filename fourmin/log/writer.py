"""Writes the event log: one `:::MLLOG` line a record, each with a single write."""

from __future__ import annotations

import errno
import functools
import json
import math
import os
import re
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

from fourmin.base.canonical import MAX_INTEGER
from fourmin.base.errors import FourminError
from fourmin.base.files import sync_folder
from fourmin.base.mishaps import told
from fourmin.log.keys import (
    FILE,
    FOURMIN_KEYS,
    FOURMIN_NAMESPACE,
    INTERVAL_END,
    INTERVAL_START,
    LINENO,
    MONOTONIC_MS,
    POINT_IN_TIME,
)

MAX_RECORD_BYTES = 60 * 1024
"""Longest line, within what the reader accepts."""
MAX_VALUE_DEPTH = 32
TOGETHER_NS = 1_000_000
MOST_READINGS = 5
"""How long reading both clocks may take, and how often it is tried."""

_KEY = re.compile(r"[A-Za-z0-9_]{1,100}")
_PACKAGE = Path(__file__).resolve().parents[1]


class EventLogWriter:
    """An event log open for appending. One process writes it (rank 0); threads may share it.

    `wall_clock` and `monotonic` return nanoseconds and are read together, again where something
    came between the two. A new log must not exist; with `resume`, an existing one is continued,
    on a fresh line should a killed writer have left half of one.

    Raises `FourminError` where the file cannot be opened. The methods that log raise ValueError
    for what JSON cannot carry, and OSError where the record did not reach the file as a whole.
    """

    def __init__(
        self,
        path: Path,
        *,
        wall_clock: Callable[[], int] = time.time_ns,
        monotonic: Callable[[], int] = time.monotonic_ns,
        resume: bool = False,
    ) -> None:
        self.path = path
        self._wall_clock = wall_clock
        self._monotonic = monotonic
        how = os.O_RDWR if resume else os.O_WRONLY | os.O_CREAT | os.O_EXCL
        step = "Check the results folder and its permissions."
        with told(f"the event log {path} cannot be opened", step):
            try:
                self._descriptor = os.open(path, how | os.O_APPEND | os.O_CLOEXEC, 0o644)
            except FileExistsError:
                raise FourminError(
                    f"the event log {path} exists already",
                    "A log is written once; a second attempt in it could hide the first.",
                    "Resume the run, or start another campaign.",
                ) from None
        if resume:
            size = os.fstat(self._descriptor).st_size
            if size and os.pread(self._descriptor, 1, size - 1) != b"\n":
                self._write(b"\n")
        else:
            with suppress(OSError):  # a file system that cannot is left to its own ways
                sync_folder(path.parent)

    def __enter__(self) -> EventLogWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def point(self, key: str, value: object = None, /, **metadata: object) -> str:
        """Logs an event of type POINT_IN_TIME; returns its JSON text."""
        return self._record(POINT_IN_TIME, key, value, metadata)

    def start(self, key: str, value: object = None, /, **metadata: object) -> str:
        """Logs an event of type INTERVAL_START; returns its JSON text."""
        return self._record(INTERVAL_START, key, value, metadata)

    def end(self, key: str, value: object = None, /, **metadata: object) -> str:
        """Logs an event of type INTERVAL_END; returns its JSON text."""
        return self._record(INTERVAL_END, key, value, metadata)

    def sync(self) -> None:
        """Returns once everything logged is on the disk."""
        os.fsync(self._descriptor)

    def close(self) -> None:
        """Syncs and closes; harmless the second time."""
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def _record(self, event_type: str, key: str, value: object, metadata: dict[str, object]) -> str:
        if not _KEY.fullmatch(key):
            raise ValueError(f"{key!r} is no key: letters, digits and underscores")
        reserved = {FILE, LINENO, MONOTONIC_MS} & metadata.keys()
        if reserved:
            raise ValueError(f"the writer sets {', '.join(sorted(reserved))} itself")
        for part in (value, *metadata.values()):
            _check(part, MAX_VALUE_DEPTH)
        caller = sys._getframe(2)  # whoever called point, start or end
        wall, monotonic = self._read_clocks()
        text = json.dumps(
            {
                "namespace": FOURMIN_NAMESPACE if key in FOURMIN_KEYS else "",
                "time_ms": wall // 1_000_000,
                "event_type": event_type,
                "key": key,
                "value": value,
                "metadata": {
                    FILE: _relative(caller.f_code.co_filename),
                    LINENO: caller.f_lineno,
                    MONOTONIC_MS: monotonic // 1_000_000,
                    **metadata,
                },
            },
            allow_nan=False,
        )
        line = f":::MLLOG {text}\n".encode("ascii")
        if len(line) > MAX_RECORD_BYTES:
            raise ValueError(f"{key}: a record of {len(line)} bytes; at most {MAX_RECORD_BYTES}")
        self._write(line)
        return text

    def _read_clocks(self) -> tuple[int, int]:
        """Wall and monotonic clock of one moment, which a thread or process that is let in between
        would tear apart."""
        for _ in range(MOST_READINGS):
            before, wall, after = self._monotonic(), self._wall_clock(), self._monotonic()
            if after - before < TOGETHER_NS:
                break
        return wall, before

    def _write(self, line: bytes) -> None:
        if os.write(self._descriptor, line) != len(line):
            # Writing the rest could put another record between the halves.
            raise OSError(errno.ENOSPC, "only part of a record was written", str(self.path))


class SilentLog:
    """Takes what an `EventLogWriter` takes and writes nothing: the log of every rank but 0."""

    def point(self, key: str, value: object = None, /, **metadata: object) -> None:
        """Nothing, as `start` and `end`."""

    start = end = point

    def sync(self) -> None:
        """Nothing is to be waited for."""


RunLog: TypeAlias = "EventLogWriter | SilentLog"
"""What each rank of a run logs to, at the same places in the code."""


@functools.cache
def _relative(filename: str) -> str:
    """The caller's file within the package, `fourmin/..`; outside of it, its name alone."""
    path = Path(filename)
    return path.relative_to(_PACKAGE.parent).as_posix() if _PACKAGE in path.parents else path.name


def _check(value: object, depth: int) -> None:
    """Raises ValueError unless JSON gives back an equal value (a tuple comes back as a list)."""
    if value is None or isinstance(value, bool):
        return
    if isinstance(value, str):
        value.encode("utf-8")  # UnicodeEncodeError, a ValueError, for a lone surrogate
    elif isinstance(value, int):
        if abs(value) > MAX_INTEGER:
            raise ValueError("an integer beyond 2^53 - 1")
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{value} is not JSON")
    elif depth == 0:
        raise ValueError("nested too deep")
    elif isinstance(value, (list, tuple)):
        for item in value:
            _check(item, depth - 1)
    elif isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise ValueError(f"the key {key!r} is not a string")
            _check(key, 0)
            _check(item, depth - 1)
    else:
        raise ValueError(f"{type(value).__name__} is not JSON")
