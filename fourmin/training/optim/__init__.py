"""Optimizers and the learning rate schedule."""

from __future__ import annotations

from fourmin.training.optim.build import build_optimizer, set_learning_rate, split_parameters
from fourmin.training.optim.lars import Lars
from fourmin.training.optim.schedule import LearningRateSchedule

__all__ = [
    "Lars",
    "LearningRateSchedule",
    "build_optimizer",
    "set_learning_rate",
    "split_parameters",
]
