"""Which difference some runs can show, and how many would show one: docs/method.md.

Differences are of means of logs, so that `math.exp` makes ratios of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import NormalDist

from fourmin.results.statistics import quantile, sample_deviation, student_t_quantile

POWER = 0.9
"""How often two results that differ by the smallest detectable difference are told apart."""
PLANNED_POWER = 0.95
"""How often as many runs as are asked for tell."""
SURE_OF_SPREAD = 0.9
"""The runs that are asked for are enough for a spread that is above the true one so often."""


def smallest_detectable(values: Sequence[float]) -> float | None:
    """The share by which another result of as many values with this spread must differ from
    this one for a two-sided test at 5% to say so nine times in ten; None below two values.

    All values must be greater than 0.
    """
    if len(values) < 2:
        return None
    deviation = sample_deviation([math.log(value) for value in values])
    return share_found(deviation * math.sqrt(2 / len(values)), 2 * len(values) - 2, 0.05)


def share_found(error: float, degrees: float, level: float) -> float:
    """The true share that a two-sided test at `level` finds nine times in ten, where the
    difference of logs has this standard error.
    """
    quantiles = student_t_quantile(1 - level / 2, degrees) + student_t_quantile(POWER, degrees)
    return math.expm1(quantiles * error)


def runs_to_tell(variance: float, degrees: float, distance: float, confidence: float) -> int:
    """How many values on each side a one-sided test at 1 - `confidence` needs to tell `distance`.

    `variance` is the sum of both sides' variances of one value, estimated with `degrees` of
    freedom: its upper bound is planned with, so that the number holds. `distance` is above 0.
    """
    most = variance * degrees / chi_square_quantile(1 - SURE_OF_SPREAD, degrees)

    def needed(quantile: Callable[[float], float]) -> float:
        return most * ((quantile(confidence) + quantile(PLANNED_POWER)) / distance) ** 2

    # The normal distribution asks for a little less than Student's.
    number = max(2, math.ceil(needed(NormalDist().inv_cdf)))
    while needed(lambda p, n=number: student_t_quantile(p, 2 * n - 2)) > number:  # type: ignore[misc]
        number += 1
    return number


def chi_square_quantile(probability: float, degrees: float) -> float:
    """The x with P(X <= x) = `probability`, 0 < `probability` < 1, by bisection."""
    return quantile(lambda x: _chi_square_cdf(x, degrees), probability)


def _chi_square_cdf(x: float, degrees: float) -> float:
    """The regularised lower incomplete gamma function by its series: DLMF 8.11.4."""
    a, half = degrees / 2, x / 2
    if half <= 0:
        return 0.0
    term = total = math.exp(a * math.log(half) - half - math.lgamma(a + 1))
    k = 1
    while term > total * 1e-17:
        term *= half / (a + k)
        total += term
        k += 1
    return min(1.0, total)
