"""Convolutions that GPUs have no fast kernels for, as others of the same sums.

Both add zeros: products and sums are those of the layer, in another order.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fourmin.training.fast.convolution import FusedConvolution
from fourmin.training.fast.kernels import folding, stem
from fourmin.training.fast.normalization import FusedBatchNorm
from fourmin.training.fast.workspace import Workspace, cdiv, empty_like_activation, rows_of

_ALIGNED = 8  # channels: 16 bytes in half precision, what tensor cores load at once


class FoldedConvolution(FusedConvolution):
    """One of few channels and stride s, as one of stride 1 over blocks of s x s pixels.

    Its input is what `fill` makes of images: [n, s * s * p, rows, columns] in channels-last memory,
    p the image's channels and some zeros, with the padding in it. The kernel [k, k] becomes one of
    ceil(k / s) blocks, with zeros where it does not fill them.
    """

    def __init__(self, module: nn.Conv2d, half: Tensor, workspace: Workspace) -> None:
        """For equal sizes in both directions; `half` is the working copy of the weight."""
        self._half = half
        self._fold, padding = int(module.stride[0]), int(module.padding[0])
        outputs, channels, self._kernel, _ = half.shape
        self._pixel = channels
        while self._fold**2 * self._pixel % _ALIGNED:
            self._pixel += 1
        self._lead = cdiv(padding, self._fold) * self._fold
        self._skipped = self._lead - padding
        self._span = cdiv(self._kernel + self._skipped, self._fold)
        side = self._span * self._fold
        self._whole = torch.zeros(
            (outputs, channels, side, side), dtype=half.dtype, device=half.device
        )
        weight = torch.zeros(
            (outputs, self._fold**2 * self._pixel, self._span, self._span),
            dtype=half.dtype, device=half.device,
        ).to(memory_format=torch.channels_last)  # fmt: skip
        super().__init__(module, weight, workspace)
        self.stride, self.padding = [1, 1], [0, 0]

    def refresh(self) -> None:
        self._filled(self._whole).copy_(self._half)
        self._pixels(self.weight).copy_(
            self._whole.unflatten(3, (-1, self._fold)).unflatten(2, (-1, self._fold))
            .permute(0, 2, 4, 3, 5, 1)
        )  # fmt: skip

    def input_buffer(self, images: Tensor) -> Tensor:
        """Memory for what `fill` makes of images [n, c, h, w] of this shape; not filled."""
        module, sizes = self.module, images.shape[2:]
        rows, columns = (
            (size + 2 * int(module.padding[0]) - self._kernel) // self._fold + self._span
            for size in sizes
        )
        return torch.empty(
            (images.shape[0], self.inputs, rows, columns),
            dtype=self.weight.dtype, device=self.weight.device, memory_format=torch.channels_last,
        )  # fmt: skip

    def fill(self, buffer: Tensor, images: Tensor) -> None:
        """Write images of any floating type into an `input_buffer`."""
        n, channels, height, width = images.shape
        rows, columns = buffer.shape[2:]
        total = n * rows * columns
        block = 1 << (self.inputs - 1).bit_length()
        tile = 4096 // block
        folding.fold[(cdiv(total, tile),)](
            images, buffer, total, *images.stride(), height, width, rows, columns, self._lead,
            CHANNELS=channels, FOLD=self._fold, PIXEL=self._pixel, BM=tile, BJ=block, num_warps=4,
        )  # fmt: skip

    def forward_with_statistics(self, x: Tensor, norm: FusedBatchNorm) -> Tensor:
        tiles = self._workspace.plan.stem_tiles(self._span**2 * self.inputs, self.outputs)
        if tiles is None:
            return super().forward_with_statistics(x, norm)
        y = empty_like_activation(x, self.outputs, *(s - self._span + 1 for s in x.shape[2:]))
        rows = rows_of(y)
        most = self._workspace.multiprocessors * tiles.programs
        parts = min(cdiv(rows, tiles.rows), most)
        stem.forward_statistics[(parts,)](
            x, self.weight, y, self._workspace.partial, rows, *y.shape[2:], *x.shape[2:], parts,
            INPUTS=self.inputs, SPAN=self._span, WIDTH=tiles.step, C=self.outputs, BM=tiles.rows,
            STAGES=tiles.stages, PRECISION=self._precision, num_warps=tiles.warps,
        )  # fmt: skip
        norm.finalize(parts, rows)
        return y

    def weight_gradient(self, dy: Tensor, x: Tensor) -> Tensor:
        pixels = self._pixels(super().weight_gradient(dy, x)).permute(0, 5, 1, 3, 2, 4)
        return self._filled(pixels.flatten(4).flatten(2, 3))

    def _filled(self, whole: Tensor) -> Tensor:
        end = self._skipped + self._kernel
        return whole[:, :, self._skipped : end, self._skipped : end]

    def _pixels(self, weight: Tensor) -> Tensor:
        """[outputs, span, span, s, s, channels] of a folded weight."""
        sizes = self._fold, self._fold, self._pixel
        blocks: Tensor = weight.permute(0, 2, 3, 1).unflatten(3, sizes)
        return blocks[..., : self._whole.shape[1]]


class DenseConvolution(FusedConvolution):
    """One in groups, as a dense one with zeros between the groups.

    cuDNN cuts a group's channels out of the activations and runs the groups one after the other.
    """

    def __init__(self, module: nn.Conv2d, half: Tensor, workspace: Workspace) -> None:
        self._half = half
        self._groups = module.groups
        weight = torch.zeros(
            (half.shape[0], half.shape[1] * module.groups, *half.shape[2:]),
            dtype=half.dtype, device=half.device,
        ).to(memory_format=torch.channels_last)  # fmt: skip
        super().__init__(module, weight, workspace)

    def refresh(self) -> None:
        for place, half in zip(
            self._diagonal(self.weight), self._half.chunk(self._groups), strict=True
        ):
            place.copy_(half)

    def weight_gradient(self, dy: Tensor, x: Tensor) -> Tensor:
        return torch.cat(self._diagonal(super().weight_gradient(dy, x)))

    def _diagonal(self, weight: Tensor) -> list[Tensor]:
        parts = [half.chunk(self._groups, dim=1) for half in weight.chunk(self._groups)]
        return [part[index] for index, part in enumerate(parts)]
