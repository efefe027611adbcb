"""Somebody else's files, opened so that nothing about them can hurt: no links, no devices."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

from fourmin.base.canonical import JSON
from fourmin.base.mishaps import raise_if_ours
from fourmin.results.folder import FAULTS, MAX_JSON_BYTES, JsonFile, read_bytes


def head(path: Path, size: int) -> bytes:
    """The first `size` bytes of a regular file; empty for everything else."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        raise_if_ours(error)
        return b""
    try:
        return os.read(descriptor, size) if stat.S_ISREG(os.fstat(descriptor).st_mode) else b""
    except OSError:
        return b""
    finally:
        os.close(descriptor)


def read_json(path: Path, shown: str) -> tuple[JSON, str | None]:
    """The value of a JSON file, and what is wrong with it (None where nothing is).

    What strict JSON refuses but any reader would still read (a byte-order mark, a key that
    occurs twice) gives a value and a fault.
    """
    data = read_bytes(path, MAX_JSON_BYTES)
    if isinstance(data, str):
        return None, FAULTS.get(data, data)
    file = JsonFile.parse(shown, data)
    if file.error is None:
        return file.value, None
    if file.error.kind in ("byte-order-mark", "duplicate-key", "nan", "infinity", "not-utf8"):
        try:
            value: JSON = json.loads(data.decode("utf-8-sig", "replace"))
        except (ValueError, RecursionError):
            return None, str(file.error)
        return value, str(file.error)
    return None, str(file.error)
