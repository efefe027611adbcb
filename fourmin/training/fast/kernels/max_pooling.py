"""3x3 max pooling of stride 2 of relu(x * scale + shift), which is never written.

With padding 1 it is the large stem of residual networks after its convolution; without, with
scale 1 and the convolution's bias as shift, AlexNet's. Pooling keeps for each output the tap (0 to
8, row-major) that won, the first of equal ones. It compares before rounding; torch, which pools
rounded values, may choose another of two values that half precision makes equal.
"""

# Triton infers the types of a kernel's arguments: pointers and numbers.
# ruff: noqa: ANN001, ANN202

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def apply_pool(
    x, saved, y, taps, winners, total, height, width, out_height, out_width,
    C: tl.constexpr, PADDING: tl.constexpr, WINNERS: tl.constexpr, BM: tl.constexpr,
    BC: tl.constexpr,
) -> None:  # fmt: skip
    """x [n, height, width, C] to y and taps [n, out_height, out_width, C].

    `winners`, if WINNERS, are the values of x at the winning taps; scale and shift are
    saved[2:4, C].
    """
    out = tl.program_id(0) * BM + tl.arange(0, BM)
    inside = out < total
    ow = out % out_width
    rest = out // out_width
    oh = rest % out_height
    image = rest // out_height
    c = tl.program_id(1) * BC + tl.arange(0, BC)
    scale = tl.load(saved + 2 * C + c)[None, :]
    shift = tl.load(saved + 3 * C + c)[None, :]
    # The greatest y is that of the greatest x where scale is positive, of the least where it is
    # negative: one comparison of x for each tap, and one normalization at the end.
    sign = tl.where(scale < 0, -1.0, 1.0)
    best = tl.full([BM, BC], float("-inf"), tl.float32)
    tap = tl.zeros([BM, BC], tl.int32)
    corner = (image.to(tl.int64) * height + oh * 2 - PADDING) * width + ow * 2 - PADDING
    for k in tl.static_range(9):
        h = oh * 2 - PADDING + k // 3
        w = ow * 2 - PADDING + k % 3
        valid = (inside & (h >= 0) & (h < height) & (w >= 0) & (w < width))[:, None]
        at = (corner + (k // 3) * width + k % 3) * C
        tile = tl.load(x + at[:, None] + c[None, :], mask=valid, other=0.0).to(tl.float32)
        value = tl.where(valid, tile * sign, float("-inf"))
        wins = value > best
        best = tl.where(wins, value, best)
        tap = tl.where(wins, k, tap)
    winner = best * sign
    result = tl.maximum(winner * scale + shift, 0.0)
    at = out.to(tl.int64)[:, None] * C + c[None, :]
    tl.store(y + at, result.to(y.dtype.element_ty), mask=inside[:, None])
    if WINNERS:
        tl.store(winners + at, winner.to(winners.dtype.element_ty), mask=inside[:, None])
    tl.store(taps + at, tap.to(tl.int8), mask=inside[:, None])


@triton.jit
def _pooled_gradient(
    dy, taps, position, inside, height, width, out_height, out_width, c, C: tl.constexpr,
    PADDING: tl.constexpr, BM: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """Sum of dy over the windows that position [n, height, width] won: at most 2 x 2."""
    w = position % width
    rest = position // width
    h = rest % height
    image = rest // height
    total = tl.zeros([BM, BC], tl.float32)
    for k in tl.static_range(4):
        # Window o covers 2 * o - PADDING and the two after it.
        oh = (h + PADDING) // 2 - k // 2
        ow = (w + PADDING) // 2 - k % 2
        valid = inside & (oh >= 0) & (oh < out_height) & (ow >= 0) & (ow < out_width)
        if k // 2 == 1:
            valid = valid & ((h + PADDING) % 2 == 0)
        if k % 2 == 1:
            valid = valid & ((w + PADDING) % 2 == 0)
        tap = (h - (oh * 2 - PADDING)) * 3 + w - (ow * 2 - PADDING)
        at = ((image.to(tl.int64) * out_height + oh) * out_width + ow)[:, None] * C + c[None, :]
        won = tl.load(taps + at, mask=valid[:, None], other=-1).to(tl.int32)
        grad = tl.load(dy + at, mask=valid[:, None], other=0.0).to(tl.float32)
        total += tl.where(won == tap[:, None], grad, 0.0)
    return total


@triton.jit
def gradient_pool(
    dy, taps, x, saved, coefficients, dx, total, height, width, out_height, out_width,
    C: tl.constexpr, PADDING: tl.constexpr, NORMALIZED: tl.constexpr, BM: tl.constexpr,
    BC: tl.constexpr,
) -> None:  # fmt: skip
    """dx = g, the gradient behind the pooling where no ReLU is closed.

    If NORMALIZED, a * g + b * x + c, as `batchnorm.gradient_relu`.
    """
    position = tl.program_id(0) * BM + tl.arange(0, BM)
    inside = position < total
    c = tl.program_id(1) * BC + tl.arange(0, BC)
    at = position.to(tl.int64)[:, None] * C + c[None, :]
    g = _pooled_gradient(
        dy, taps, position, inside, height, width, out_height, out_width, c, C, PADDING, BM, BC
    )
    if NORMALIZED:
        tile = tl.load(x + at, mask=inside[:, None], other=0.0).to(tl.float32)
        scale = tl.load(saved + 2 * C + c)[None, :]
        shift = tl.load(saved + 3 * C + c)[None, :]
        g = tl.where(tile * scale + shift > 0, g, 0.0)
        ca = tl.load(coefficients + c)[None, :]
        cb = tl.load(coefficients + C + c)[None, :]
        cc = tl.load(coefficients + 2 * C + c)[None, :]
        g = ca * g + cb * tile + cc
    tl.store(dx + at, g.to(dx.dtype.element_ty), mask=inside[:, None])
