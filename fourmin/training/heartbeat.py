"""What rank 0 tells the command while it trains, so that a run that stands still is noticed.

A collective ends by its timeout when a rank does not come. Where all ranks hang outside of one, on
a file system that does not answer or in the only worker, nothing else would.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

from fourmin.launch.control import ControlClient

T = TypeVar("T")

TIMEOUTS = 2
"""Rank 0 may wait for others as long as a collective lets it, and be as late itself."""
LONGEST = 3
"""How many times the longest time between two batches comes on top of that."""


class Heartbeat:
    """Rank 0's reports: at which batch it is, and how long the next may take to come.

    `control` is None on other ranks, which report nothing: each batch ends in a collective with
    rank 0. `timeout_seconds` is a collective's.
    """

    def __init__(self, control: ControlClient | None, timeout_seconds: float) -> None:
        self._control = control
        self._base = TIMEOUTS * timeout_seconds
        self._longest = 0.0
        self._last: float | None = None

    def took(self, seconds: float) -> None:
        self._longest = max(self._longest, seconds)

    def through(self, batches: Iterable[T], what: str) -> Iterator[T]:
        """`batches` as they are, each reported as a part of `what`."""
        self._report(f"waiting for the first batch of {what}")
        for number, batch in enumerate(batches, start=1):
            self._report(f"batch {number} of {what}")
            yield batch

    def stop(self) -> None:
        """The run's clock has stopped, and what follows may take any time."""
        if self._control:
            self._control.stopped()
        self._last = None

    def _report(self, doing: str) -> None:
        if self._control is None:
            return
        now = time.monotonic()
        if self._last is not None:
            self.took(now - self._last)
        self._last = now
        self._control.progress(doing, self._base + LONGEST * self._longest)
