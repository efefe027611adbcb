"""How fast this machine is, so that a bound on time means the same on a slower one."""

from __future__ import annotations

import time


def bound(seconds: float) -> float:
    """`seconds` of CPU time, or as much longer as this machine is slower than a fast one.

    Such a one adds up two million numbers in 20 ms; few are so fast, and the others get more time.
    """
    started = time.process_time()
    total = 0
    for number in range(2_000_000):
        total += number
    return seconds * max(1.0, (time.process_time() - started) / 0.02)
