"""Somebody else's files, opened so that nothing about them can hurt: no links, no devices."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from fourmin.base.canonical import JSON
from fourmin.log.reader import EventLog, LogProblem, without_records
from fourmin.results.folder import FAULTS, MAX_JSON_BYTES, JsonFile, read_beginning, read_bytes


def head(path: Path, size: int) -> bytes:
    """The first `size` bytes of a regular file; empty for everything else."""
    found = read_beginning(path, size)
    return b"" if isinstance(found, str) else found


def read_somebodys(path: Path, most: int, read: Callable[[bytes], EventLog]) -> EventLog:
    """What `read` makes of a file of at most so many bytes, or a log that says what is wrong."""
    data = read_bytes(path, most)
    if isinstance(data, str):
        return without_records(LogProblem("unreadable", 1, FAULTS.get(data, data)))
    return read(data)


def read_json(path: Path, shown: str) -> tuple[JSON, str | None]:
    """The value of a JSON file, and what is wrong with it (None where nothing is).

    What strict JSON refuses but any reader would still read (a byte-order mark, a key that
    occurs twice) gives a value and a fault.
    """
    data = read_bytes(path, MAX_JSON_BYTES)
    if isinstance(data, str):
        return None, FAULTS.get(data, data)
    file = JsonFile(shown, data)
    if file.error is None:
        return file.value, None
    if file.error.kind in ("byte-order-mark", "duplicate-key", "nan", "infinity", "not-utf8"):
        try:
            value: JSON = json.loads(data.decode("utf-8-sig", "replace"))
        except (ValueError, RecursionError):
            return None, str(file.error)
        return value, str(file.error)
    return None, str(file.error)
