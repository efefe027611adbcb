"""SGD is torch's: the learning rate is outside the momentum, v = m * v + g; w = w - lr * v."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch.optim import SGD

if TYPE_CHECKING:
    from fourmin.recipe.configuration import Configuration


def build(groups: list[dict[str, Any]], config: Configuration) -> SGD:
    return SGD(
        groups,
        lr=config.base_learning_rate,
        momentum=config.momentum,
        nesterov=config.nesterov,
        foreach=True,
    )
