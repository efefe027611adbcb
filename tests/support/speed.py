"""How much work something is, so that a bound means the same on any machine, busy or not."""

from __future__ import annotations

import gc
import resource
from collections.abc import Callable

SECOND = 50.0
"""Units in a second of a fast machine: adding up two million numbers, a unit, takes it 20 ms."""
_TRIES = 6


def effort(work: Callable[[], object], at_most: float) -> float:
    """CPU time of `work`, its ended children included, over that of a unit measured beside it.

    The least of several tries: there are more only while it is above `at_most`, since noise adds
    and never takes away.
    """
    least = float("inf")
    # What thousands of tests before have left is not looked through for every new object.
    gc.collect()
    gc.freeze()
    try:
        for _ in range(_TRIES):
            before, taken, after = _seconds(_unit), _seconds(work), _seconds(_unit)
            least = min(least, taken / max(before, after))
            if least <= at_most:
                break
    finally:
        gc.unfreeze()
    return least


def _unit() -> int:
    total = 0
    for number in range(2_000_000):
        total += number
    return total


def _seconds(work: Callable[[], object]) -> float:
    before = _cpu()
    work()
    return _cpu() - before


def _cpu() -> float:
    own, children = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime
