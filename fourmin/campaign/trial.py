"""Before run 1 of several nodes: each is tried by itself, and what is odd about one is told."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence

from fourmin.base.errors import FourminError
from fourmin.launch import Launcher
from fourmin.launch.trial import Trial
from fourmin.recipe.configuration import Configuration

SLOWER = 1.10
"""A node that takes so many times the median is named: a synchronous step waits for it."""
PAUSE_SECONDS = 10.0
"""How long Ctrl-C is waited for when there is one, before anything is registered."""


def slow_nodes(trials: Sequence[Trial]) -> dict[str, str]:
    """Each node that is slow, and in what it is."""
    found: dict[str, list[str]] = {}
    for what, times in (
        ("steps", {one.name: one.step_ms for one in trials}),
        ("all-reduces", {one.name: one.allreduce_ms for one in trials}),
    ):
        middle = statistics.median(times.values())
        for name, ms in times.items():
            if ms > SLOWER * middle:
                more = f"{ms / middle - 1:.0%} slower than the median"
                found.setdefault(name, []).append(f"{what} {more} ({ms:.3g} ms, {middle:.3g})")
    return {name: "; ".join(each) for name, each in found.items()}


def told(trials: Sequence[Trial]) -> Iterator[tuple[str, str]]:
    """What is odd about which node."""
    yield from ((one.name, problem) for one in trials for problem in one.problems)
    yield from slow_nodes(trials).items()


def try_nodes(
    launcher: Launcher,
    configuration: Configuration,
    say: Callable[[str], None],
    *,
    exclude_slow: bool,
) -> None:
    """Try the nodes, tell what is odd, and leave slow ones out where that is wanted.

    Raises FourminError where too few are left.
    """
    trials = launcher.try_nodes(configuration)
    if not trials:
        return
    for name, what in told(trials):
        say(f"node {name}: {what}")
    slow = slow_nodes(trials)
    if not slow:
        step = statistics.median(one.step_ms for one in trials)
        say(f"{len(trials)} nodes tried alone: a step takes {step:.3g} ms, none is slower by "
            f"{SLOWER - 1:.0%}")  # fmt: skip
    elif not exclude_slow:
        say(f"nothing is registered yet: Ctrl-C, then --exclude-slow on more nodes than are "
            f"needed; goes on in {PAUSE_SECONDS:.0f} s")  # fmt: skip
        time.sleep(PAUSE_SECONDS)
    elif len(trials) - len(slow) < configuration.nodes:
        raise FourminError(
            f"{len(slow)} of {len(trials)} nodes are slow, and {configuration.nodes} are needed",
            "\n".join(f"node {name}: {what}" for name, what in slow.items()),
            "an allocation with more nodes than the run needs, such as --directive --nodes=N; or "
            "leave --exclude-slow out",
        )
    else:
        say(f"left out: {', '.join(slow)}")
        launcher.leave_out([*slow])
