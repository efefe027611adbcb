"""L-BFGS as a coordinator drives it: vectors stay where their shards are, numbers travel.

That is Sandblaster's way (Dean et al. 2012, "Large scale distributed deep networks", section 4.2).
The recursion is Nocedal and Wright's algorithm 7.4 ("Numerical optimization", 2nd edition) on the
coefficients of s, y and g instead of on vectors (Chen et al. 2014, "Large-scale L-BFGS using
MapReduce", algorithm 3): an iteration asks for its dot products all at once, and makes one vector.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

DECREASE, CURVATURE = 1e-4, 0.9
"""c1 and c2 of the Wolfe conditions, as Nocedal and Wright advise for quasi-Newton methods."""

MOST_EVALUATIONS = 25
"""Of one line search."""

LEAST_CURVATURE = 1e-10
"""A pair with a smaller s.y is not remembered; with `LEAST_SLOPE`, torch.optim.LBFGS's."""

LEAST_SLOPE = 1e-9


class Vectors(Protocol):
    """Named vectors in float64, all as long as "x", in slices that stay on their shards."""

    def dots(self, left: Sequence[str], right: Sequence[str]) -> list[list[float]]:
        """The dot product of each vector on the left, a row, with each on the right."""

    def absolute_sum(self, name: str) -> float:
        """The sum of a vector's absolute values."""

    def combine(self, target: str, terms: Mapping[str, float]) -> None:
        """Make a vector, new or not, the sum of others (and itself) times these coefficients."""

    def evaluate(self, at: str, gradient: str) -> float:
        """The loss where a vector points to; its gradient becomes another vector."""


@dataclass(frozen=True)
class Point:
    """Of a line: how far along its direction, the loss, and the loss's derivative there."""

    step: float
    loss: float
    slope: float


class LBFGS:
    """Minimizes the loss from "x" on, which it moves."""

    def __init__(
        self, vectors: Vectors, *, history: int, step: float = 1.0, line_search: bool = True
    ) -> None:
        """`history`: pairs (s, y) that are remembered. `step`: the first step that a line search
        tries, or the fixed one without it. As torch.optim.LBFGS does, the very first one is
        divided by the gradient's absolute sum where that is above 1.
        """
        self._vectors = vectors
        self._history = history
        self._step = step
        self._line_search = line_search
        self._names = [f"{kind}{slot}" for kind in "sy" for slot in range(history)] + ["g"]
        self._gram = np.zeros((len(self._names),) * 2)
        """Dot products of the vectors of these names; 0 for those that are not there yet."""
        self._slots: list[int] = []
        """Where the pairs are, the oldest first."""
        self.loss = math.inf
        """At "x"."""

    def minimize(self) -> Iterator[bool]:
        """Yields after each evaluation, the first of which is at "x": whether it was that of the
        point where "x" is now. Ends where no step leads to a lower loss.
        """
        self.loss = self._vectors.evaluate("x", "g")
        yield True
        first = self._step * min(1.0, 1.0 / max(self._vectors.absolute_sum("g"), LEAST_SLOPE))
        while True:
            coefficients, slope = self._direction()
            if not slope <= -LEAST_SLOPE:
                return
            self._vectors.combine("d", coefficients)
            start = Point(0.0, self.loss, slope)
            search = strong_wolfe(start, first) if self._line_search else _one(first)
            try:
                step = next(search)
                while True:
                    point = self._at(step)
                    step = search.send(point)
                    yield False
            except StopIteration as end:
                found: Point = end.value
            if found is not point:
                yield False
                if found is start:
                    return
                point = self._at(found.step)
            self._accept(start, point)
            yield True
            first = self._step

    def _direction(self) -> tuple[dict[str, float], float]:
        """Minus the approximate inverse Hessian times g, as coefficients of vectors; its slope."""
        history, present = self._history, [-1]
        for slot in self._slots:
            present += [slot, history + slot]
        new = [*present[-2:], -1] if self._slots else [-1]
        rows = self._vectors.dots(
            [self._names[index] for index in new], [self._names[index] for index in present]
        )
        self._gram[np.ix_(new, present)] = rows
        self._gram[np.ix_(present, new)] = np.transpose(rows)
        gram, alpha = self._gram, {}
        delta = np.zeros(len(gram))
        delta[-1] = -1.0
        for slot in reversed(self._slots):
            alpha[slot] = delta @ gram[slot] / gram[slot, history + slot]
            delta[history + slot] -= alpha[slot]
        if self._slots:
            s, y = self._slots[-1], history + self._slots[-1]
            delta *= gram[s, y] / gram[y, y]
        for slot in self._slots:
            beta = delta @ gram[history + slot] / gram[slot, history + slot]
            delta[slot] += alpha[slot] - beta
        named = {self._names[index]: float(delta[index]) for index in present}
        return named, float(delta @ gram[-1])

    def _at(self, step: float) -> Point:
        """Evaluate at "x" plus so much of the direction; the gradient there is "new g"."""
        self._vectors.combine("new x", {"x": 1.0, "d": step})
        loss = self._vectors.evaluate("new x", "new g")
        return Point(step, loss, self._vectors.dots(["new g"], ["d"])[0][0])

    def _accept(self, start: Point, point: Point) -> None:
        """Move to the point that was evaluated last."""
        if point.step * (point.slope - start.slope) > LEAST_CURVATURE:
            full = len(self._slots) == self._history
            slot = self._slots.pop(0) if full else len(self._slots)
            self._slots.append(slot)
            self._vectors.combine(f"s{slot}", {"d": point.step})
            self._vectors.combine(f"y{slot}", {"new g": 1.0, "g": -1.0})
        self._vectors.combine("x", {"new x": 1.0})
        self._vectors.combine("g", {"new g": 1.0})
        self.loss = point.loss


