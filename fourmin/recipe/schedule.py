"""The learning rate as a function of the step: plain float64 arithmetic, no state."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from fourmin.base.errors import FourminError

if TYPE_CHECKING:
    from fourmin.recipe.configuration import Configuration


@dataclass(frozen=True, kw_only=True)
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
      within the warmup takes effect after it.
    - constant: base.

    Raises FourminError for unknown names, fewer than one step an epoch, a polynomial that ends
    before the warmup does, or milestones that do not increase.
    """

    steps_per_epoch: int
    base_learning_rate: float
    end_learning_rate: float = 1e-4
    learning_rate_decay: str = "poly"
    decay_poly_power: float = 2.0
    decay_epochs: float = 0.0
    decay_milestones: tuple[float, ...] = ()
    decay_factor: float = 0.1
    warmup_epochs: float = 0.0
    warmup_start_learning_rate: float = 0.0
    warmup_shape: str = "linear"

    @classmethod
    def from_config(cls, config: Configuration, steps_per_epoch: int) -> LearningRateSchedule:
        """The schedule that `config` describes, for a dataset of so many steps an epoch."""
        return cls(
            steps_per_epoch=steps_per_epoch,
            base_learning_rate=config.base_learning_rate,
            end_learning_rate=config.end_learning_rate,
            learning_rate_decay=config.learning_rate_decay,
            decay_poly_power=config.decay_poly_power,
            decay_epochs=config.decay_epochs,
            decay_milestones=tuple(config.decay_milestones),
            decay_factor=config.decay_factor,
            warmup_epochs=config.warmup_epochs,
            warmup_start_learning_rate=config.warmup_start_learning_rate,
            warmup_shape=config.warmup_shape,
        )

    def __post_init__(self) -> None:
        if self.steps_per_epoch < 1:
            raise FourminError(
                "an epoch has no full step",
                "the dataset has fewer images than the global batch",
                "use a smaller global_batch_size",
            )
        if self.learning_rate_decay not in ("poly", "step", "constant"):
            raise FourminError(
                f"unknown learning_rate_decay {self.learning_rate_decay!r}",
                next_step="known: constant, poly, step",
            )
        if self.warmup_shape not in ("linear", "quadratic"):
            raise FourminError(
                f"unknown warmup_shape {self.warmup_shape!r}", next_step="known: linear, quadratic"
            )
        if self.learning_rate_decay == "poly" and self.decay_steps < 2:
            raise FourminError(
                f"decay_epochs={self.decay_epochs} ends before warmup_epochs={self.warmup_epochs}",
                "decay_epochs counts from the first epoch, warmup included",
                "use a greater decay_epochs",
            )
        milestones = self.decay_milestones
        if any(b <= a for a, b in pairwise(milestones)):
            raise FourminError(f"decay_milestones {milestones} must increase")

    @property
    def warmup_steps(self) -> int:
        """Number of steps before the base rate."""
        return round(self.warmup_epochs * self.steps_per_epoch)

    @property
    def decay_steps(self) -> int:
        """D above: steps from the base rate to the end rate of the polynomial."""
        return round(self.decay_epochs * self.steps_per_epoch) - self.warmup_steps + 1

    def __call__(self, step: int) -> float:
        """The learning rate of performed step `step`, counted from 0."""
        if step < 0:
            raise ValueError(f"step {step} is negative")
        base = self.base_learning_rate
        if step < self.warmup_steps:
            fraction = step / self.warmup_steps
            if self.warmup_shape == "quadratic":
                fraction *= fraction
            start = self.warmup_start_learning_rate
            return start + (base - start) * fraction
        if self.learning_rate_decay == "poly":
            elapsed = min(step - self.warmup_steps, self.decay_steps)
            remaining = _power(1.0 - elapsed / self.decay_steps, self.decay_poly_power)
            return self.end_learning_rate + (base - self.end_learning_rate) * remaining
        if self.learning_rate_decay == "step":
            for milestone in self.decay_milestones:
                if step >= round(milestone * self.steps_per_epoch):
                    base *= self.decay_factor
        return base


def _power(x: float, exponent: float) -> float:
    """x ** exponent; small whole exponents by multiplication, the same to the bit anywhere."""
    if exponent != int(exponent) or not 1 <= exponent <= 4:
        return float(x**exponent)
    result = x
    for _ in range(int(exponent) - 1):
        result *= x
    return result
