"""A residual network's forward and backward pass, written out with the fused kernels.

The mathematics is that of `fourmin.training.models.resnet`; the tests hold the two together.
Nothing here is autograd's but the classifier: what is saved, and where gradients are added, is
decided by hand, so that batch normalization, ReLU, addition and the addition's gradient touch each
activation as few times as possible.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm

from fourmin.training.fast.convolution import FusedConvolution
from fourmin.training.fast.fills import ZeroedBlock
from fourmin.training.fast.graphs import Cut
from fourmin.training.fast.normalization import BlockEnd, FusedBatchNorm
from fourmin.training.fast.plan import FusionPlan
from fourmin.training.fast.rewritten import FoldedConvolution
from fourmin.training.fast.workspace import Workspace
from fourmin.training.models.batchnorm import shared_group
from fourmin.training.models.resnet import Bottleneck, ResidualBlock, ResNet


class Sink(Protocol):
    """Where gradients of weights go, in the order of the backward pass."""

    def weight(self, parameter: Tensor, gradient: Tensor) -> None:
        """Take a gradient in the activations' type."""

    def written(self, *parameters: Tensor) -> None:
        """Take note that these parameters' `grad` has been written already."""


class _Saved:
    """What one block keeps for its backward pass."""

    def __init__(self, source: Tensor) -> None:
        self.source = source
        self.inputs: list[Tensor] = []  # of each convolution
        self.outputs: list[Tensor] = []  # of each convolution, before normalization
        self.projected: Tensor | None = None
        self.bits: Tensor | None = None


class FusedBlock:
    """One residual block: convolutions with their normalizations, and its end."""

    def __init__(
        self, block: ResidualBlock, halves: Mapping[Tensor, Tensor], workspace: Workspace
    ) -> None:
        names = ("1", "2", "3") if isinstance(block, Bottleneck) else ("1", "2")
        self.convolutions = []
        self.norms = []
        for name in names:
            convolution = block.get_submodule(f"conv{name}")
            norm = block.get_submodule(f"bn{name}")
            assert isinstance(convolution, nn.Conv2d)
            assert isinstance(norm, _BatchNorm)
            self.convolutions.append(
                FusedConvolution(convolution, halves[convolution.weight], workspace)
            )
            self.norms.append(FusedBatchNorm(norm, workspace))
        self.projection: tuple[FusedConvolution, FusedBatchNorm] | None = None
        if block.downsample is not None:
            convolution, norm = block.downsample.children()
            assert isinstance(convolution, nn.Conv2d)
            assert isinstance(norm, _BatchNorm)
            self.projection = (
                FusedConvolution(convolution, halves[convolution.weight], workspace),
                FusedBatchNorm(norm, workspace),
            )
        self.end = BlockEnd(
            self.norms[-1], self.projection[1] if self.projection else None, workspace
        )

    @property
    def all_norms(self) -> list[FusedBatchNorm]:
        return self.norms + ([self.projection[1]] if self.projection else [])


