"""The first convolution of a residual network, with the statistics of its output.

Its input x [n, rows, columns, INPUTS] is folded (`kernels.folding`), so it is a convolution of
stride 1 without padding whose kernel [SPAN, SPAN] reads SPAN times SPAN * INPUTS elements that lie
side by side: a matrix product of K = SPAN * SPAN * INPUTS. Tensor cores take powers of two, at
least WIDTH, and the rest is 0. Programs are persistent, as those of `kernels.pointwise`.
"""

# Triton infers the types of a kernel's arguments: pointers and numbers.
# ruff: noqa: ANN001

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def forward_statistics(
    x, w, y, partial, total, height, width, rows, columns, parts,
    INPUTS: tl.constexpr, SPAN: tl.constexpr, WIDTH: tl.constexpr, C: tl.constexpr,
    BM: tl.constexpr, STAGES: tl.constexpr, PRECISION: tl.constexpr,
) -> None:  # fmt: skip
    """y [n, height, width, C] with w [C, K]; partial[p, 0:2, C]: sums of y and y * y."""
    p = tl.program_id(0)
    c = tl.arange(0, C)
    j = tl.arange(0, WIDTH)
    side: tl.constexpr = SPAN * INPUTS
    wanted = j < SPAN * side
    patch = (j // side * columns * INPUTS + j % side)[None, :]
    of_weight = c[None, :] * (SPAN * side) + j[:, None]
    weight = tl.load(w + of_weight, mask=wanted[:, None], other=0.0)
    sums = tl.zeros([BM, C], tl.float32)
    squares = tl.zeros([BM, C], tl.float32)
    for tile in tl.range(p, tl.cdiv(total, BM), parts, num_stages=STAGES):
        position = tile * BM + tl.arange(0, BM)
        inside = position < total
        rest = position // width
        row = (rest // height).to(tl.int64) * rows + rest % height
        start = (row * columns + position % width) * INPUTS
        a = tl.load(x + start[:, None] + patch, mask=inside[:, None] & wanted[None, :], other=0.0)
        rounded = tl.dot(a, weight, input_precision=PRECISION).to(y.dtype.element_ty)
        at = position.to(tl.int64)[:, None] * C + c[None, :]
        tl.store(y + at, rounded, mask=inside[:, None])
        # Rows outside are 0: they were loaded as 0.
        value = rounded.to(tl.float32)
        sums += value
        squares += value * value
    out = partial + p * 2 * C + c
    tl.store(out, tl.sum(sums, 0))
    tl.store(out + C, tl.sum(squares, 0))