Search = Generator[float, Point, Point]
"""Yields how far to go, is sent the point there, and returns the one that it takes."""


def _one(step: float) -> Search:
    return (yield step)


def strong_wolfe(start: Point, first: float) -> Search:
    """Search for a point that satisfies the strong Wolfe conditions, or the best that is found.

    Nocedal and Wright's algorithms 3.5 and 3.6. `start` is where the line begins, downhill, and
    `first` the first step to try. A loss that is not finite is too high. Returns `start` itself
    where nothing is better.
    """
    before, point = start, (yield first)
    for count in range(1, MOST_EVALUATIONS):
        if not _decreases(start, point) or (count > 1 and point.loss >= before.loss):
            return (yield from _zoom(start, before, point, MOST_EVALUATIONS - count))
        if abs(point.slope) <= -CURVATURE * start.slope:
            return point
        if point.slope >= 0:
            return (yield from _zoom(start, point, before, MOST_EVALUATIONS - count))
        step, most = _cubic(before, point), 10 * point.step
        if not point.step < step < most:
            step = most
        before, point = point, (yield step)
    return point if _decreases(start, point) else before


def _zoom(start: Point, low: Point, high: Point, most: int) -> Search:
    """The same between two points, of which `low` decreases enough and has the lower loss."""
    for _ in range(most):
        margin = 0.1 * abs(high.step - low.step)
        least, greatest = sorted((low.step, high.step))
        point = yield min(max(_cubic(low, high), least + margin), greatest - margin)
        if not _decreases(start, point) or point.loss >= low.loss:
            high = point
        else:
            if abs(point.slope) <= -CURVATURE * start.slope:
                return point
            if point.slope * (high.step - low.step) >= 0:
                high = low
            low = point
    return low


def _decreases(start: Point, point: Point) -> bool:
    return point.loss <= start.loss + DECREASE * point.step * start.slope


def _cubic(a: Point, b: Point) -> float:
    """Where the cubic through both points is lowest (Nocedal and Wright, equation 3.59), or
    between them where there is no such cubic.
    """
    d1 = a.slope + b.slope - 3 * (a.loss - b.loss) / (a.step - b.step)
    square = d1 * d1 - a.slope * b.slope
    if math.isfinite(square) and square >= 0:
        d2 = math.copysign(math.sqrt(square), b.step - a.step)
        bottom = b.slope - a.slope + 2 * d2
        if bottom:
            return b.step - (b.step - a.step) * (b.slope + d2 - d1) / bottom
    return (a.step + b.step) / 2
