"""Values of JSON that somebody else wrote: what is asked for, or nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def number(value: Any) -> float | None:
    """`value` if it is a number (no boolean), otherwise None."""
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def listed(value: Any) -> list[Any]:
    """`value` if it is an array, otherwise an empty one."""
    return value if isinstance(value, list) else []


def mapping(value: Any) -> Mapping[str, Any]:
    """`value` if it is an object, otherwise an empty one."""
    return value if isinstance(value, Mapping) else {}
