"""The update alone, by each optimizer: what `fourmin bench step --optimizers` adds."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from fourmin.bench.timing import median_time
from fourmin.recipe.configuration import Configuration
from fourmin.recipe.optimizers import OPTIMIZERS
from fourmin.training.optim.build import build_optimizer


@dataclass(frozen=True)
class UpdateResult:
    """The median time of an update in seconds, bytes of the optimizer's tensors, of the gradients
    that are sent for it (FP32), and those that it moves at least.
    """

    optimizer: str
    seconds: float
    state_bytes: int
    sent_bytes: int
    moved_bytes: int

    def to_text(self) -> str:
        return (
            f"{self.optimizer:<8}{self.seconds * 1e3:>9.3f} ms,{self.state_bytes / 1e6:>7,.1f} MB "
            f"of state,{self.sent_bytes / 1e6:>7,.1f} MB sent,"
            f"{self.moved_bytes / self.seconds / 1e9:>8,.1f} GB/s of what must move"
        )


def measure_update(model: nn.Module, config: Configuration) -> UpdateResult:
    """Updates of `model` by the optimizer of `config`, each from the same gradients."""
    optimizer = build_optimizer(model, config)
    parameters = list(model.parameters())
    for parameter in parameters:
        parameter.grad = torch.full_like(parameter, 1e-3)
    seconds = median_time(optimizer.step, parameters[0].device)
    tensors = OPTIMIZERS[config.optimizer].tensors
    elements = sum(parameter.numel() for parameter in parameters)
    return UpdateResult(
        config.optimizer,
        seconds,
        sum(
            state[name].numel() * state[name].element_size()
            for state in optimizer.state.values()
            for name in tensors
        ),
        sum(p.grad.numel() * p.grad.element_size() for p in parameters if p.grad is not None),
        OPTIMIZERS[config.optimizer].moved * elements,
    )
