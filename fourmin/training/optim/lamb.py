"""LAMB: layer-wise adaptation of Adam (You et al. 2020, arXiv 1904.00962v5, algorithm 2).

For a weight w with gradient g (the unscaled mean over the global batch, FP32), learning rate lr,
weight decay wd, in step t = 1, 2, ...:

    m   = beta1 * m + (1 - beta1) * g
    v   = beta2 * v + (1 - beta2) * g * g
    u   = (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + epsilon) + wd * w
    lam = |w| / |u|   if |w| > 0 and |u| > 0, else 1
    w   = w - lr * lam * u

That is the paper's form with bias correction, the identity as phi, and the trust ratio without
bounds. Others leave the bias correction out, bound the ratio, or first divide all gradients by
their common norm (NVLAMB): neither is done here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import torch

from fourmin.recipe.optimizers import OPTIMIZERS
from fourmin.training.optim.foreach import ForeachOptimizer, Group, States, Tensors, norms

if TYPE_CHECKING:
    from fourmin.recipe.configuration import Configuration


class Lamb(ForeachOptimizer):
    """LAMB in FP32.

    Each parameter group may set its own `lr`, `beta1`, `beta2`, `epsilon`, `weight_decay` and
    `adapt`. With `adapt=False` lam is 1, which is Adam; for biases and batch normalization,
    together with weight_decay 0. The state of a parameter is `exp_avg` and `exp_avg_sq`, m and v
    above, and `step`, t, in the host's memory.
    """

    entry = OPTIMIZERS["lamb"]
    usual: ClassVar = {
        "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-6, "weight_decay": 0.0, "adapt": True,
    }  # fmt: skip

    def update(self, weights: Tensors, grads: Tensors, state: States, group: Group) -> None:
        means, squares, counts = state["exp_avg"], state["exp_avg_sq"], state["step"]
        beta1, beta2 = group["beta1"], group["beta2"]
        torch._foreach_add_(counts, 1.0)
        steps = [count.item() for count in counts]
        torch._foreach_mul_(means, beta1)
        torch._foreach_add_(means, grads, alpha=1 - beta1)
        torch._foreach_mul_(squares, beta2)
        torch._foreach_addcmul_(squares, grads, grads, value=1 - beta2)
        roots = torch._foreach_div(squares, [1 - beta2**step for step in steps])
        torch._foreach_sqrt_(roots)
        torch._foreach_add_(roots, group["epsilon"])
        changes = torch._foreach_div(means, [1 - beta1**step for step in steps])
        torch._foreach_div_(changes, roots)
        if group["weight_decay"]:
            torch._foreach_add_(changes, weights, alpha=group["weight_decay"])
        # A sequence gives each tensor its own factor; torch's stubs know only numbers there.
        rates: Any = group["lr"]
        if group["adapt"]:
            weight_norms, change_norms = norms(weights), norms(changes)
            adapted = (weight_norms > 0) & (change_norms > 0)
            rates = torch.where(adapted, weight_norms / change_norms, 1.0) * rates
            rates = list(rates.unbind())
        torch._foreach_mul_(changes, rates)
        torch._foreach_sub_(weights, changes)


def build(groups: list[dict[str, Any]], config: Configuration) -> Lamb:
    return Lamb(
        groups,
        lr=config.base_learning_rate,
        beta1=config.adam_beta1,
        beta2=config.adam_beta2,
        epsilon=config.adam_epsilon,
    )
