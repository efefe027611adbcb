"""Residual networks: ResNet-50 v1.5 and the small ones for small images.

ResNet-50 v1.5 differs from He et al. 2015 (arXiv 1512.03385) in one thing: the stride of a
downsampling bottleneck sits on its 3x3 convolution, not on the first 1x1 (MLPerf's ResNet-50).
Parameter names are torchvision's, so that weights can be exchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.checkpoint import checkpoint

from fourmin.training.models.head import linear_fp32

BatchNormFactory = Callable[[int], nn.Module]


def _conv(inputs: int, outputs: int, kernel: int, stride: int = 1) -> nn.Conv2d:
    # No bias: the batch normalization that follows has one.
    return nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=(kernel - 1) // 2, bias=False)


class ResidualBlock(nn.Module):
    """What both blocks share: the shortcut and the name of the last batch normalization.

    Where `recomputed`, nothing between input and output is kept for the backward pass, which runs
    the block again (Chen et al. 2016, arXiv 1604.06174).
    """

    expansion = 1
    downsample: nn.Module | None
    recomputed = False

    @property
    def last_batch_norm(self) -> nn.Module:
        """The batch normalization before the addition, whose gamma may start at 0."""
        raise NotImplementedError

    def shortcut(self, x: Tensor) -> Tensor:
        """The input itself, or its 1x1 projection (option B of He et al. 2015)."""
        return x if self.downsample is None else self.downsample(x)

    def block(self, x: Tensor) -> Tensor:
        """[n, inputs, h, w] to [n, width * expansion, h / stride, w / stride]."""
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        if not self.recomputed:
            return self.block(x)
        # Nothing in a block is random.
        y: Tensor = checkpoint(
            self.block, x, use_reentrant=False, preserve_rng_state=False, context_fn=self._contexts
        )
        return y

    def _contexts(self) -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
        """Around the block in the forward pass, and when it is run again."""
        return nullcontext(), self._again()

    @contextmanager
    def _again(self) -> Iterator[None]:
        """The running statistics have seen this batch already."""
        layers = [module for module in self.modules() if isinstance(module, _BatchNorm)]
        before = [(layer.momentum, layer.num_batches_tracked) for layer in layers]
        for layer in layers:
            layer.momentum, layer.num_batches_tracked = 0.0, torch.zeros((), dtype=torch.int64)
        try:
            yield
        finally:
            for layer, (momentum, counted) in zip(layers, before, strict=True):
                layer.momentum, layer.num_batches_tracked = momentum, counted


def _projection(
    inputs: int, outputs: int, stride: int, batch_norm: BatchNormFactory
) -> nn.Module | None:
    if stride == 1 and inputs == outputs:
        return None
    return nn.Sequential(_conv(inputs, outputs, 1, stride), batch_norm(outputs))


class BasicBlock(ResidualBlock):
    """Two 3x3 convolutions; the first carries the stride."""

    def __init__(self, inputs: int, width: int, stride: int, batch_norm: BatchNormFactory) -> None:
        super().__init__()
        self.conv1 = _conv(inputs, width, 3, stride)
        self.bn1 = batch_norm(width)
        self.conv2 = _conv(width, width, 3)
        self.bn2 = batch_norm(width)
        self.downsample = _projection(inputs, width, stride, batch_norm)

    @property
    def last_batch_norm(self) -> nn.Module:
        return self.bn2

    def block(self, x: Tensor) -> Tensor:
        y = functional.relu(self.bn1(self.conv1(x)), inplace=True)
        y = self.bn2(self.conv2(y))
        return functional.relu(y + self.shortcut(x), inplace=True)


class Bottleneck(ResidualBlock):
    """1x1, 3x3 with the stride (v1.5), 1x1 to four times the width."""

    expansion = 4

    def __init__(self, inputs: int, width: int, stride: int, batch_norm: BatchNormFactory) -> None:
        super().__init__()
        outputs = width * self.expansion
        self.conv1 = _conv(inputs, width, 1)
        self.bn1 = batch_norm(width)
        self.conv2 = _conv(width, width, 3, stride)
        self.bn2 = batch_norm(width)
        self.conv3 = _conv(width, outputs, 1)
        self.bn3 = batch_norm(outputs)
        self.downsample = _projection(inputs, outputs, stride, batch_norm)

    @property
    def last_batch_norm(self) -> nn.Module:
        return self.bn3

    def block(self, x: Tensor) -> Tensor:
        y = functional.relu(self.bn1(self.conv1(x)), inplace=True)
        y = functional.relu(self.bn2(self.conv2(y)), inplace=True)
        y = self.bn3(self.conv3(y))
        return functional.relu(y + self.shortcut(x), inplace=True)


class ResNet(nn.Module):
    """A residual network: stem, stages of blocks, global average pooling, one linear layer.

    The width doubles from stage to stage; every stage but the first halves height and width.
    Stems: `large` is a 7x7 convolution of stride 2 and 3x3 max pooling of stride 2, for ImageNet's
    224x224; `small` one 3x3 convolution of stride 1, for images of 16 to 64 pixels; `pooled` the
    small one followed by the large one's pooling.
    """

    def __init__(
        self,
        block: type[BasicBlock] | type[Bottleneck],
        depths: tuple[int, ...],
        width: int,
        stem: Literal["large", "small", "pooled"],
        num_classes: int,
        batch_norm: BatchNormFactory,
    ) -> None:
        super().__init__()
        self.conv1 = _conv(3, width, 7, stride=2) if stem == "large" else _conv(3, width, 3)
        self.bn1 = batch_norm(width)
        self.maxpool: nn.Module = (
            nn.Identity() if stem == "small" else nn.MaxPool2d(3, stride=2, padding=1)
        )
        self.stage_count = len(depths)
        channels = width
        for stage, depth in enumerate(depths):
            blocks: list[nn.Module] = []
            stage_width = width << stage
            for index in range(depth):
                stride = 2 if stage > 0 and index == 0 else 1
                blocks.append(block(channels, stage_width, stride, batch_norm))
                channels = stage_width * block.expansion
            self.add_module(f"layer{stage + 1}", nn.Sequential(*blocks))
        self.fc = nn.Linear(channels, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Normalised images [n, 3, h, w] to FP32 logits [n, num_classes]."""
        return self.part(x, range(self.stage_count))

    def part(self, x: Tensor, stages: range) -> Tensor:
        """What consecutive stages, from 0 on, make of what comes to them.

        The stem belongs to the first one, the classifier to the last.
        """
        if stages.start == 0:
            x = self.maxpool(functional.relu(self.bn1(self.conv1(x)), inplace=True))
        for stage in stages:
            x = self.get_submodule(f"layer{stage + 1}")(x)
        if stages.stop < self.stage_count:
            return x
        # The mean is taken, and the logits are made, in FP32 whatever autocast says.
        return linear_fp32(self.fc, torch.mean(x, dim=(2, 3), dtype=torch.float32))


def recompute_blocks(model: nn.Module) -> None:
    """From now on run each residual block of `model` again in the backward pass."""
    for module in model.modules():
        if isinstance(module, ResidualBlock):
            module.recomputed = True
