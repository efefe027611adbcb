"""SGD is torch's: the learning rate is outside the momentum, v = m * v + g; w = w - lr * v.

Where gradients are compressed, those of weights have their momentum already.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch.optim import SGD, Optimizer

from fourmin.recipe.optimizers import OPTIMIZERS
from fourmin.training.optim.foreach import ForeachOptimizer, Group, States, Tensors

if TYPE_CHECKING:
    from fourmin.recipe.configuration import Configuration


class SentSGD(ForeachOptimizer):
    """SGD for `comm/compression.py`: to a weight's gradient, which is a sum of momenta, comes the
    momentum of weight decay alone, which is the same on all workers. Biases and normalizations,
    whose gradients are sent whole, are SGD's.
    """

    entry = OPTIMIZERS["sgd"]
    usual: ClassVar = {"momentum": 0.0, "nesterov": False}

    def update(self, weights: Tensors, grads: Tensors, state: States, group: Group) -> None:
        dense = weights[0].dim() == 1  # a group is of weights, or of biases and normalizations
        added = torch._foreach_mul(weights, group["weight_decay"])
        if dense:
            torch._foreach_add_(added, grads)
        buffers, momentum = state["momentum_buffer"], group["momentum"]
        torch._foreach_mul_(buffers, momentum)
        torch._foreach_add_(buffers, added)
        moves = torch._foreach_add(added, buffers, alpha=momentum) if group["nesterov"] else buffers
        if not dense:
            moves = torch._foreach_add(moves, grads)
        torch._foreach_add_(weights, moves, alpha=-group["lr"])


def build(groups: list[dict[str, Any]], config: Configuration) -> Optimizer:
    if config.gradient_density < 1:
        settings = {name: getattr(config, name) for name in SentSGD.usual}
        return SentSGD(groups, config.base_learning_rate, **settings)
    return SGD(
        groups,
        lr=config.base_learning_rate,
        momentum=config.momentum,
        nesterov=config.nesterov,
        foreach=True,
    )
