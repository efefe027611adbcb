"""Images as blocks of pixels, for convolutions of few channels and a stride."""

# Triton infers the types of a kernel's arguments: pointers and numbers.
# ruff: noqa: ANN001

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def fold(
    images, blocks, total, of_image, of_channel, of_row, of_column, height, width, rows, columns,
    lead, CHANNELS: tl.constexpr, FOLD: tl.constexpr, PIXEL: tl.constexpr, BM: tl.constexpr,
    BJ: tl.constexpr,
) -> None:  # fmt: skip
    """blocks [n, rows, columns, FOLD, FOLD, PIXEL]: (b, d) has pixel b * FOLD + d - lead of images.

    What lies outside of the images, or beyond their channels, is 0. `of_*` are strides of images
    [n, CHANNELS, height, width], `total` counts blocks; BJ is a power of two.
    """
    block = tl.program_id(0) * BM + tl.arange(0, BM)
    j = tl.arange(0, BJ)
    column = (block % columns)[:, None] * FOLD + (j // PIXEL % FOLD)[None, :] - lead
    row = (block // columns % rows)[:, None] * FOLD + (j // (PIXEL * FOLD))[None, :] - lead
    image = (block // (columns * rows)).to(tl.int64)[:, None]
    channel = (j % PIXEL)[None, :]
    wanted = (block < total)[:, None] & (j < FOLD * FOLD * PIXEL)[None, :]
    inside = (row >= 0) & (row < height) & (column >= 0) & (column < width) & (channel < CHANNELS)
    at = image * of_image + channel * of_channel + row * of_row + column * of_column
    values = tl.load(images + at, mask=wanted & inside, other=0.0)
    to = block.to(tl.int64)[:, None] * (FOLD * FOLD * PIXEL) + j[None, :]
    tl.store(blocks + to, values.to(blocks.dtype.element_ty), mask=wanted)
