"""What an algorithm is for one worker: what it does before and after each gradient."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from fourmin.recipe.configuration import Configuration
from fourmin.training.algorithms.calls import Call


def module_of(config: Configuration) -> ModuleType:
    """The module of the configuration's algorithm: its `host_side` and `worker_side`, and where
    they are not the usual ones its `own_host` and `own_worker`.
    """
    return import_module(f"fourmin.training.algorithms.{config.algorithm}")


@dataclass(frozen=True)
class Surroundings:
    """What a worker's method has to do with."""

    config: Configuration
    model: nn.Module
    call: Call
    scratch: Path
    """A folder that all processes of a host see."""


class Method:
    """The worker's own optimizer makes a step from each gradient, between `before` and `after`."""

    optimizer: Optimizer
    staleness: int | None = None
    """Of the change that the last step made to weights that others read, where it made one."""
    holds = False
    """Whether there are steps that nobody else knows anything of yet."""

    def before(self) -> None:
        """The gradient of a step is computed next."""

    def after(self, rate: float) -> None:
        """The worker's optimizer has made its step at this learning rate; gradients are there."""

    def flush(self, rate: float) -> None:
        """No step follows for now: hand out what is held."""


class Waited:
    """Calls hosts, and counts for how long it waited for them and what it moved."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self.seconds = 0.0
        self.bytes = 0

    def __call__(self, host: int, name: str, method: str, *arguments: Any) -> Any:
        began = time.perf_counter()
        answer = self._call(host, name, method, *arguments)
        self.seconds += time.perf_counter() - began
        moved = (*arguments, *(answer if isinstance(answer, tuple) else ()))
        self.bytes += sum(one.nbytes for one in moved if isinstance(one, Tensor))
        return answer


def flat(tensors: Sequence[Tensor]) -> Tensor:
    """A copy of tensors of one type, each row-major, as one flat tensor."""
    return torch.cat([tensor.detach().reshape(-1) for tensor in tensors])


@torch.no_grad()
def spread(values: Tensor, tensors: Sequence[Tensor]) -> None:
    """Set `tensors` in place to what `flat` made."""
    parts = values.split([tensor.numel() for tensor in tensors])
    for tensor, part in zip(tensors, parts, strict=True):
        tensor.copy_(part.view(tensor.shape))
