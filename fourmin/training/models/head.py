"""The classifier's arithmetic, the same for every model."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn


def linear_fp32(layer: nn.Linear, x: Tensor) -> Tensor:
    """`layer(x)` in FP32, also under autocast: logits and loss keep FP32's range and precision.

    Takes [n, in_features] in any floating type; returns float32 [n, out_features].
    """
    if x.device.type == "meta":  # shapes only; autocast does not know this device
        return cast(Tensor, layer(x))
    with torch.autocast(x.device.type, enabled=False):
        return cast(Tensor, layer(x.float()))
