"""Files of `fourmin estimate`, recognised so that nobody takes one for a result."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fourmin.results.folder import MAX_JSON_BYTES, JsonFile, read_bytes

KIND = "fourmin-estimate"
"""What an estimate's JSON says it is, under `kind`."""


def is_estimate(value: Any) -> bool:
    return isinstance(value, dict) and value.get("kind") == KIND


def holds_estimate(path: Path) -> bool:
    """Whether a file is an estimate's JSON; somebody else's file, so it never raises."""
    if path.suffix.lower() != ".json":
        return False
    data = read_bytes(path, MAX_JSON_BYTES)
    if isinstance(data, str) or KIND.encode() not in data:
        return False
    return is_estimate(JsonFile(path.name, data).value)
