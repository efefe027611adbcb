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
)


class FusedBatchNorm:
    """One normalization of images: its saved statistics, gradients, and the kernels around it."""

    def __init__(self, module: _BatchNorm, workspace: Workspace) -> None:
        self.module = module
        self._workspace = workspace
        self.channels = module.num_features
        device = module.weight.device
        self.saved = torch.empty(4, self.channels, device=device)
        self.coefficients = torch.empty(3, self.channels, device=device)
        # Reductions take narrow tiles, for many programs; what else there is takes whole rows.
        self._block = channels_block(self.channels, 64)
        self._tile = 4096 // self._block
        self._wide = channels_block(self.channels, 256)
        self._rows = 8192 // self._wide
        self.accumulate = False

    def statistics(self, x: Tensor) -> None:
        """Batch statistics of x, in a pass of their own."""
        rows, blocks = rows_of(x), self.channels // self._block
        parts, each = self._workspace.split(rows, self._tile, blocks)
        batchnorm.statistics[(parts, blocks)](
            x, self._workspace.partial, rows, self.channels, each,
            BM=self._tile, BC=self._block, num_warps=8,
        )  # fmt: skip
        self.finalize(parts, rows)

    def finalize(self, parts: int, rows: int) -> None:
        """From partial sums in the workspace to saved and running statistics.

        Raises ValueError for a single row, whose variance has no unbiased estimate.
        """
        rows *= self._workspace.span
        if rows < 2:
            raise ValueError("batch statistics need more than one value per channel")
        sums = self._workspace.totals(parts, 2 * self.channels)
        if sums is None:
            sums = self._workspace.partial
        else:
            parts = 1
        module = self.module
        block = channels_block(self.channels, 16)
        batchnorm.finalize_forward[(self.channels // block,)](
            sums, parts, rows, self.channels, module.weight, module.bias,
            module.running_mean, module.running_var, self.saved, module.eps, module.momentum,
            BP=power_of_two(parts), BC=block, num_warps=4,
        )  # fmt: skip

    def finalize_gradient(self, parts: int, rows: int) -> None:
        """From partial sums of a backward pass to coefficients and parameters' gradients."""
        self.coefficients_from(parts, rows, self._workspace.totals(parts, 2 * self.channels))

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
            BC=block, num_warps=4,
        )  # fmt: skip

    def _grid(self, rows: int) -> tuple[int, int]:
        return cdiv(rows, self._rows), self.channels // self._wide

    def relu(self, x: Tensor) -> Tensor:
        """relu(normalised x)."""
        y = torch.empty_like(x)
        rows = rows_of(x)
        batchnorm.apply_relu[self._grid(rows)](
            x, self.saved, y, rows, self.channels,
            BM=self._rows, BC=self._wide, num_warps=8,
        )  # fmt: skip
        return y

    def relu_gradient(self, dy: Tensor, x: Tensor, *, reduced: bool = False) -> Tensor:
        """Gradient of x from that of `relu(x)`; `reduced`: dy is masked, coefficients are there."""
        if not reduced:
            self._reduce_relu(dy, x, rows_of(x))
        return self.gradient(dy, x, masked=not reduced)

    def _reduce_relu(self, dy: Tensor, x: Tensor, count: int) -> None:
        """Coefficients from dy and x; the mean and variance are over `count` rows."""
        rows, blocks = rows_of(x), self.channels // self._block
        parts, each = self._workspace.split(rows, self._tile, blocks)
        batchnorm.reduce_relu[(parts, blocks)](
            dy, x, self.saved, self._workspace.partial, rows, self.channels, each,
            BM=self._tile, BC=self._block, num_warps=8,
        )  # fmt: skip
        self.finalize_gradient(parts, count)

    def gradient(self, g: Tensor, x: Tensor, *, masked: bool = False) -> Tensor:
        """a * g + b * x + c; `masked`: g counts only where relu(x) is open."""
        dx = torch.empty_like(x)
        rows = rows_of(x)
        batchnorm.gradient_relu[self._grid(rows)](
            g, x, self.saved, self.coefficients, dx, rows, self.channels, MASKED=masked,
            BM=self._rows, BC=self._wide, num_warps=8,
        )  # fmt: skip
        return dx

    # The large stem.

    def relu_pool(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """max_pool(relu(normalised x), 3, stride 2, padding 1), winning taps (int8), their x."""
        height, width = x.shape[2:]
        out_height, out_width = (height - 1) // 2 + 1, (width - 1) // 2 + 1
        y = empty_like_activation(x, self.channels, out_height, out_width)
        taps = torch.empty_like(y, dtype=torch.int8)
        winners = torch.empty_like(y)
        total = rows_of(y)
        tile = 1024 // self.channels
        max_pooling.apply_pool[(cdiv(total, tile),)](
            x, self.saved, y, taps, winners, total, height, width, out_height, out_width,
            C=self.channels, BM=tile, num_warps=4,
        )  # fmt: skip
        return y, taps, winners

    def relu_pool_gradient(self, dy: Tensor, taps: Tensor, winners: Tensor, x: Tensor) -> Tensor:
        """Gradient of x from that of `relu_pool(x)`."""
        height, width = x.shape[2:]
        out_height, out_width = dy.shape[2:]
        rows = rows_of(x)
        # What is not the maximum of any window has no gradient: the sums are over windows.
        self._reduce_relu(dy, winners, rows)
        tile = 1024 // self.channels
        dx = torch.empty_like(x)
        max_pooling.gradient_pool[(cdiv(rows, tile),)](
            dy, taps, x, self.saved, self.coefficients, dx, rows, height, width, out_height,
            out_width, C=self.channels, BM=tile, num_warps=2,
        )  # fmt: skip
        return dx


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
        block = channels_block(channels, 256)
        batchnorm.apply_block_end[(blocks, channels // block)](
            x, self.last.saved, shortcut, (self.projection or self.last).saved, y, bits, rows,
            channels, PROJECTED=self.projection is not None, BC=block, num_warps=4,
        )  # fmt: skip
        return y, bits

    def reduce(
        self, dy: Tensor, dy2: Tensor | None, bits: Tensor, x: Tensor, projected: Tensor | None
    ) -> Tensor:
        """g, the gradient behind the ReLU, with both normalizations' coefficients made."""
        rows, channels = rows_of(x), self.last.channels
        block = channels_block(channels, 64)
        columns = channels // block
        parts, each = self._workspace.split(rows, BLOCK_ROWS, columns)
        g = torch.empty_like(x)
        batchnorm.reduce_block_end[(parts, columns)](
            dy, dy if dy2 is None else dy2, bits, x, self.last.saved,
            x if projected is None else projected, (self.projection or self.last).saved, g,
            self._workspace.partial, rows, channels, each // BLOCK_ROWS,
            TWO_GRADIENTS=dy2 is not None, PROJECTED=self.projection is not None, BC=block,
            num_warps=8,
        )  # fmt: skip
        self.finalize_gradient(parts, rows)
        return g

    def finalize_gradient(self, parts: int, rows: int) -> None:
        """Coefficients from the partial sums of a reduction."""
        stride = 2 if self.projection is None else 3
        totals = self._workspace.totals(parts, stride * self.last.channels)
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
        batchnorm.gradient_two[(cdiv(rows, tile), channels // block)](
            g, x, self.last.coefficients, dx, projected, self.projection.coefficients, dx2,
            rows, channels, BM=tile, BC=block, num_warps=8,
        )  # fmt: skip
        return dx, dx2
