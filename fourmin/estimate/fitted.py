"""The model's two fitted numbers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from fourmin.base.toml import tomllib


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
    fit; in the mean, on further systems of MLPerf; and at most, on any of them.
    """

    mean_error: float
    further_error: float
    largest_error: float


@cache
def fitted() -> Fitted:
    """The numbers fitted to all systems of the validation."""
    content = _content()
    return Fitted(content["fixed_pass_seconds"], content["overlap_cost"])


@cache
def accuracy() -> Accuracy:
    content = _content()
    return Accuracy(content["mean_error"], content["further_error"], content["largest_error"])


def _content() -> dict[str, float]:
    text = Path(__file__).with_name("fitted.toml").read_text()
    return {name: float(value) for name, value in tomllib.loads(text).items()}
