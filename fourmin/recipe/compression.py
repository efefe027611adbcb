"""How much of the gradients a run sends that compresses them (Deep Gradient Compression, Lin et al.
2018, arXiv 1712.01887): counts alone, for training, estimates and rules.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fourmin.recipe.configuration import Configuration

ENTRY_BYTES = 8
"""Of an element that is sent: its place, int32, and its value, FP32."""


def density_in(config: Configuration, epoch: int) -> float:
    """The share of a weight's elements that each worker sends in an epoch, counted from 1.

    It falls to `gradient_density` by equal factors: with 0.001 after four epochs of warm-up 25%,
    6.3%, 1.6%, 0.4%, and then 0.1%, as Lin et al. have it.
    """
    done = min(1.0, epoch / (config.density_warmup_epochs + 1))
    return float(config.gradient_density**done)


def sent_elements(elements: int, density: float) -> int:
    """Elements that are sent of a weight."""
    return min(elements, max(1, math.ceil(elements * density)))
