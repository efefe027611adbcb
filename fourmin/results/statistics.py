"""The statistics that scoring and comparison need, in plain Python so that validation is light."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import median


def mean(values: Sequence[float]) -> float:
    """Arithmetic mean, rounded once."""
    return math.fsum(values) / len(values)


def geometric_mean(values: Sequence[float]) -> float:
    """Of values that are all greater than 0."""
    return math.exp(mean([math.log(value) for value in values]))


def known_mean(values: Iterable[float | None]) -> float | None:
    """Mean of those that are known and finite; None where none is."""
    known = [value for value in values if value is not None and math.isfinite(value)]
    return mean(known) if known else None


def known_median(values: Iterable[float | None]) -> float | None:
    """Median of those that are known, of an even number the mean of the middle two."""
    known = [value for value in values if value is not None]
    return median(known) if known else None


def lower_quartile(values: Sequence[float]) -> float:
    """The 25% quantile, linear between the two nearest values: Hyndman and Fan's type 7."""
    ordered = sorted(values)
    place = (len(ordered) - 1) / 4
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def sample_deviation(values: Sequence[float]) -> float:
    """Standard deviation with n - 1 in the denominator; 0 for a single value."""
    if len(values) < 2:
        return 0.0
    centre = mean(values)
    return math.sqrt(math.fsum((v - centre) ** 2 for v in values) / (len(values) - 1))


def coefficient_of_variation(values: Sequence[float]) -> float:
    """Sample standard deviation over the mean."""
    return sample_deviation(values) / mean(values)


def student_t_cdf(t: float, degrees: float) -> float:
    """P(T <= t) for Student's t distribution.

    By the regularised incomplete beta function: Abramowitz and Stegun 26.7.1.
    """
    tail = 0.5 * _incomplete_beta(degrees / 2, 0.5, degrees / (degrees + t * t))
    return 1 - tail if t > 0 else tail


@cache
def student_t_quantile(probability: float, degrees: float) -> float:
    """The t with P(T <= t) = `probability`, by bisection to the last bits of a double.

    Raises ValueError unless 0 < probability < 1 and degrees > 0.
    """
    if not 0 < probability < 1 or not degrees > 0:
        raise ValueError("probability must lie between 0 and 1, degrees of freedom above 0")
    if probability < 0.5:
        return -student_t_quantile(1 - probability, degrees)
    return quantile(lambda t: student_t_cdf(t, degrees), probability)


def f_quantile(probability: float, above: float, below: float) -> float:
    """The f with P(F <= f) = `probability`, F of so many degrees of freedom above and below.

    By the regularised incomplete beta function: Abramowitz and Stegun 26.6.2.
    """
    return quantile(
        lambda f: 1 - _incomplete_beta(below / 2, above / 2, below / (below + above * f)),
        probability,
    )


def quantile(distribution: Callable[[float], float], probability: float) -> float:
    """Where a distribution over the positive numbers reaches `probability`, by bisection."""
    low, high = 0.0, 1.0
    while distribution(high) < probability:
        low, high = high, high * 2
    for _ in range(200):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        if distribution(middle) < probability:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def log_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """The 95% t interval of the mean of log `values`, exponentiated; None for fewer than two.

    All values must be greater than 0.
    """
    if len(values) < 2:
        return None
    logs = [math.log(value) for value in values]
    half = student_t_quantile(0.975, len(logs) - 1) * sample_deviation(logs) / math.sqrt(len(logs))
    return math.exp(mean(logs) - half), math.exp(mean(logs) + half)


def says_something(interval: tuple[float, float], values: int) -> bool:
    """Whether the interval of a mean of so many values tells a reader anything.

    Of two values Student's t is 12.7, and beyond ten times from end to end nothing is known.
    """
    return values > 2 and interval[1] <= 10 * interval[0]


