"""Launches of the kernels of batch normalization, as the executor wants them."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from fourmin.training.fast.kernels import batchnorm, max_pooling
from fourmin.training.fast.workspace import (
    BLOCK_ROWS,
    Workspace,
    cdiv,
    channels_block,
    empty_like_activation,
    power_of_two,
    rows_of,
    warps_for,
)

_HELD_BY_L2 = 1 << 24  # elements


class FusedBatchNorm:
    """One normalization of images: its saved statistics, gradients, and the kernels around it."""

    def __init__(self, module: _BatchNorm, workspace: Workspace) -> None:
        self.module = module
        self._workspace = workspace
        self.channels = module.num_features
        device = module.weight.device
        self.saved = torch.empty(4, self.channels, device=device)
        self.coefficients = torch.empty(3, self.channels, device=device)
        # Reductions take narrow tiles, for many programs.
        self._block = channels_block(self.channels, 64)
        self._tile = 4096 // self._block
        self.accumulate = False

    def statistics(self, x: Tensor) -> None:
        """Batch statistics of x, in a pass of their own."""
        rows, blocks = rows_of(x), self.channels // self._block
        parts = self._workspace.parts(rows, self._tile, blocks, 2)
        batchnorm.statistics[(parts * blocks,)](
            x, self._workspace.partial, rows, self.channels,
            BM=self._tile, BC=self._block, STAGES=3, num_warps=4,
        )  # fmt: skip
        self.finalize(parts, rows)

    def finalize(self, parts: int, rows: int, partial_sums: Tensor | None = None) -> None:
        """From partial sums, those of the workspace or others, to saved and running statistics.

        Raises ValueError for a single row, whose variance has no unbiased estimate.
        """
        rows *= self._workspace.span
        if rows < 2:
            raise ValueError("batch statistics need more than one value per channel")
        sums = self._workspace.partial if partial_sums is None else partial_sums
        totals = self._workspace.totals(sums, parts, 2 * self.channels)
        if totals is not None:
            sums, parts = totals, 1
        module = self.module
        block = channels_block(self.channels, 16)
        batchnorm.finalize_forward[(self.channels // block,)](
            sums, parts, rows, self.channels, module.weight, module.bias,
            module.running_mean, module.running_var, self.saved, module.eps, module.momentum,
            BP=power_of_two(parts), BC=block, num_warps=warps_for(parts),
        )  # fmt: skip

    def finalize_gradient(self, parts: int, rows: int) -> None:
        """From partial sums of a backward pass to coefficients and parameters' gradients."""
        totals = self._workspace.totals(self._workspace.partial, parts, 2 * self.channels)
        self.coefficients_from(parts, rows, totals)

    def coefficients_from(
        self, parts: int, rows: int, totals: Tensor | None, stride: int = 2, product: int = 1
    ) -> None:
        """The same with the sums of all ranks that share statistics (`Workspace.totals`)."""
        block = channels_block(self.channels, 16)
        module, partial = self.module, self._workspace.partial
        batchnorm.finalize_backward[(self.channels // block,)](
            partial, parts, stride * self.channels, product * self.channels,
            partial if totals is None else totals, rows * self._workspace.span, self.channels,
            self.saved, module.weight.grad, module.bias.grad, self.coefficients,
            SHARED=totals is not None, ACCUMULATE=self.accumulate, BP=power_of_two(parts),
            BC=block, num_warps=warps_for(parts),
        )  # fmt: skip

    def relu(self, x: Tensor) -> Tensor:
        """relu(normalised x)."""
        return self._apply(x, self.saved, relu=True)

    def normalized(self, x: Tensor) -> Tensor:
        """Normalised x."""
        return self._apply(x, self.saved, relu=False)

    def relu_of_biased(self, x: Tensor, affine: Tensor) -> Tensor:
        """relu(x * scale + shift), `affine[2:4, C]`, FP32: what this normalises where a bias and
        a ReLU come before it.
        """
        return self._apply(x, affine, relu=True)

    def _apply(self, x: Tensor, affine: Tensor, *, relu: bool) -> Tensor:
        y = torch.empty_like(x)
        rows = rows_of(x)
        grid, options = pointwise_launch(rows, self.channels)
        batchnorm.apply_relu[grid](x, affine, y, rows, self.channels, RELU=relu, **options)
        return y

    def relu_gradient(self, dy: Tensor, x: Tensor, *, reduced: bool = False) -> Tensor:
        """Gradient of x from that of `relu(x)`; `reduced`: dy is masked, coefficients are there."""
        if not reduced:
            self._reduce(dy, x, rows_of(x))
        return self.gradient(dy, x, masked=not reduced)

    def gradient_before_relu(self, dy: Tensor, x: Tensor) -> Tensor:
        """Gradient of v from that of `normalized(x)`, x = relu(v)."""
        self._reduce(dy, x, rows_of(x), masked=False)
        return self.gradient(dy, x, positive=True)

    def _reduce(self, dy: Tensor, x: Tensor, count: int, *, masked: bool = True) -> None:
        """Coefficients from dy and x; the mean and variance are over `count` rows."""
        rows, blocks = rows_of(x), self.channels // self._block
        parts = self._workspace.parts(rows, self._tile, blocks, 2)
        batchnorm.reduce_relu[(parts * blocks,)](
            dy, x, self.saved, self._workspace.partial, rows, self.channels, MASKED=masked,
            BM=self._tile, BC=self._block, STAGES=3, num_warps=4,
        )  # fmt: skip
        self.finalize_gradient(parts, count)

    def gradient(
        self, g: Tensor, x: Tensor, *, masked: bool = False, positive: bool = False
    ) -> Tensor:
        """a * g + b * x + c; `masked`: g counts only where relu(x) is open; `positive`: this
        counts only where x is.
        """
        dx = torch.empty_like(x)
        rows = rows_of(x)
        grid, options = pointwise_launch(rows, self.channels)
        batchnorm.gradient_relu[grid](
            g, x, self.saved, self.coefficients, dx, rows, self.channels, MASKED=masked,
            POSITIVE=positive, **options,
        )  # fmt: skip
        return dx

    # Pooling.

    def relu_pool(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """max_pool(relu(normalised x), 3, stride 2, padding 1), winning taps (int8), their x."""
        y, taps = empty_pooled(x, padding=1)
        winners = torch.empty_like(y)
        launch_pool(x, self.saved, y, taps, winners, padding=1)
        return y, taps, winners

    def relu_pool_gradient(self, dy: Tensor, taps: Tensor, winners: Tensor, x: Tensor) -> Tensor:
        """Gradient of x from that of `relu_pool(x)`."""
        # What is not the maximum of any window has no gradient: the sums are over windows.
        self._reduce(dy, winners, rows_of(x))
        dx = torch.empty_like(x)
        launch_pool_gradient(dy, taps, dx, padding=1, normalization=(x, self))
        return dx

    def pool_of_biased(self, x: Tensor, affine: Tensor) -> tuple[Tensor, Tensor]:
        """max_pool(`relu_of_biased(x, affine)`, 3, stride 2) and its winning taps (int8)."""
        y, taps = empty_pooled(x, padding=0)
        launch_pool(x, affine, y, taps, None, padding=0)
        return y, taps


class BlockEnd:
    """The end of a residual block: last normalization, shortcut, addition, ReLU."""

    def __init__(
        self, last: FusedBatchNorm, projection: FusedBatchNorm | None, workspace: Workspace
    ) -> None:
        self.last = last
        self.projection = projection
        self._workspace = workspace

    def forward(self, x: Tensor, shortcut: Tensor) -> tuple[Tensor, Tensor]:
        """relu(last(x) + shortcut) and its bits; `shortcut` is not yet normalised if projected."""
        rows, channels = rows_of(x), self.last.channels
        y = torch.empty_like(x)
        blocks = cdiv(rows, BLOCK_ROWS)
        bits = torch.empty(blocks * 16, channels, dtype=torch.uint8, device=x.device)
        block = channels_block(channels, 128)
        columns = channels // block
        parts = self._workspace.parts(rows, BLOCK_ROWS, columns, 4)
        batchnorm.apply_block_end[(parts * columns,)](
            x, self.last.saved, shortcut, (self.projection or self.last).saved, y, bits, rows,
            channels, PROJECTED=self.projection is not None, BC=block, STAGES=2, num_warps=8,
        )  # fmt: skip
        return y, bits

    def reduce(
        self, dy: Tensor, dy2: Tensor | None, bits: Tensor, x: Tensor, projected: Tensor | None
    ) -> Tensor:
        """g, the gradient behind the ReLU, with both normalizations' coefficients made."""
        rows, channels = rows_of(x), self.last.channels
        block = channels_block(channels, 64)
        columns = channels // block
        parts = self._workspace.parts(rows, BLOCK_ROWS, columns, 4)
        g = torch.empty_like(x)
        batchnorm.reduce_block_end[(parts * columns,)](
            dy, dy if dy2 is None else dy2, bits, x, self.last.saved,
            x if projected is None else projected, (self.projection or self.last).saved, g,
            self._workspace.partial, rows, channels,
            TWO_GRADIENTS=dy2 is not None, PROJECTED=self.projection is not None, BC=block,
            STAGES=2, num_warps=4,
        )  # fmt: skip
        self.finalize_gradient(parts, rows)
        return g

    def finalize_gradient(self, parts: int, rows: int) -> None:
        """Coefficients from the partial sums of a reduction."""
        stride = 2 if self.projection is None else 3
        totals = self._workspace.totals(self._workspace.partial, parts, stride * self.last.channels)
        self.last.coefficients_from(parts, rows, totals, stride)
        if self.projection is not None:
            self.projection.coefficients_from(parts, rows, totals, stride, 2)

    def gradients(self, g: Tensor, x: Tensor, projected: Tensor) -> tuple[Tensor, Tensor]:
        """Gradients of x and of the projection's convolution output."""
        assert self.projection is not None
        rows, channels = rows_of(x), self.last.channels
        block = channels_block(channels, 64)
        tile = 4096 // block
        dx, dx2 = torch.empty_like(x), torch.empty_like(projected)
        batchnorm.gradient_two[(cdiv(rows, tile) * (channels // block),)](
            g, x, self.last.coefficients, dx, projected, self.projection.coefficients, dx2,
            rows, channels, BM=tile, BC=block, num_warps=8,
        )  # fmt: skip
        return dx, dx2


def pointwise_launch(rows: int, channels: int) -> tuple[tuple[int], dict[str, int]]:
    """Grid and tiles of a kernel that only reads and writes activations [rows, channels].

    From times on an H200 (benchmarks/results/pointwise-tiles-H200.txt): narrow tiles for what its
    L2 cache holds.
    """
    if rows * channels < _HELD_BY_L2:
        block, elements, warps = channels_block(channels, 64), 4096, 4
    elif channels >= 1024:
        block, elements, warps = channels_block(channels, 128), 4096, 8
    else:
        block, elements, warps = channels_block(channels, 512), 2048, 4
    tile = elements // block
    return (cdiv(rows, tile) * (channels // block),), {"BM": tile, "BC": block, "num_warps": warps}


def empty_pooled(x: Tensor, padding: int) -> tuple[Tensor, Tensor]:
    """(y, taps) of a 3x3 pooling of stride 2 of x, not filled."""
    sizes = ((size + 2 * padding - 3) // 2 + 1 for size in x.shape[2:])
    y = empty_like_activation(x, x.shape[1], *sizes)
    return y, torch.empty_like(y, dtype=torch.int8)


def launch_pool(
    x: Tensor, affine: Tensor, y: Tensor, taps: Tensor, winners: Tensor | None, padding: int
) -> None:
    """Fill y, taps and winners from relu(x * affine[2] + affine[3])."""
    total, channels = rows_of(y), x.shape[1]
    block = channels_block(channels, 64)
    tile = 1024 // block
    max_pooling.apply_pool[(cdiv(total, tile), channels // block)](
        x, affine, y, taps, y if winners is None else winners, total, *x.shape[2:], *y.shape[2:],
        C=channels, PADDING=padding, WINNERS=winners is not None, BM=tile, BC=block, num_warps=4,
    )  # fmt: skip


def launch_pool_gradient(
    dy: Tensor, taps: Tensor, dx: Tensor, padding: int,
    normalization: tuple[Tensor, FusedBatchNorm] | None = None,
) -> None:  # fmt: skip
    """Fill dx; with (x, norm), through the normalization of x that the pooling took."""
    channels, (height, width) = dx.shape[1], dx.shape[2:]
    squares = dx.shape[0] * ((height + 2 - padding) // 2) * ((width + 2 - padding) // 2)
    block = channels_block(channels, 64)
    tile = 512 // block
    x, saved, coefficients = dx, dx, dx
    if normalization is not None:
        x, norm = normalization
        saved, coefficients = norm.saved, norm.coefficients
    max_pooling.gradient_pool[(cdiv(squares, tile), channels // block)](
        dy, taps, x, saved, coefficients, dx, squares, *dx.shape[2:], *dy.shape[2:],
        C=channels, PADDING=padding, NORMALIZED=normalization is not None, BM=tile, BC=block,
        num_warps=4,
    )  # fmt: skip