class FusedResNet:
    """Forward and backward of a `ResNet`; fp32 on any device where the kernels run, else half.

    `halves` holds the working copy of every convolution's weight; the `stem` has one more, folded,
    and makes the input: call `refresh` after each change of the weights.
    """

    def __init__(self, model: ResNet, halves: Mapping[Tensor, Tensor], plan: FusionPlan) -> None:
        self.model = model
        self._plan = plan
        group = shared_group(model.bn1)
        self._workspace = workspace = Workspace(model.conv1.weight.device, plan, group)
        self.stem = FoldedConvolution(model.conv1, halves[model.conv1.weight], workspace)
        assert isinstance(model.bn1, _BatchNorm)
        self.stem_norm = FusedBatchNorm(model.bn1, workspace)
        self.pools = isinstance(model.maxpool, nn.MaxPool2d)
        self.blocks = [
            FusedBlock(block, halves, workspace)
            for stage in range(model.stage_count)
            for block in model.get_submodule(f"layer{stage + 1}").children()
            if isinstance(block, ResidualBlock)
        ]
        self._norms = [self.stem_norm, *(n for block in self.blocks for n in block.all_norms)]
        counters = (n.module.num_batches_tracked for n in self._norms)
        self._counters = [counter for counter in counters if counter is not None]

    @property
    def zeroed(self) -> ZeroedBlock:
        """Memory that each pass fills with zeros."""
        return self._workspace.zeroed

    def refresh(self) -> None:
        """Take over the weights from their working copies, where these are others."""
        self.stem.refresh()

    def input_buffer(self, images: Tensor) -> Tensor:
        """Memory for what `stem.fill` makes of images [n, 3, h, w] of this shape."""
        return self.stem.input_buffer(images)

    def loss_and_gradients(
        self,
        images: Tensor,
        loss_of: Callable[[Tensor], Tensor],
        scale: Tensor,
        sink: Sink,
        cut: Cut,
        *,
        accumulate: bool,
    ) -> Tensor:
        """One forward and backward pass over `images` (a filled `input_buffer`).

        Statistics that ranks share are summed over them at a `cut`.

        `loss_of` takes FP32 logits; gradients are those of its value times `scale` (0-dim).
        Gradients of normalizations go straight to `grad`, added if `accumulate`.
        """
        self._workspace.begin(cut)
        for norm in self._norms:
            norm.accumulate = accumulate
        torch._foreach_add_(self._counters, 1)
        features, saved, stem = self._forward(images)
        loss, gradient = self._classify(features, loss_of, scale, sink)
        self._backward(gradient, saved, stem, images, sink)
        return loss

    def _forward(self, images: Tensor) -> tuple[Tensor, list[_Saved], list[Tensor]]:
        x = self.stem.forward_with_statistics(images, self.stem_norm)
        if self.pools:
            y, *rest = self.stem_norm.relu_pool(x)
        else:
            y, rest = self.stem_norm.relu(x), []
        saved: list[_Saved] = []
        for block in self.blocks:
            kept = _Saved(y)
            y = self._forward_block(block, kept)
            saved.append(kept)
        return y, saved, [x, *rest]

    @staticmethod
    def _forward_block(block: FusedBlock, kept: _Saved) -> Tensor:
        h = shortcut = kept.source
        if block.projection is not None:
            convolution, norm = block.projection
            kept.projected = shortcut = convolution.forward_with_statistics(kept.source, norm)
        last = len(block.convolutions) - 1
        for index, (convolution, norm) in enumerate(
            zip(block.convolutions, block.norms, strict=True)
        ):
            kept.inputs.append(h)
            x = convolution.forward_with_statistics(h, norm)
            kept.outputs.append(x)
            if index < last:
                h = norm.relu(x)
        y, kept.bits = block.end.forward(x, shortcut)
        return y

    def _classify(
        self, last: Tensor, loss_of: Callable[[Tensor], Tensor], scale: Tensor, sink: Sink
    ) -> tuple[Tensor, Tensor]:
        layer = self.model.fc
        features = torch.mean(last, dim=(2, 3), dtype=torch.float32).requires_grad_()
        with torch.enable_grad():
            loss = loss_of(functional.linear(features, layer.weight, layer.bias))
            gradient, of_weight, of_bias = torch.autograd.grad(
                loss * scale, [features, layer.weight, layer.bias]
            )
        sink.weight(layer.bias, of_bias)
        sink.weight(layer.weight, of_weight)
        positions = last.shape[2] * last.shape[3]
        spread = torch.empty_like(last)
        spread.copy_((gradient / positions)[:, :, None, None].expand_as(last))
        return loss.detach(), spread

    def _backward(
        self, dy: Tensor | None, saved: list[_Saved], stem: list[Tensor], images: Tensor, sink: Sink
    ) -> None:
        dy2: Tensor | None = None
        g: Tensor | None = None  # behind the ReLU of a block's end, where it is there already
        for index in reversed(range(len(self.blocks))):
            block, kept = self.blocks[index], saved.pop()
            if g is None:
                assert dy is not None
                assert kept.bits is not None
                g = block.end.reduce(dy, dy2, kept.bits, kept.outputs[-1], kept.projected)
            before = (self.blocks[index - 1], saved[-1]) if index else None
            dy, dy2, g = self._backward_block(block, kept, g, before, sink)
        assert dy is not None
        assert dy2 is not None
        dy = dy + dy2
        x = stem[0]
        if self.pools:
            dx = self.stem_norm.relu_pool_gradient(dy, stem[1], stem[2], x)
        else:
            dx = self.stem_norm.relu_gradient(dy, x)
        module = self.stem_norm.module
        sink.written(module.bias, module.weight)
        sink.weight(self.model.conv1.weight, self.stem.weight_gradient(dx, images))

    def _backward_block(
        self,
        block: FusedBlock,
        kept: _Saved,
        g: Tensor,
        before: tuple[FusedBlock, _Saved] | None,
        sink: Sink,
    ) -> tuple[Tensor | None, Tensor, Tensor | None]:
        """Backward from g to the block's input: (its gradient, the shortcut's, g of `before`).

        Either the first or the last is None: where one kernel makes both, the gradient at the end
        of the block before is made at once, and the sum of the first two is not.
        """
        dy, dx, projected = self._backward_end(block, kept, g, sink)
        last = len(block.convolutions) - 1
        shortcut = g
        if block.projection is not None:
            assert projected is not None
            convolution = block.projection[0]
            sink.weight(
                convolution.module.weight, convolution.weight_gradient(projected, kept.source)
            )
            shortcut = convolution.data_gradient(projected, kept.source)
            del projected
        for index in range(last, 0, -1):
            norm, x = block.norms[index - 1], kept.outputs[index - 1]
            if dx is None:  # only the last one's: `_backward_end` has been through it
                assert dy is not None
                dx = norm.relu_gradient(dy, x, reduced=True)
            else:
                convolution, source = block.convolutions[index], kept.inputs[index]
                sink.weight(convolution.module.weight, convolution.weight_gradient(dx, source))
                dx = norm.relu_gradient(convolution.data_gradient(dx, source), x)
            sink.written(norm.module.bias, norm.module.weight)
        assert dx is not None
        first = block.convolutions[0]
        sink.weight(first.module.weight, first.weight_gradient(dx, kept.source))
        if before is not None and first.pointwise:
            earlier, theirs = before
            tiles = self._plan.to_end_tiles(first.inputs, first.outputs)
            if tiles is not None:
                assert theirs.bits is not None
                behind = first.gradient_to_block_end(
                    dx, shortcut, theirs.bits, earlier.end, theirs.outputs[-1], theirs.projected,
                    tiles,
                )  # fmt: skip
                return None, shortcut, behind
        return first.data_gradient(dx, kept.source), shortcut, None

    def _backward_end(
        self, block: FusedBlock, kept: _Saved, g: Tensor, sink: Sink
    ) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """From g through the last normalization: (dy, dx, dx of the projection).

        dx is the gradient of the last convolution's output; where that convolution's backward
        pass is in the same kernel, dx is None and dy the gradient before it, behind its ReLU.
        """
        for norm in (block.norms[-1], *([block.projection[1]] if block.projection else [])):
            sink.written(norm.module.bias, norm.module.weight)
        x, convolution = kept.outputs[-1], block.convolutions[-1]
        tiles = None
        if convolution.pointwise:
            tiles = self._plan.through_end_tiles(convolution.inputs, convolution.outputs)
        if tiles is not None:
            dy, of_weight = convolution.backward_through_block_end(
                g, x, block.norms[-1], kept.outputs[-2], block.norms[-2], tiles
            )
            sink.weight(convolution.module.weight, of_weight)
            projected = None
            if block.projection is not None:
                assert kept.projected is not None
                projected = block.projection[1].gradient(g, kept.projected)
            return dy, None, projected
        if block.projection is None:
            return None, block.norms[-1].gradient(g, x), None
        assert kept.projected is not None
        return None, *block.end.gradients(g, x, kept.projected)
