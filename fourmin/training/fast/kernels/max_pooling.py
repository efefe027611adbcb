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
def _window(
    dy, taps, image, oh, ow, inside, out_height, out_width, c, C: tl.constexpr
):  # fmt: skip
    """(winning tap, gradient) of a window; (-1, 0) where there is none."""
    valid = (inside & (oh >= 0) & (oh < out_height) & (ow >= 0) & (ow < out_width))[:, None]
    at = ((image.to(tl.int64) * out_height + oh) * out_width + ow)[:, None] * C + c[None, :]
    tap = tl.load(taps + at, mask=valid, other=-1).to(tl.int32)
    return tap, tl.load(dy + at, mask=valid, other=0.0).to(tl.float32)


@triton.jit
def _store_gradient(
    g, x, saved, coefficients, dx, image, h, w, inside, height, width, c, C: tl.constexpr,
    NORMALIZED: tl.constexpr,
):  # fmt: skip
    """The gradient at one position of each square, as `gradient_pool` says."""
    valid = (inside & (h >= 0) & (h < height) & (w >= 0) & (w < width))[:, None]
    at = ((image.to(tl.int64) * height + h) * width + w)[:, None] * C + c[None, :]
    if NORMALIZED:
        tile = tl.load(x + at, mask=valid, other=0.0).to(tl.float32)
        scale = tl.load(saved + 2 * C + c)[None, :]
        shift = tl.load(saved + 3 * C + c)[None, :]
        g = tl.where(tile * scale + shift > 0, g, 0.0)
        ca = tl.load(coefficients + c)[None, :]
        cb = tl.load(coefficients + C + c)[None, :]
        cc = tl.load(coefficients + 2 * C + c)[None, :]
        g = ca * g + cb * tile + cc
    tl.store(dx + at, g.to(dx.dtype.element_ty), mask=valid)


@triton.jit
def gradient_pool(
    dy, taps, x, saved, coefficients, dx, total, height, width, out_height, out_width,
    C: tl.constexpr, PADDING: tl.constexpr, NORMALIZED: tl.constexpr, BM: tl.constexpr,
    BC: tl.constexpr,
) -> None:  # fmt: skip
    """dx = g, the gradient behind the pooling where no ReLU is closed.

    If NORMALIZED, a * g + b * x + c, as `batchnorm.gradient_relu`. A program takes BM of `total`
    squares of 2 x 2 positions that the same 2 x 2 windows cover: (i, j) and those after it. Windows
    begin every 2 positions, so the first position of a square is the middle of its first window.
    """
    down = (height + 2 - PADDING) // 2
    across = (width + 2 - PADDING) // 2
    square = tl.program_id(0) * BM + tl.arange(0, BM)
    inside = square < total
    j = square % across - (1 - PADDING)
    rest = square // across
    i = rest % down - (1 - PADDING)
    image = rest // down
    c = tl.program_id(1) * BC + tl.arange(0, BC)
    tap, grad = _window(dy, taps, image, i, j, inside, out_height, out_width, c, C)
    first = tl.where(tap == 4, grad, 0.0)
    right = tl.where(tap == 5, grad, 0.0)
    below = tl.where(tap == 7, grad, 0.0)
    last = tl.where(tap == 8, grad, 0.0)
    tap, grad = _window(dy, taps, image, i, j + 1, inside, out_height, out_width, c, C)
    right += tl.where(tap == 3, grad, 0.0)
    last += tl.where(tap == 6, grad, 0.0)
    tap, grad = _window(dy, taps, image, i + 1, j, inside, out_height, out_width, c, C)
    below += tl.where(tap == 1, grad, 0.0)
    last += tl.where(tap == 2, grad, 0.0)
    tap, grad = _window(dy, taps, image, i + 1, j + 1, inside, out_height, out_width, c, C)
    last += tl.where(tap == 0, grad, 0.0)
    h = i * 2 + 1 - PADDING
    w = j * 2 + 1 - PADDING
    for k in tl.static_range(4):
        g = first if k == 0 else right if k == 1 else below if k == 2 else last
        _store_gradient(
            g, x, saved, coefficients, dx, image, h + k // 2, w + k % 2, inside, height, width, c,
            C, NORMALIZED,
        )  # fmt: skip
