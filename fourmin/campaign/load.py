"""Watches whether something else takes this machine's processors before and while runs train."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from fourmin.campaign.events import Event, RunFinished, RunStarting

MOST_SHARE = 0.1
"""Of the processors, that other processes may take without a word."""
_STAT = Path("/proc/stat")


def busy_seconds(stat: str, processors: set[int]) -> float:
    """How long these processors have worked since the machine started, by /proc/stat's text."""
    ticks = 0
    for line in stat.splitlines():
        name, *values = line.split()
        if name[:3] == "cpu" and name[3:].isdigit() and int(name[3:]) in processors:
            user, nice, system, _idle, _waiting, *interrupts = map(int, values[:8])
            ticks += user + nice + system + sum(interrupts)
    return ticks / os.sysconf("SC_CLK_TCK")


class LoadWatch:
    """An observer of a campaign on this machine; `say` is told what disturbs."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._processors = os.sched_getaffinity(0)
        self._since = self._now()

    def _now(self) -> tuple[float, float]:
        """The time, and how long the processors have worked for others than this command."""
        own = sum(os.times()[:4])
        busy = busy_seconds(_STAT.read_text(), self._processors) if _STAT.is_file() else own
        return time.monotonic(), busy - own

    def look(self, when: str) -> None:
        """Say so where others took a share of the processors since the last look."""
        before, self._since = self._since, self._now()
        elapsed, others = (now - then for now, then in zip(self._since, before, strict=True))
        share = others / max(elapsed * len(self._processors), 1e-9)
        if share > MOST_SHARE:
            self._say(
                f"warning: other processes took {min(share, 1):.0%} of the processors {when}: the "
                "times are theirs, too; end what else runs"
            )

    def take(self, event: Event) -> None:
        if isinstance(event, RunStarting):
            self._since = self._now()
        elif isinstance(event, RunFinished):
            self.look(f"in run {event.run}")
