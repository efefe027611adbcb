"""AdamW is torch's (Loshchilov, Hutter 2019, arXiv 1711.05101).

The weight decay is no part of the gradient: w = (1 - lr * wd) * w, and then Adam's step, with bias
correction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch.optim import AdamW

if TYPE_CHECKING:
    from fourmin.recipe.configuration import Configuration


def build(groups: list[dict[str, Any]], config: Configuration) -> AdamW:
    return AdamW(
        groups,
        lr=config.base_learning_rate,
        betas=(config.adam_beta1, config.adam_beta2),
        eps=config.adam_epsilon,
        foreach=True,
    )
