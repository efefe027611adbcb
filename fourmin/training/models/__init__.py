"""The models that fourmin trains, by name."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn

from fourmin.base.errors import FourminError, list_names
from fourmin.training.models.alexnet import AlexNet
from fourmin.training.models.resnet import BasicBlock, Bottleneck, ResNet

_RESNET50 = partial(ResNet, Bottleneck, (3, 4, 6, 3), 64)
_BUILDERS: dict[str, Callable[[int, Callable[[int], nn.Module]], nn.Module]] = {
    "alexnet": AlexNet,
    # Three stages of three basic blocks, widths 16, 32, 64 (He et al. 2015, section 4.2). They use
    # shortcuts without parameters (269,722 with 10 classes); with projections it has 272,474.
    "resnet20": partial(ResNet, BasicBlock, (3, 3, 3), 16, "small"),
    # ResNet-50 v1.5: 25,557,032 parameters with 1,000 classes.
    "resnet50": partial(_RESNET50, "large"),
    # The same for 64x64 images: stem 3x3 of stride 1 and no max pooling.
    "resnet50-small": partial(_RESNET50, "small"),
    # At a quarter of its operations: stem 3x3 of stride 1, then max pooling, so that the stages see
    # 32, 16, 8 and 4 pixels.
    "resnet50-tiny": partial(_RESNET50, "pooled"),
    # Three stages of one basic block, widths 16, 32, 64: 78,042 parameters with 10 classes.
    "resnet8": partial(ResNet, BasicBlock, (1, 1, 1), 16, "small"),
}
MODEL_NAMES: tuple[str, ...] = tuple(_BUILDERS)
"""Every name that `build_model` knows."""


def build_model(name: str, *, num_classes: int, bn_momentum: float, bn_epsilon: float) -> nn.Module:
    """A new model in FP32 on the current default device, in training mode.

    `bn_momentum` is torch's convention: the weight of the new value in the running statistics.
    The weights are torch's defaults until `init.initialize` sets them.
    Raises FourminError that lists the known names when `name` is not one of them.
    """
    if name not in _BUILDERS:
        raise FourminError(
            f"unknown model {name!r}", next_step=f"known models: {list_names(MODEL_NAMES)}"
        )
    batch_norm = partial(nn.BatchNorm2d, eps=bn_epsilon, momentum=bn_momentum)
    return _BUILDERS[name](num_classes, batch_norm)


@cache
def forward_flops(name: str, image_size: int, num_classes: int) -> int:
    """Floating-point operations of one image's forward pass.

    Counts the multiplications and additions of convolutions and linear layers only, a
    multiply-add as two; batch normalization, ReLU and pooling are left out, as in published
    counts. Training takes about three times as many. Runs on the meta device: no memory.
    Raises FourminError for an unknown model or an image size that it cannot take.
    """
    with torch.device("meta"):
        model = build_model(name, num_classes=num_classes, bn_momentum=0.1, bn_epsilon=1e-5)
        images = torch.empty(1, 3, image_size, image_size)
    total = 0

    def count(module: nn.Module, _inputs: Any, output: Tensor) -> None:
        nonlocal total
        weight = module.weight
        assert isinstance(weight, Tensor)
        # Each output element is a dot product over one filter (or one row of the matrix).
        total += 2 * output.numel() * (weight.numel() // weight.shape[0])

    for module in model.modules():
        if isinstance(module, (nn.Conv2d, nn.Linear)):
            module.register_forward_hook(count)
    with torch.no_grad():
        model.eval()(images)
    return total
