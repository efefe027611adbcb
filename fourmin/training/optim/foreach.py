"""What the optimizers written here share: FP32, whole groups at once, no wait for the device."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.optim import Optimizer

from fourmin.recipe.optimizers import OptimizerEntry

LearningRate = float | Tensor
Tensors = list[Tensor]
States = dict[str, list[Tensor]]
Group = dict[str, Any]


class ForeachOptimizer(Optimizer):
    """An optimizer of FP32 master weights: a subclass names its `entry` and gives `update`.

    A parameter without gradient is left alone.
    """

    entry: ClassVar[OptimizerEntry]
    usual: ClassVar[dict[str, Any]]
    """What a group has that does not say otherwise, beside `lr`."""

    def __init__(self, params: Iterable[Any], lr: LearningRate, **settings: Any) -> None:
        if unknown := settings.keys() - self.usual:
            raise TypeError(f"{type(self).__name__} has no {', '.join(sorted(unknown))}")
        super().__init__(params, {"lr": lr, **self.usual, **settings})

    def update(self, weights: Tensors, grads: Tensors, state: States, group: Group) -> None:
        """One step of the parameters of a group that have gradients.

        `state` has for each name in the entry a tensor for each weight. All are changed in place
        but the gradients, with foreach operations and without host synchronisation.
        """
        raise NotImplementedError

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group. Raises TypeError unless all its parameters are FP32 master weights."""
        super().add_param_group(param_group)
        for parameter in self.param_groups[-1]["params"]:
            # Squares in FP16 are 0 below 1.7e-4 and infinite above 256: norms would be wrong.
            if parameter.dtype != torch.float32:
                self.param_groups.pop()
                raise TypeError(
                    f"{type(self).__name__} needs FP32 parameters, not {parameter.dtype}"
                )

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
            weights, grads = [], []
            for weight in group["params"]:
                if weight.grad is None:
                    continue
                if weight.grad.dtype != torch.float32:
                    raise TypeError(
                        f"{type(self).__name__} needs FP32 gradients, not {weight.grad.dtype}"
                    )
                if not self.state[weight]:
                    self.state[weight].update(first_state(self.entry, weight))
                weights.append(weight)
                grads.append(weight.grad)
            if weights:
                names = (*self.entry.tensors, *self.entry.counters)
                state = {name: [self.state[w][name] for w in weights] for name in names}
                self.update(weights, grads, state, group)
        return loss


def first_state(entry: OptimizerEntry, parameter: Tensor) -> dict[str, Tensor]:
    tensors = {name: torch.zeros_like(parameter) for name in entry.tensors}
    return tensors | {name: torch.zeros(()) for name in entry.counters}


def norms(tensors: tuple[Tensor, ...] | list[Tensor]) -> Tensor:
    """The 2-norm of each tensor, on its device."""
    # torch sums the squares of an FP32 tensor on the CPU in FP32, one after the other: 0.25% are
    # lost for the 37.7 M weights of AlexNet's FC6. The GPU's tree of partial sums is exact enough.
    kind = torch.float64 if tensors[0].device.type == "cpu" else torch.float32
    return torch.stack(torch._foreach_norm(tensors, 2, dtype=kind))
