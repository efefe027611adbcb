"""Launches of the kernels: batch normalization and convolutions as the executor wants them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from fourmin.training.fast import epilogue
from fourmin.training.fast.kernels import batchnorm, max_pooling, pointwise
from fourmin.training.fast.plan import FusionPlan, Tiles

BLOCK_ROWS = 128
"""Rows of an activation that share a row of packed bits."""
_MOST_PROGRAMS = 4  # of a reduction, for each multiprocessor


def multiprocessors(device: torch.device) -> int:
    """Multiprocessors of a GPU; a few where Triton's interpreter stands in for one."""
    if device.type != "cuda":
        return 3
    return torch.cuda.get_device_properties(device).multi_processor_count


def shared_memory(device: torch.device) -> int:
    """Bytes of shared memory that a program may have; plenty where nothing has any."""
    if device.type != "cuda":
        return 1 << 20
    return int(torch.cuda.get_device_properties(device).shared_memory_per_block_optin)


def channels_block(channels: int, most: int) -> int:
    """The greatest power of two that divides `channels`, at most `most`."""
    return min(channels & -channels, most)


def _cdiv(a: int, b: int) -> int:
    return -(-a // b)


def _power_of_two(parts: int) -> int:
    """Partial sums that a program adds at once."""
    return min(512, max(16, 1 << (parts - 1).bit_length()))


def rows_of(x: Tensor) -> int:
    """M of an activation [n, C, h, w] in channels-last memory, seen as a matrix [M, C]."""
    return x.shape[0] * x.shape[2] * x.shape[3]


def empty_like_activation(x: Tensor, channels: int, height: int, width: int) -> Tensor:
    """An activation of x's type and number of images in channels-last memory, not filled."""
    return torch.empty(
        (x.shape[0], channels, height, width),
        dtype=x.dtype, device=x.device, memory_format=torch.channels_last,
    )  # fmt: skip


class Workspace:
    """What the layers of one model share.

    `partial` holds partial sums: kernels of one stream follow each other, so one is enough.
    """

    def __init__(self, device: torch.device, plan: FusionPlan) -> None:
        self.plan = plan
        self.multiprocessors = multiprocessors(device)
        self.shared = shared_memory(device)
        self._epilogue = plan.epilogue and device.type == "cuda" and epilogue.available()
        self._epilogues: dict[tuple[object, ...], epilogue.StatisticsConvolution | None] = {}
        most = self.multiprocessors * _MOST_PROGRAMS
        # Programs times the channels that each sums, three sums at most.
        self.partial = torch.empty(most * 3 * 256 + 3 * 4096, device=device)

    def statistics_convolution(
        self, x: Tensor, weight: Tensor, y: Tensor, stride: list[int], padding: list[int]
    ) -> epilogue.StatisticsConvolution | None:
        """The convolution of these shapes with statistics; None where there is none."""
        if not self._epilogue or x.dtype == torch.float32:
            return None
        key = (tuple(x.shape), tuple(weight.shape), stride[0], padding[0])
        if key not in self._epilogues:
            try:
                found = epilogue.StatisticsConvolution(x, weight, y, stride, padding)
            except RuntimeError:
                found = None
            self._epilogues[key] = found
        return self._epilogues[key]

    def split(self, rows: int, tile: int, columns: int) -> tuple[int, int]:
        """(programs, rows each) for `columns` column blocks over `rows` rows in tiles."""
        tiles = _cdiv(rows, tile)
        parts = max(1, min(tiles, self.multiprocessors * _MOST_PROGRAMS // columns))
        each = _cdiv(tiles, parts)
        return _cdiv(tiles, each), each * tile


class FusedBatchNorm:
    """One nn.BatchNorm2d: its saved statistics, gradients, and the kernels around it."""

    def __init__(self, module: nn.BatchNorm2d, workspace: Workspace) -> None:
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
        if rows < 2:
            raise ValueError("batch statistics need more than one value per channel")
        module = self.module
        block = channels_block(self.channels, 16)
        batchnorm.finalize_forward[(self.channels // block,)](
            self._workspace.partial, parts, rows, self.channels, module.weight, module.bias,
            module.running_mean, module.running_var, self.saved, module.eps, module.momentum,
            BP=_power_of_two(parts), BC=block, num_warps=4,
        )  # fmt: skip

    def finalize_gradient(self, parts: int, rows: int, stride: int = 2, product: int = 1) -> None:
        """From partial sums of a backward pass to coefficients and parameters' gradients."""
        block = channels_block(self.channels, 16)
        module = self.module
        batchnorm.finalize_backward[(self.channels // block,)](
            self._workspace.partial, parts, stride * self.channels, product * self.channels, rows,
            self.channels, self.saved, module.weight.grad, module.bias.grad, self.coefficients,
            ACCUMULATE=self.accumulate, BP=_power_of_two(parts), BC=block, num_warps=4,
        )  # fmt: skip

    def _grid(self, rows: int) -> tuple[int, int]:
        return _cdiv(rows, self._rows), self.channels // self._wide

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
        max_pooling.apply_pool[(_cdiv(total, tile),)](
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
        max_pooling.gradient_pool[(_cdiv(rows, tile),)](
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
        blocks = _cdiv(rows, BLOCK_ROWS)
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
        self.last.finalize_gradient(parts, rows, stride)
        if self.projection is not None:
            self.projection.finalize_gradient(parts, rows, stride, 2)

    def gradients(self, g: Tensor, x: Tensor, projected: Tensor) -> tuple[Tensor, Tensor]:
        """Gradients of x and of the projection's convolution output."""
        assert self.projection is not None
        rows, channels = rows_of(x), self.last.channels
        block = channels_block(channels, 64)
        tile = 4096 // block
        dx, dx2 = torch.empty_like(x), torch.empty_like(projected)
        batchnorm.gradient_two[(_cdiv(rows, tile), channels // block)](
            g, x, self.last.coefficients, dx, projected, self.projection.coefficients, dx2,
            rows, channels, BM=tile, BC=block, num_warps=8,
        )  # fmt: skip
        return dx, dx2


_NO_DILATION, _NO_PADDING = [1, 1], [0, 0]


class FusedConvolution:
    """One nn.Conv2d without bias, its weight in the activations' type."""

    def __init__(self, module: nn.Conv2d, weight: Tensor, workspace: Workspace) -> None:
        self.module = module
        self.weight = weight
        self._workspace = workspace
        self.stride = [int(s) for s in module.stride]
        self.padding = [int(p) for p in module.padding]
        self.outputs, self.inputs = weight.shape[:2]
        self.pointwise = module.kernel_size == (1, 1) and module.groups == 1
        self._precision = "ieee" if weight.dtype == torch.float32 else "tf32"

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = torch.ops.aten.convolution(
            x, self.weight, None, self.stride, self.padding, _NO_DILATION, False, _NO_PADDING, 1
        )
        return y

    def forward_with_statistics(self, x: Tensor, norm: FusedBatchNorm) -> Tensor:
        """The output, with the statistics of `norm`, taken on the way where that is faster."""
        _n, _, height, width = x.shape
        sizes = [
            (size + 2 * pad - kernel) // step + 1
            for size, pad, kernel, step in zip(
                (height, width), self.padding, self.weight.shape[2:], self.stride, strict=True
            )
        ]
        y = empty_like_activation(x, self.outputs, *sizes)
        rows = rows_of(y)
        found = self._workspace.statistics_convolution(x, self.weight, y, self.stride, self.padding)
        if found is not None:
            found(x, self.weight, y, self._workspace.partial[: 2 * self.outputs].view(2, -1))
            norm.finalize(1, rows)
            return y
        tiles = None
        if self.pointwise:
            tiles = self._workspace.plan.forward_tiles(self.inputs, self.outputs, self.stride[0])
        if tiles is None:
            y = self.forward(x)
            norm.statistics(y)
            return y
        parts, programs, options = self._launch(rows, self.outputs, tiles)
        pointwise.forward_statistics[(programs,)](
            x, self.weight, y, self._workspace.partial, rows, self.outputs, self.inputs, parts,
            ONE_STEP=self.inputs == tiles.step, **options,
        )  # fmt: skip
        norm.finalize(parts, rows)
        return y

    def _backward(self, dy: Tensor, x: Tensor, data: bool) -> Tensor:
        result: list[Tensor] = torch.ops.aten.convolution_backward(
            dy, x, self.weight, None, self.stride, self.padding, _NO_DILATION, False, _NO_PADDING,
            1, [data, not data, False],
        )  # fmt: skip
        return result[0] if data else result[1]

    def data_gradient(self, dy: Tensor, x: Tensor) -> Tensor:
        return self._backward(dy, x, True)

    def weight_gradient(self, dy: Tensor, x: Tensor) -> Tensor:
        """The gradient of the weight, in the activations' type."""
        return self._backward(dy, x, False)

    # Fused, for 1x1 convolutions.

    def _launch(self, rows: int, columns: int, tiles: Tiles) -> tuple[int, int, dict[str, Any]]:
        """(parts, programs, options) of a persistent kernel."""
        tiles_n = columns // tiles.columns
        most = max(1, self._workspace.multiprocessors * tiles.programs // tiles_n)
        parts = min(_cdiv(rows, tiles.rows), most)
        options = {
            "BM": tiles.rows, "BN": tiles.columns, "BK": tiles.step, "STAGES": tiles.stages,
            "num_warps": tiles.warps, "PRECISION": self._precision,
        }  # fmt: skip
        return parts, parts * tiles_n, options

    def gradient_to_block_end(
        self, dx: Tensor, dy2: Tensor, bits: Tensor, end: BlockEnd, x: Tensor,
        projected: Tensor | None, tiles: Tiles,
    ) -> Tensor:  # fmt: skip
        """`data_gradient(dx)` and `end.reduce` in one kernel."""
        g = torch.empty_like(x)
        rows = rows_of(dx)
        parts, programs, options = self._launch(rows, self.inputs, tiles)
        activations = 2 if projected is None else 3
        options["K"], size = options.pop("BK"), x.element_size()
        options["STAGES"] = tiles.stages_within(
            self._workspace.shared,
            tiles.rows * (tiles.columns * (activations * size + 1) + self.outputs * size),
            self.outputs * tiles.columns * size,
        )
        pointwise.gradient_to_block_end[(programs,)](
            dx, self.weight, dy2, bits, x, end.last.saved, x if projected is None else projected,
            (end.projection or end.last).saved, g, self._workspace.partial, rows, self.inputs,
            parts, PROJECTED=end.projection is not None, **options,
        )  # fmt: skip
        end.finalize_gradient(parts, rows)
        return g

    def backward_through_block_end(
        self, g: Tensor, x: Tensor, last: FusedBatchNorm, before: Tensor, norm: FusedBatchNorm,
        tiles: Tiles,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        """`last.gradient`, both gradients of this convolution and the reduction of `norm`, in one.

        g and x are behind and before `last`. Returns the gradient behind the ReLU before this
        convolution, and the weight's (FP32).
        """
        dy = torch.empty_like(before)
        rows = rows_of(x)
        parts = min(_cdiv(rows, tiles.rows), self._workspace.multiprocessors * tiles.programs)
        sums = torch.empty(parts, self.outputs, self.inputs, 1, 1, device=x.device)
        size = x.element_size()
        stages = tiles.stages_within(
            self._workspace.shared,
            tiles.rows * (2 * self.outputs + self.inputs) * size,
            (tiles.rows + self.inputs) * self.outputs * size,
        )
        pointwise.backward_through_block_end[(parts,)](
            g, x, last.coefficients, self.weight, before, norm.saved, dy,
            self._workspace.partial, sums, rows, parts, N=self.inputs, K=self.outputs,
            BM=tiles.rows, STAGES=stages, PRECISION=self._precision, num_warps=tiles.warps,
        )  # fmt: skip
        norm.finalize_gradient(parts, rows)
        return dy, sums.sum(0)
