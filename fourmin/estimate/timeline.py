"""One training step on a worker: forward, backward, and the buckets that are reduced meanwhile.

The backward pass takes two thirds of the step's arithmetic. A bucket can leave once its last
gradient is there and the bucket before it has been reduced; the step ends when the last one is.
What is hidden under the backward pass is not free: a collective takes multiprocessors, memory and
bus away from it. That share is one of the two fitted numbers (see `fitted.toml`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fourmin.estimate.collectives import Cost

BACKWARD_SHARE = 2 / 3


@dataclass(frozen=True)
class Reduction:
    """One bucket's all-reduce: bytes as sent, when in the backward pass it is ready (0 to 1), the
    algorithm and what it costs.
    """

    nbytes: int
    ready: float
    algorithm: str
    cost: Cost

    @property
    def seconds(self) -> float:
        return self.cost.seconds


@dataclass(frozen=True)
class StepTime:
    """A step's parts in seconds; together they are `seconds`.

    `exposed` is communication that outlasts the backward pass, `contention` what hidden
    communication costs the backward pass, `statistics` what shared batch statistics take.
    """

    compute: float
    exposed: float
    contention: float
    statistics: float
    communication: float
    """All time in collectives of gradients, hidden or not; no part of the sum."""

    @property
    def seconds(self) -> float:
        return self.compute + self.exposed + self.contention + self.statistics

    @property
    def efficiency(self) -> float:
        """Scaling efficiency: of one worker alone with the same images."""
        return self.compute / self.seconds


def overlap(
    passes: Sequence[float],
    reductions: Sequence[Reduction],
    overlap_cost: float,
    statistics: float = 0.0,
) -> StepTime:
    """The step of a worker whose forward and backward passes take `passes` seconds, one for each
    micro-batch; gradients are reduced during the last. `overlap_cost` is 0 to 1.
    """
    compute = sum(passes)
    last = passes[-1]
    start = compute - last * BACKWARD_SHARE
    end = start
    for reduction in reductions:
        end = max(end, start + last * BACKWARD_SHARE * reduction.ready) + reduction.seconds
    communication = sum(reduction.seconds for reduction in reductions)
    exposed = max(0.0, end - compute)
    hidden = max(0.0, communication - exposed)
    return StepTime(compute, exposed, overlap_cost * hidden, statistics, communication)
