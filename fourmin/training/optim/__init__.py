"""Optimizers."""

from __future__ import annotations

from fourmin.training.optim.build import build_optimizer, set_learning_rate, split_parameters
from fourmin.training.optim.lars import Lars

__all__ = [
    "Lars",
    "build_optimizer",
    "set_learning_rate",
    "split_parameters",
]
