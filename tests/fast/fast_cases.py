"""Steps to compare: the same model, optimizer and data for the eager and the fast step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from fourmin.training.comm.fusion import GradientReducer
from fourmin.training.comm.native import NativeAllReduce
from fourmin.training.models import build_model
from fourmin.training.models.batchnorm import apply_bn_span
from fourmin.training.models.init import initialize
from fourmin.training.optim.build import split_parameters
from fourmin.training.optim.lars import Lars
from fourmin.training.precision import Precision
from fourmin.training.step import EagerStep, HostUpdate

CLASSES = 10
TOTAL_STEPS = 200


@dataclass
class Trained:
    """A model and the step that trains it."""

    model: nn.Module
    step: Any
    precision: Precision
    reducer: GradientReducer
    optimizer: Lars


def rate(step: int) -> float:
    """A learning rate that changes with every step: warmup, then a straight line to 0."""
    return 4.0 * min(1.0, (step + 1) / 20) * max(0.0, 1 - step / TOTAL_STEPS)


def make(
    kind: str, name: str, device: torch.device, precision: str, *, loss_scale: float = 1024.0,
    world_size: int = 1, span: int = 1, **options: Any,
) -> Trained:  # fmt: skip
    """`kind` "eager" or "fast"; `span` ranks share statistics; options are the fast step's."""
    model = build_model(name, num_classes=CLASSES, bn_momentum=0.1, bn_epsilon=1e-5)
    model = model.to(device=device, memory_format=torch.channels_last)
    initialize(model, 5, "he", False)
    apply_bn_span(model, span, world_size)
    adapted, plain = split_parameters(model)
    optimizer = Lars(
        [
            {"params": adapted, "weight_decay": 5e-5, "adapt": True},
            {"params": plain, "weight_decay": 0.0, "adapt": False},
        ],
        lr=1.0,
    )
    reducer = GradientReducer(
        model.named_parameters(), NativeAllReduce(world_size), world_size, 1 << 16
    )
    place = Precision(precision, device, loss_scale, 50)
    if kind == "eager":
        update = HostUpdate(optimizer, reducer.flat_buffers, place, rate)
        eager = EagerStep(model, update, reducer, place, 0.1)
        return Trained(model, eager, place, reducer, optimizer)
    from fourmin.training.fast.step import FastStep

    step = FastStep(
        model,
        optimizer,
        reducer,
        place,
        rate,
        0.1,
        total_steps=TOTAL_STEPS,
        growth_interval=50,
        world_size=world_size,
        **options,
    )
    return Trained(model, step, place, reducer, optimizer)


class Collect:
    """A sink that adds gradients at once, and notes whose came."""

    def __init__(self) -> None:
        self.came: list[nn.Parameter] = []

    def weight(self, parameter: nn.Parameter, gradient: Tensor) -> None:
        parameter.grad.add_(gradient)
        self.came.append(parameter)

    def written(self, *parameters: nn.Parameter) -> None:
        self.came += parameters


class Learnable:
    """Images of ten classes: a fixed pattern for each, and noise."""

    def __init__(self, device: torch.device, size: int, seed: int = 3) -> None:
        self._generator = torch.Generator().manual_seed(seed)
        self._patterns = torch.randn(CLASSES, 3, size, size, generator=self._generator)
        self._device = device

    def batch(self, count: int, noise: float = 2.0) -> tuple[Tensor, Tensor]:
        """`count` images, channels-last, and their labels."""
        labels = torch.randint(0, CLASSES, (count,), generator=self._generator)
        images = self._patterns[labels]
        images = images + noise * torch.randn(images.shape, generator=self._generator)
        images = images.to(self._device).contiguous(memory_format=torch.channels_last)
        return images, labels.to(self._device)

    def batches(self, count: int, size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """`count` batches."""
        for _ in range(count):
            yield self.batch(size)
