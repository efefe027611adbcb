"""Which fused convolutions are used where, and their tile sizes.

Chosen from times on one H100 and one H200 at batch 256 (cuDNN 9.19, Triton 3.6), each against
cuDNN's convolution and separate kernels; what is not here was slower fused.
"""

from __future__ import annotations

from dataclasses import dataclass

_SPARE = 16 << 10
"""Bytes of shared memory that a compiler takes for what it moves between threads."""


@dataclass(frozen=True)
class Tiles:
    """Tile sizes of a kernel in `kernels.pointwise`: rows, columns and steps of the inner product.

    `programs` is for each multiprocessor; the kernels are persistent.
    """

    rows: int
    columns: int
    step: int
    warps: int
    stages: int
    programs: int

    def stages_within(self, shared: int, each: int, kept: int) -> int:
        """How many of the stages fit into `shared` bytes: a tile takes `each`, and `kept` stay.

        The newest tile comes into registers' place, so that all but one wait in shared memory.
        """
        return max(1, min(self.stages, 1 + (shared - kept - _SPARE) // each))


@dataclass(frozen=True)
class FusionPlan:
    """Switches of the fusions, for measurements and tests; all are on by default.

    - `epilogue`: statistics in the convolution's epilogue by cuDNN, where its frontend is there;
    - `pointwise`: else `forward_statistics`, for 1x1 convolutions;
    - `stem`: the same in the first convolution;
    - `to_end`: `gradient_to_block_end`;
    - `through_end`: `backward_through_block_end`.
    """

    epilogue: bool = True
    pointwise: bool = True
    stem: bool = True
    to_end: bool = True
    through_end: bool = True
    widest_to_end: int = 128
    """Outputs of the convolutions that `gradient_to_block_end` is for."""

    def forward_tiles(self, inputs: int, outputs: int, stride: int) -> Tiles | None:
        """Tiles of `forward_statistics`; None where a convolution and a pass are faster."""
        if not self.pointwise or stride != 1 or inputs < 16:
            return None
        if inputs <= 128:
            return Tiles(128, min(outputs, 64), inputs, 4, 3, 2)
        if inputs <= 256 and outputs <= 64:
            return Tiles(128, min(outputs, 64), 64, 4, 3, 2)
        return None

    def stem_tiles(self, inputs: int, outputs: int) -> Tiles | None:
        """Tiles of `kernels.stem`, `inputs` of one output; None where one program cannot hold the
        weight.
        """
        step = 1 << (inputs - 1).bit_length()
        if not self.stem or step > 256 or outputs not in (16, 32, 64):
            return None
        return Tiles(64, outputs, step, 4, 1, 3)

    def to_end_tiles(self, inputs: int, outputs: int) -> Tiles | None:
        """Tiles of `gradient_to_block_end`; None where separate kernels are faster."""
        if not self.to_end or not 16 <= outputs <= self.widest_to_end:
            return None
        return Tiles(64, min(inputs, 128), outputs, 8, 3, 1)

    def through_end_tiles(self, inputs: int, outputs: int) -> Tiles | None:
        """Tiles of `backward_through_block_end`; None where the sums do not fit."""
        if not self.through_end or not 16 <= inputs <= 64 or outputs > 256:
            return None
        return Tiles(32, inputs, outputs, 8, 3, 1)
