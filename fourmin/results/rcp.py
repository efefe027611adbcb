"""Reference convergence points: how many epochs a benchmark needs at a batch size, and no fewer.

The method is MLCommons' for its training benchmarks. Of the reference runs at a batch size the
fastest and the slowest are dropped for the mean; the population deviation is that of all. A
submission's mean, made in the same way, must not lie significantly below: the smallest mean that
is accepted is mean - t * deviation * sqrt(1/n1 + 1/n2), t the 95% point of Student's t with
n1 + n2 - 2 degrees of freedom, n1 the reference runs that are left, n2 the submission's. (95% is
MLCommons' confidence; a benchmark's file states its own.) A point that is interpolated stands for
twice the submission's runs.

Which points are compared with has changed: before round 4.0 MLCommons' checker left out a point
whose smallest accepted mean lay above that between its neighbours (with the deviation of the runs
that are not dropped), from May 2024 on one whose mean does. Each round is scaled as it was.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from fourmin.base.canonical import loads_strict
from fourmin.results.plan import Plan
from fourmin.results.run_result import RunFacts
from fourmin.results.statistics import f_quantile, mean, sample_deviation, student_t_quantile
from fourmin.ruleset import load_ruleset, versions

Curve = Sequence[tuple[float, float]]
"""Epoch and accuracy of each evaluation of a run, ascending."""


@dataclass(frozen=True)
class ReferencePoint:
    """Epochs to the target at one batch size (images): mean, deviation, smallest accepted mean."""

    global_batch_size: int
    mean: float
    deviation: float
    minimum: float
    runs: int = 0
    """How many of them there are, those that the mean drops among them."""


@dataclass(frozen=True)
class Design:
    """How many runs a submission has, and how sure a refusal must be."""

    submission_runs: int
    confidence: float


@dataclass(frozen=True)
class References:
    """The reference points of one benchmark and round, by batch size, ascending.

    `points` are all of them; `pruned` those that are compared with: a point that converges
    slower than its neighbours say it should is left out, and so is every batch size below that
    of the fastest point.
    """

    design: Design
    points: tuple[ReferencePoint, ...]
    pruned: tuple[ReferencePoint, ...]
    curves: Mapping[int, Sequence[Curve]] = field(default_factory=dict)
    """Of batch sizes whose reference runs' evaluations are known: those of each run."""

    def best_within(self, epochs: float, global_batch_size: int) -> float | None:
        """The best accuracy that a reference run had after so many epochs or fewer.

        Of the largest batch size up to this one with curves: with smaller batches training needs
        no more epochs. None without one, and where each of its runs had ended before.
        """
        batches = [batch for batch in self.curves if batch <= global_batch_size]
        curves = self.curves[max(batches)] if batches else ()
        if not any(curve[-1][0] >= epochs for curve in curves):
            return None
        return max((best for curve in curves for at, best in curve if at <= epochs), default=None)

    def at(self, global_batch_size: int) -> ReferencePoint | None:
        """The point at a batch size, interpolated between its neighbours where there is none.

        Below the smallest batch size the smallest point stands; above the largest there is none.
        """
        below = [p for p in self.pruned if p.global_batch_size <= global_batch_size]
        above = [p for p in self.pruned if p.global_batch_size >= global_batch_size]
        if not above:
            return None
        if not below:
            return above[0]
        if below[-1] == above[0]:
            return above[0]
        return _interpolate(global_batch_size, below[-1], above[0], self.design)


@cache
def references(ruleset: str, benchmark: str, of_round: str | None = None) -> References | None:
    """The reference points of a benchmark, in the current round or another; None without any."""
    if ruleset not in versions():
        return None
    path = load_ruleset(ruleset).folder / "rcp" / f"{benchmark}.json"
    if not path.is_file():
        return None
    data: Any = loads_strict(path.read_bytes())
    named = of_round or data["current"]
    table = data["rounds"].get(named)
    if table is None:
        return None
    design = Design(int(data["submission_runs"]), float(data["confidence"]))
    runs = sorted((row["global_batch_size"], sorted(row["epochs"])) for row in table)
    points = tuple(_point(batch, epochs, epochs, design) for batch, epochs in runs)
    if named in data.get("pruned_by_minimum", ()):
        before = [_point(batch, epochs, epochs[1:-1], design) for batch, epochs in runs]
        kept = _prune(before, design, lambda point: point.minimum)
    else:
        kept = _prune(points, design, lambda point: point.mean)
    pruned = tuple(p for p in points if p.global_batch_size in kept)
    curves = {row["global_batch_size"]: row["curves"] for row in table if "curves" in row}
    return References(design, points, pruned, curves)


def mean_epochs(epochs: Sequence[float | None]) -> float | None:
    """A submission's mean: without the fastest and the slowest run, None if one left is None.

    None stands for a run that did not converge, which is slower than every other.
    """
    ordered = sorted(math.inf if value is None else float(value) for value in epochs)
    kept = ordered[1:-1]
    return mean(kept) if kept and math.isfinite(kept[-1]) else None


