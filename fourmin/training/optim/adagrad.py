"""Adagrad (Duchi et al. 2011) is torch's: s = s + g^2; w = w - lr * g / (sqrt(s) + 1e-10).

`g` has weight decay in it. Without momentum, and with a rate of its own for each weight that only
falls, it bears gradients that come late: the servers of Dean et al. 2012 use it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch.optim import Adagrad, Optimizer

if TYPE_CHECKING:
    from fourmin.recipe.configuration import Configuration


def build(groups: list[dict[str, Any]], config: Configuration) -> Optimizer:
    return Adagrad(groups, lr=config.base_learning_rate, foreach=True)
