"""LARS: layer-wise adaptive rate scaling (You, Gitman, Ginsburg 2017, arXiv 1708.03888).

For a weight w with gradient g (the unscaled mean over the global batch, FP32), learning rate lr,
momentum m, weight decay wd:

    lam = eta * |w| / (|g| + wd * |w| + epsilon)   if |w| > 0 and |g| > 0, else 1
    v   = m * v + lr * lam * (g + wd * w)
    w   = w - v

The learning rate is inside the momentum, as in the paper, in MLPerf's reference and in MXNet. The
other common form (v = m * v + lam * g; w -= lr * v: timm, torchlars, LARC and torch's own SGD)
gives other weights whenever the learning rate changes; MLPerf's reference points assume this one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from fourmin.recipe.optimizers import OPTIMIZERS
from fourmin.training.optim.foreach import ForeachOptimizer, Group, States, Tensors, norms

if TYPE_CHECKING:
    from fourmin.recipe.configuration import Configuration


class Lars(ForeachOptimizer):
    """LARS with momentum, in FP32.

    Each parameter group may set its own `lr`, `momentum`, `weight_decay`, `eta`, `epsilon`,
    `clip` and `adapt`:

    - `lr`: a float set before each step, or a 0-dim tensor on the parameters' device, which a
      CUDA graph can read anew in each replay.
    - `adapt=False`: lam is 1, plain momentum SGD in the same form; for biases and batch
      normalization, together with weight_decay 0.
    - `clip=True`: LARC's clip mode, not LARS. The rate of a weight, lr * lam above, becomes
      min(eta * |w| / (|g| + wd * |w| + epsilon), lr); with a zero norm it is lr.
    - `epsilon` is used as given, 0 too.

    Weight decay 0 leaves the adaptation on, and a zero norm leaves the weight decay on. The state
    is one tensor for each parameter, `momentum_buffer`, v above. There is no Nesterov form and no
    rescaling of v when the learning rate changes.
    """

    entry = OPTIMIZERS["lars"]
    usual: ClassVar = {
        "momentum": 0.9, "weight_decay": 0.0, "eta": 0.001, "epsilon": 0.0, "clip": False,
        "adapt": True,
    }  # fmt: skip

    def update(self, weights: Tensors, grads: Tensors, state: States, group: Group) -> None:
        velocities = state["momentum_buffer"]
        # A sequence gives each tensor its own factor; torch's stubs know only numbers there.
        rates: Any = _rates(weights, grads, group) if group["adapt"] else group["lr"]
        if group["weight_decay"]:
            changes = torch._foreach_add(grads, weights, alpha=group["weight_decay"])
            torch._foreach_mul_(changes, rates)
        else:
            changes = torch._foreach_mul(grads, rates)
        torch._foreach_mul_(velocities, group["momentum"])
        torch._foreach_add_(velocities, changes)
        torch._foreach_sub_(weights, velocities)


def build(groups: list[dict[str, Any]], config: Configuration) -> Lars:
    return Lars(
        groups,
        lr=config.base_learning_rate,
        momentum=config.momentum,
        eta=config.lars_eta,
        epsilon=config.lars_epsilon,
        clip=config.lars_clip,
    )


def _rates(weights: list[Tensor], grads: list[Tensor], group: dict[str, Any]) -> Sequence[Tensor]:
    """The learning rate of each weight, a 0-dim tensor on its device."""
    weight_norms, grad_norms = norms(weights), norms(grads)
    ratios = (
        group["eta"]
        * weight_norms
        / (grad_norms + group["weight_decay"] * weight_norms + group["epsilon"])
    )
    adapted = (weight_norms > 0) & (grad_norms > 0)
    lr = group["lr"]
    if group["clip"]:
        rates = torch.where(adapted, ratios.clamp(max=lr), lr)
    else:
        rates = torch.where(adapted, ratios, 1.0) * lr
    return list(rates.unbind())
