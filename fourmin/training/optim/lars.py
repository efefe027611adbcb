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

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

LearningRate = float | Tensor


class Lars(Optimizer):
    """LARS with momentum, in FP32, with foreach operations and no host synchronisation.

    Each parameter group may set its own `lr`, `momentum`, `weight_decay`, `eta`, `epsilon`,
    `clip` and `adapt`:

    - `lr`: a float set before each step, or a 0-dim tensor on the parameters' device, which a
      CUDA graph can read anew in each replay.
    - `adapt=False`: lam is 1, plain momentum SGD in the same form; for biases and batch
      normalization, together with weight_decay 0.
    - `clip=True`: LARC's clip mode, not LARS. The rate of a weight, lr * lam above, becomes
      min(eta * |w| / (|g| + wd * |w| + epsilon), lr); with a zero norm it is lr.
    - `epsilon` is used as given, 0 too.

    Weight decay 0 leaves the adaptation on, and a zero norm leaves the weight decay on. A
    parameter without gradient is left alone. The state is one tensor for each parameter,
    `momentum_buffer`, v above. There is no Nesterov form and no rescaling of v when the learning
    rate changes.
    """

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[dict[str, Any]],
        lr: LearningRate,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        eta: float = 0.001,
        epsilon: float = 0.0,
        clip: bool = False,
        adapt: bool = True,
    ) -> None:
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "weight_decay": weight_decay,
            "eta": eta,
            "epsilon": epsilon,
            "clip": clip,
            "adapt": adapt,
        }
        super().__init__(params, defaults)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group. Raises TypeError unless all its parameters are FP32 master weights."""
        super().add_param_group(param_group)
        for parameter in self.param_groups[-1]["params"]:
            # Squares in FP16 are 0 below 1.7e-4 and infinite above 256: norms would be wrong.
            if parameter.dtype != torch.float32:
                self.param_groups.pop()
                raise TypeError(f"LARS needs FP32 parameters, not {parameter.dtype}")

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Update all parameters from their `grad`; returns the closure's loss, if there is one.

        Raises TypeError for a gradient that is not FP32.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            weights = [p for p in group["params"] if p.grad is not None]
            if not weights:
                continue
            grads = [p.grad for p in weights]
            velocities = []
            for weight in weights:
                if weight.grad.dtype != torch.float32:
                    raise TypeError(f"LARS needs FP32 gradients, not {weight.grad.dtype}")
                state = self.state[weight]
                if "momentum_buffer" not in state:
                    state["momentum_buffer"] = torch.zeros_like(weight)
                velocities.append(state["momentum_buffer"])
            _update(weights, grads, velocities, group)
        return loss


def _update(
    weights: list[Tensor], grads: list[Tensor], velocities: list[Tensor], group: dict[str, Any]
) -> None:
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


def _rates(weights: list[Tensor], grads: list[Tensor], group: dict[str, Any]) -> Sequence[Tensor]:
    """The learning rate of each weight, a 0-dim tensor on its device."""
    # torch sums the squares of an FP32 tensor on the CPU in FP32, one after the other: 0.25% are
    # lost for the 37.7 M weights of AlexNet's FC6. The GPU's tree of partial sums is exact enough.
    kind = torch.float64 if weights[0].device.type == "cpu" else torch.float32
    weight_norms = torch.stack(torch._foreach_norm(weights, 2, dtype=kind))
    grad_norms = torch.stack(torch._foreach_norm(grads, 2, dtype=kind))
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
