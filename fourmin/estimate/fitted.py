"""The model's two fitted numbers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from fourmin.base.toml import tomllib

PROBABILITY = 0.8
"""Of the interval that goes with an estimate."""


@dataclass(frozen=True)
class Fitted:
    """Seconds of a forward and backward pass whatever its batch, and what share of hidden
    communication the backward pass pays for (0 to 1).
    """

    fixed_pass_seconds: float
    overlap_cost: float


@dataclass(frozen=True)
class Accuracy:
    """How far the model was off, in points of efficiency: in the mean, on systems left out of the
    fit; in the mean, on further systems of others; and at most, on any of them.
    """

    mean_error: float
    further_error: float
    largest_error: float
    interval: float
    """Of an estimated efficiency, the share that the measured one is off by at most, with
    `PROBABILITY`.
    """


@cache
def fitted() -> Fitted:
    """The numbers fitted to all systems of the validation."""
    content = _content()
    return Fitted(content["fixed_pass_seconds"], content["overlap_cost"])


@cache
def accuracy() -> Accuracy:
    content = _content()
    names = ("mean_error", "further_error", "largest_error", "interval")
    return Accuracy(*(content[name] for name in names))


def _content() -> dict[str, float]:
    text = Path(__file__).with_name("fitted.toml").read_text()
    return {name: float(value) for name, value in tomllib.loads(text).items()}