def scaling_factor(point: ReferencePoint, epochs: float, *, strict: bool = True) -> float | None:
    """What a score is multiplied by: 1 or more, None where the epochs are fewer than accepted."""
    if strict and epochs < point.minimum:
        return None
    return max(1.0, point.mean / epochs)


@dataclass(frozen=True)
class Convergence:
    """A campaign's mean epochs (None without a mean) and its reference (None without one).

    `below`: the batch is smaller than any reference's. The smallest one is then the reference,
    but fewer epochs than it accepts prove nothing.
    """

    epochs: float | None
    reference: ReferencePoint | None
    below: bool = False

    @property
    def too_few(self) -> str:
        """That the epochs are fewer than the reference accepts; empty where they are not."""
        least = self.reference
        if self.epochs is None or least is None or self.epochs >= least.minimum:
            return ""
        return (
            f"{self.epochs:.2f} epochs on average; the least that is accepted at batch "
            f"{least.global_batch_size} is {least.minimum:.2f}"
        )

    @property
    def factor(self) -> float | None:
        """What the score is multiplied by; None where it does not count.

        1 without a reference or a mean to compare.
        """
        if self.epochs is None or self.reference is None:
            return 1.0
        return scaling_factor(self.reference, self.epochs, strict=not self.below)


def convergence(plan: Plan, runs: Sequence[RunFacts]) -> Convergence:
    """How a campaign converged, by its plan and its runs, against the reference.

    Practice and the open division have no reference: there the settings are free. Above the
    largest batch size, where the closed division ends, the largest point stands.
    """
    epochs = mean_epochs([run.counted_epochs for run in runs])
    known = references(plan.ruleset, plan.benchmark)
    if known is None or plan.practice or plan.division != "closed":
        return Convergence(epochs, None)
    batch, compared = plan.configuration["global_batch_size"], known.pruned
    below = batch < compared[0].global_batch_size
    return Convergence(epochs, known.at(batch) or compared[-1], below)


def spread(plan: Plan, minutes: Sequence[float]) -> tuple[float, float] | None:
    """The deviation of log times, and the most that chance gives it: about shares of the mean.

    The most is where the variance over that of the reference runs' epochs has the 99% point of F.
    None without such runs, or two times.
    """
    known = references(plan.ruleset, plan.benchmark)
    if known is None or len(minutes) < 2:
        return None
    point = known.at(plan.configuration["global_batch_size"]) or known.pruned[-1]
    if not point.deviation:
        return None
    # The point's deviation has n in the denominator, and is small beside its mean.
    variance = (point.deviation / point.mean) ** 2 * point.runs / (point.runs - 1)
    most = f_quantile(0.99, len(minutes) - 1, point.runs - 1)
    own = sample_deviation([math.log(value) for value in minutes])
    return own, math.sqrt(variance * most)


def _point(
    global_batch_size: int, epochs: Sequence[float], deviating: Sequence[float], design: Design
) -> ReferencePoint:
    """A point from its runs' epochs, ascending; the deviation is that of `deviating`."""
    kept = epochs[1:-1]
    centre, whole = mean(kept), mean(deviating)
    deviation = math.sqrt(mean([(value - whole) ** 2 for value in deviating]))
    smallest = _minimum(centre, deviation, len(kept), design)
    return ReferencePoint(global_batch_size, centre, deviation, smallest, len(epochs))


def _minimum(centre: float, deviation: float, runs: int, design: Design) -> float:
    """The smallest mean that a submission's runs, two of them dropped, may have."""
    own = design.submission_runs - 2
    quantile = student_t_quantile(design.confidence, runs + own - 2)
    return centre - quantile * deviation * math.sqrt(1 / runs + 1 / own)


def _interpolate(
    batch: int, low: ReferencePoint, high: ReferencePoint, design: Design
) -> ReferencePoint:
    share = (batch - low.global_batch_size) / (high.global_batch_size - low.global_batch_size)
    centre = low.mean + share * (high.mean - low.mean)
    deviation = low.deviation + share * (high.deviation - low.deviation)
    smallest = _minimum(centre, deviation, 2 * design.submission_runs, design)
    return ReferencePoint(batch, centre, deviation, smallest, 2 * design.submission_runs)


def _prune(
    points: Sequence[ReferencePoint], design: Design, by: Callable[[ReferencePoint], float]
) -> set[int]:
    """The batch sizes that are left; a point is slow where `by` is high."""
    fastest = min(points, key=by)
    kept = [p for p in points if p.global_batch_size >= fastest.global_batch_size]
    index = 1
    while index < len(kept) - 1:
        batch = kept[index].global_batch_size
        between = _interpolate(batch, kept[index - 1], kept[index + 1], design)
        if by(kept[index]) > by(between):
            del kept[index]
        else:
            index += 1
    return {point.global_batch_size for point in kept}
