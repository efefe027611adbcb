"""torch.optim.LBFGS, which has its vectors whole."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Loss = Callable[[Tensor], Tensor]


def torch_lbfgs(loss: Loss, x: Tensor, iterations: int, **settings: object) -> list[Tensor]:
    """Where torch's own is at each evaluation, and where it ends."""
    x = x.clone().requires_grad_()
    seen: list[Tensor] = []
    optimizer = torch.optim.LBFGS(
        [x], max_iter=iterations, max_eval=10_000, tolerance_grad=0.0, tolerance_change=0.0,
        **settings,
    )  # fmt: skip

    def closure() -> Tensor:
        optimizer.zero_grad()
        seen.append(x.detach().clone())
        value = loss(x)
        value.backward()
        return value

    optimizer.step(closure)
    return [*seen, x.detach().clone()]
