"""Values of JSON that somebody else wrote: what is asked for, or nothing."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from fourmin.base.errors import FourminError

SIZE_UNITS = {"bytes": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def parse_size(text: str) -> int:
    """Bytes, from such as 65536, 64KiB or 1GiB. Raises FourminError."""
    match = re.fullmatch(r"([0-9]+) ?([KMG]iB|B?)", text.strip(), re.IGNORECASE)
    if match is None:
        raise FourminError(f"size {text!r} makes no sense", next_step="such as 65536, 64KiB, 1GiB")
    units = {unit.lower(): size for unit, size in SIZE_UNITS.items()}
    return int(match[1]) * units[match[2].lower() or "b"]


def number(value: Any) -> float | None:
    """`value` if it is a number (no boolean), otherwise None."""
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def listed(value: Any) -> list[Any]:
    """`value` if it is an array, otherwise an empty one."""
    return value if isinstance(value, list) else []


def mapping(value: Any) -> Mapping[str, Any]:
    """`value` if it is an object, otherwise an empty one."""
    return value if isinstance(value, Mapping) else {}
