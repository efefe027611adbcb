"""Comparing values that somebody else wrote: 1, 1.0 and true are three values."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

MOST_DIFFERENCES = 5


def same(left: Any, right: Any) -> bool:
    """Whether two JSON values are the same, types included; the order of keys is free."""
    return _spelling(left) == _spelling(right)


def differences(written: Any, expected: Any, pointer: str = "") -> Iterator[str]:
    """Where two JSON values differ, innermost places first, in words."""
    if isinstance(written, Mapping) and isinstance(expected, Mapping):
        for name in sorted({*written, *expected}):
            inner = f"{pointer}/{name}"
            if name not in written:
                yield f"{inner} is missing"
            elif name not in expected:
                yield f"{inner} does not belong there"
            else:
                yield from differences(written[name], expected[name], inner)
    elif isinstance(written, list) and isinstance(expected, list) and len(written) == len(expected):
        for index, (left, right) in enumerate(zip(written, expected, strict=True)):
            yield from differences(left, right, f"{pointer}/{index}")
    elif not same(written, expected):
        yield f"{pointer or 'the value'} is {short(written)}, recomputed {short(expected)}"


def short(value: Any, limit: int = 60) -> str:
    """A value for a message."""
    text = json.dumps(value, default=str)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _spelling(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)