def log_prediction_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """Where one more of such values lies with 95%, from the t distribution of their logs.

    None for fewer than two, and where they have no spread to tell from. All values must be
    greater than 0.
    """
    logs = [math.log(value) for value in values]
    deviation = sample_deviation(logs)
    if deviation == 0:
        return None
    half = student_t_quantile(0.975, len(logs) - 1) * deviation * math.sqrt(1 + 1 / len(logs))
    return math.exp(mean(logs) - half), math.exp(mean(logs) + half)


@dataclass(frozen=True)
class Welch:
    """Welch's test of two means: t, its degrees of freedom (Welch-Satterthwaite), two-sided p,
    and the standard error of the difference of the means.
    """

    t: float
    degrees: float
    p: float
    error: float


def welch_test(left: Sequence[float], right: Sequence[float]) -> Welch | None:
    """Welch's two-sided t test of `left` against `right`; None where neither has any spread.

    Raises ValueError for fewer than two values on a side.
    """
    if len(left) < 2 or len(right) < 2:
        raise ValueError("a spread needs two values on each side")
    a, b = (sample_deviation(side) ** 2 / len(side) for side in (left, right))
    if a + b == 0:
        return None
    error = math.sqrt(a + b)
    t = (mean(left) - mean(right)) / error
    degrees = satterthwaite([(a, len(left) - 1), (b, len(right) - 1)])
    return Welch(t, degrees, 2 * student_t_cdf(-abs(t), degrees), error)


def signed_rank_interval(
    values: Sequence[float], confidence: float
) -> tuple[float, float, float] | None:
    """Hodges and Lehmann's estimate of the centre of symmetric `values`, and its interval, which
    inverts Wilcoxon's exact signed-rank test; None where they are too few for one.
    """
    rank = _signed_rank(len(values), (1 - confidence) / 2)
    if rank == 0:
        return None
    walsh = sorted((a + b) / 2 for i, a in enumerate(values) for b in values[i:])
    middle = len(walsh) // 2
    return mean([walsh[middle], walsh[~middle]]), walsh[rank - 1], walsh[-rank]


@cache
def _signed_rank(count: int, tail: float) -> int:
    """The most values w, from 0 on, of the rank sum that together are at most so likely."""
    ways = [1]
    for rank in range(1, count + 1):
        padded = [*ways, *([0] * rank)]
        ways = [a + b for a, b in zip(padded, [*([0] * rank), *ways], strict=True)]
    left, number = tail * 2**count, 0
    while number < len(ways) and ways[number] <= left:
        left -= ways[number]
        number += 1
    return number


def satterthwaite(parts: Sequence[tuple[float, float]]) -> float:
    """Degrees of freedom of a sum of estimated variances, each with its own (Welch-Satterthwaite).

    All of them together where no variance is above 0.
    """
    total = math.fsum(variance for variance, _ in parts)
    if total == 0:
        return math.fsum(degrees for _, degrees in parts)
    return total**2 / math.fsum(variance**2 / degrees for variance, degrees in parts)


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """Regularised incomplete beta function I_x(a, b), by its continued fraction (DLMF 8.17.22)."""
    if x <= 0:
        return 0.0
    if x >= 1:
        return 1.0
    if x > (a + 1) / (a + b + 2):
        return 1 - _incomplete_beta(b, a, 1 - x)
    front = math.exp(
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    )
    # Lentz's method, with the usual floor against division by zero.
    tiny = 1e-300
    c, d = 1.0, 1 - (a + b) * x / (a + 1)
    d = 1 / (d if abs(d) > tiny else tiny)
    fraction = d
    for m in range(1, 1000):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for numerator in (even, odd):
            d = 1 + numerator * d
            d = 1 / (d if abs(d) > tiny else tiny)
            c = 1 + numerator / c
            c = c if abs(c) > tiny else tiny
            change = c * d
            fraction *= change
        if abs(change - 1) < 1e-16:
            break
    return front * fraction / a
