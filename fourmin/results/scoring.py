"""Ruleset 1.0's score: drop the fastest and the slowest run, mean of the rest."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fourmin.results.statistics import coefficient_of_variation, log_interval, mean

SMALLEST_SET = 3
"""Fewer runs than this leave nothing when the fastest and the slowest are dropped."""


@dataclass(frozen=True)
class Score:
    """A benchmark result in minutes, with its spread; None where the runs do not give it."""

    minutes: float | None
    ci95: tuple[float, float] | None
    cv: float | None

    def scaled(self, factor: float | None) -> float | None:
        """The minutes times what a reference demands; None where that says they do not count."""
        return None if self.minutes is None or factor is None else self.minutes * factor


def score(minutes: Sequence[float | None]) -> Score:
    """Score run results; None stands for a run that did not converge.

    A run that did not converge is slower than every other, so one of them may be the dropped
    slowest; more, and there is no result. The coefficient of variation and the 95% interval (of
    the mean of log time, exponentiated) are over all runs, and None if one did not converge.
    """
    converged = [value for value in minutes if value is not None and value > 0]
    failed = len(minutes) - len(converged)
    kept = [minutes[index] for index in counted(minutes)]
    times = [value for value in kept if value is not None and value > 0]
    result = mean(times) if times and len(times) == len(kept) else None
    whole = converged if not failed and converged else None
    return Score(
        minutes=result,
        ci95=log_interval(whole) if whole else None,
        cv=coefficient_of_variation(whole) if whole and len(whole) > 1 else None,
    )


def counted(minutes: Sequence[float | None]) -> list[int]:
    """Which runs the benchmark result is the mean of: all but the fastest and the slowest.

    Positions in `minutes`, by time. Of fewer than three runs none is dropped.
    """
    times = [math.inf if value is None or value <= 0 else value for value in minutes]
    order = sorted(range(len(times)), key=times.__getitem__)
    return order[1:-1] if len(order) >= SMALLEST_SET else order
