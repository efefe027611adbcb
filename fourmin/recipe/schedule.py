"""The learning rate as a function of the step: plain float64 arithmetic, no state."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from fourmin.base.errors import FourminError
from fourmin.recipe.phases import growths, parse_points, rate_at

if TYPE_CHECKING:
    from fourmin.recipe.configuration import Configuration


@dataclass(frozen=True)
class LearningRateSchedule:
    """Warmup, then polynomial decay, step decay or a constant rate.

    A step is an optimizer step that was performed, counted from 0: after a step skipped for an
    FP16 overflow the same step number comes again, so the schedule and the optimizer never part.
    Epochs may be fractions; they become steps by rounding to the nearest whole step. With
    w = warmup steps and s the step:

    - warmup, s < w: start + (base - start) * f, f = s / w (linear) or (s / w)^2 (quadratic). The
      first step has the start rate (0 by default, as in MLPerf's reference); step w has base.
    - poly: end + (base - end) * (1 - (s - w) / D)^power, with D = decay_epochs in steps - w + 1
      (`decay_steps`); the end rate from s = w + D on. This is MLPerf's reference with its training
      length as decay_epochs: decay_epochs is counted from the first epoch, warmup included, and
      the + 1 keeps the last step of the decay above the end rate. D is what
      lars_opt_learning_rate_decay_steps logs there; a published D becomes
      decay_epochs = (D - 1 + w) / steps_per_epoch.
    - step: base * factor^k, k = number of milestones (epochs) that are past at step s. A milestone
      within the warmup takes effect after it. Those at which the batch grows instead
      (`largest_batch`) do not count.
    - constant: base.
    - points: straight lines between `learning_rate_points`, by the epochs that are over.

    Where phases have batches of their own, an epoch counts as `steps_per_epoch` steps all the same:
    the rate is one of epochs, and `stretches` has (first epoch, its steps) of each phase.

    Raises FourminError for fewer than one step an epoch, a polynomial that ends before the warmup
    does, or milestones that do not increase.
    """

    config: Configuration
    steps_per_epoch: int
    stretches: tuple[tuple[int, int], ...] = ()

    @classmethod
    def over(cls, config: Configuration, train_samples: int) -> LearningRateSchedule:
        """That of a run over so many images. Raises FourminError as above."""
        steps = [(first, own.steps_per_epoch(train_samples)) for first, own in config.stretches()]
        return cls(config, max(1, config.steps_per_epoch(train_samples)), tuple(steps))

    def __post_init__(self) -> None:
        if min(self.steps_per_epoch, *(steps for _, steps in self.stretches), 1) < 1:
            raise FourminError(
                "an epoch has no full step",
                "the dataset has fewer images than the global batch",
                "use a smaller global_batch_size",
            )
        config = self.config
        if config.learning_rate_decay == "poly" and self.decay_steps < 2:
            raise FourminError(
                f"decay_epochs={config.decay_epochs} ends before "
                f"warmup_epochs={config.warmup_epochs}",
                "decay_epochs counts from the first epoch, warmup included",
                "use a greater decay_epochs",
            )
        if config.learning_rate_decay == "points":
            parse_points(config.learning_rate_points)
        milestones = config.decay_milestones
        if any(b <= a for a, b in pairwise(milestones)):
            raise FourminError(f"decay_milestones {milestones} must increase")

    @property
    def warmup_steps(self) -> int:
        """Number of steps before the base rate."""
        return round(self.config.warmup_epochs * self.steps_per_epoch)

    @property
    def decay_steps(self) -> int:
        """D above: steps from the base rate to the end rate of the polynomial."""
        return round(self.config.decay_epochs * self.steps_per_epoch) - self.warmup_steps + 1

    def steps_of(self, epoch: int) -> int:
        """Steps of an epoch, counted from 1."""
        found = [steps for first, steps in self.stretches if first <= epoch]
        return found[-1] if found else self.steps_per_epoch

    def steps_before(self, epoch: int) -> int:
        """Steps of all epochs before an epoch."""
        firsts = [first for first, _ in self.stretches if first < epoch] or [1]
        ends = zip(firsts, [*firsts[1:], epoch], strict=True)
        return sum((end - first) * self.steps_of(first) for first, end in ends)

    def _even(self, step: int) -> float:
        """`step` as if every epoch had `steps_per_epoch`; that of one batch size is left exact."""
        begun = [first for first, _ in self.stretches if self.steps_before(first) <= step]
        if not begun:
            return step
        inside = step - self.steps_before(begun[-1])
        epochs = begun[-1] - 1
        return epochs * self.steps_per_epoch + inside * self.steps_per_epoch / self.steps_of(
            begun[-1]
        )

    def __call__(self, step: int) -> float:
        """The learning rate of performed step `step`, counted from 0."""
        if step < 0:
            raise ValueError(f"step {step} is negative")
        config = self.config
        base = config.base_learning_rate
        at = self._even(step)
        if config.learning_rate_decay == "points":
            return rate_at(config, at / self.steps_per_epoch)
        if at < self.warmup_steps:
            fraction = at / self.warmup_steps
            if config.warmup_shape == "quadratic":
                fraction *= fraction
            start = config.warmup_start_learning_rate
            return start + (base - start) * fraction
        if config.learning_rate_decay == "poly":
            elapsed = min(at - self.warmup_steps, self.decay_steps)
            remaining = _power(1.0 - elapsed / self.decay_steps, config.decay_poly_power)
            end = config.end_learning_rate
            return end + (base - end) * remaining
        if config.learning_rate_decay == "step":
            for milestone in config.decay_milestones[growths(config) :]:
                if at >= round(milestone * self.steps_per_epoch):
                    base *= config.decay_factor
        return base


def _power(x: float, exponent: float) -> float:
    """x ** exponent; small whole exponents by multiplication, the same to the bit anywhere."""
    if exponent != int(exponent) or not 1 <= exponent <= 4:
        return float(x**exponent)
    result = x
    for _ in range(int(exponent) - 1):
        result *= x
    return result
