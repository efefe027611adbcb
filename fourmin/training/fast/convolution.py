"""Launches of convolutions, and of the kernels that do what stands around them too."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from fourmin.training.fast.kernels import pointwise
from fourmin.training.fast.normalization import BlockEnd, FusedBatchNorm
from fourmin.training.fast.plan import Tiles
from fourmin.training.fast.workspace import Workspace, cdiv, empty_like_activation, rows_of

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

    def refresh(self) -> None:
        """Take over the working copy, where the weight is another tensor; here it is itself."""

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
            sums, scratch = self._zeroed(tuple(x.shape), found.scratch)
            found(x, self.weight, y, sums, scratch)
            norm.finalize(1, rows, sums)
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

    def _zeroed(self, shape: tuple[int, ...], scratch: int) -> tuple[Tensor, Tensor | None]:
        """Sums [2, outputs] and scratch memory of this convolution alone, zeros at the start of a
        pass; others where there is no room for them.
        """
        size = 2 * 4 * self.outputs
        slot = self._workspace.zeroed.slot((self, shape), size + scratch)
        if slot is None:
            return self._workspace.partial[: 2 * self.outputs].view(2, -1), None
        return slot[:size].view(torch.float32).view(2, -1), slot[size:]

    def _backward(self, dy: Tensor, x: Tensor, data: bool) -> Tensor:
        result: list[Tensor] = torch.ops.aten.convolution_backward(
            dy, x, self.weight, None, self.stride, self.padding, _NO_DILATION, False, _NO_PADDING,
            1, [data, not data, False],
        )  # fmt: skip
        return result[0] if data else result[1]

    def data_gradient(self, dy: Tensor, x: Tensor) -> Tensor:
        return self._backward(dy, x, True)

    def weight_gradient(self, dy: Tensor, x: Tensor) -> Tensor:
        """The gradient of the module's weight, in the activations' type."""
        return self._backward(dy, x, False)

    # Fused, for 1x1 convolutions.

    def _launch(self, rows: int, columns: int, tiles: Tiles) -> tuple[int, int, dict[str, Any]]:
        """(parts, programs, options) of a persistent kernel."""
        tiles_n = columns // tiles.columns
        most = max(1, self._workspace.multiprocessors * tiles.programs // tiles_n)
        parts = min(cdiv(rows, tiles.rows), most)
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
        parts = min(cdiv(rows, tiles.rows), self._workspace.multiprocessors * tiles.programs)
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
