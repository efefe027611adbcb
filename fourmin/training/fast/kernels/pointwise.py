"""1x1 convolutions as matrix products, with what stands beside them fused in.

At the large image sizes of a ResNet a 1x1 convolution is bound by memory, and so is the work of
the batch normalization around it: fused, each large activation is read or written once less. All
kernels are persistent: program (part p, column tile) takes row tiles p, p + parts, ... in order
and keeps the sums of its columns, so partial sums are few and always the same.

The arithmetic and the layout of `bits` are those of `fourmin.training.fast.kernels.batchnorm`.
"""

# Triton infers the types of a kernel's arguments: pointers and numbers.
# ruff: noqa: ANN001

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def forward_statistics(
    x, w, y, partial, m_total, n_total, k_total, parts,
    ONE_STEP: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    BK: tl.constexpr, STAGES: tl.constexpr, PRECISION: tl.constexpr,
) -> None:  # fmt: skip
    """y [M, N] = x [M, K] times w [N, K] transposed, and sums of y and y * y: partial[p, 0:2, N].

    ONE_STEP: K is BK, and the weight stays where it is.
    """
    tiles_n = n_total // BN
    tile_n = tl.program_id(0) % tiles_n
    p = tl.program_id(0) // tiles_n
    n = tile_n * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    sums = tl.zeros([BN], tl.float32)
    squares = tl.zeros([BN], tl.float32)
    r = tl.arange(0, BM)
    of_x = r[:, None] * k_total + k[None, :]
    of_w = n[None, :] * k_total + k[:, None]
    of_y = r[:, None] * n_total + n[None, :]
    if ONE_STEP:
        weight = tl.load(w + of_w)
    for tile in tl.range(p, tl.cdiv(m_total, BM), parts, num_stages=STAGES if ONE_STEP else 1):
        row = tl.full([], 0, tl.int64) + tile * BM
        inside = (tile * BM + r < m_total)[:, None]
        from_x = x + row * k_total
        if ONE_STEP:
            a = tl.load(from_x + of_x, mask=inside, other=0.0)
            acc = tl.dot(a, weight, input_precision=PRECISION)
        else:
            acc = tl.zeros([BM, BN], tl.float32)
            for first in tl.range(0, k_total, BK, num_stages=STAGES):
                a = tl.load(from_x + first + of_x, mask=inside, other=0.0)
                b = tl.load(w + first + of_w)
                acc = tl.dot(a, b, acc, input_precision=PRECISION)
        rounded = acc.to(y.dtype.element_ty)
        tl.store(y + row * n_total + of_y, rounded, mask=inside)
        # Rows outside are 0: they were loaded as 0.
        value = rounded.to(tl.float32)
        sums += tl.sum(value, 0)
        squares += tl.sum(value * value, 0)
    out = partial + p * 2 * n_total + n
    tl.store(out, sums)
    tl.store(out + n_total, squares)


@triton.jit
def gradient_to_block_end(
    dx, w, dy2, bits, x, saved, x2, saved2, g_out, partial, m_total, n_total, parts,
    PROJECTED: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, K: tl.constexpr,
    STAGES: tl.constexpr, PRECISION: tl.constexpr,
) -> None:  # fmt: skip
    """The data gradient of a block's first convolution and `reduce_block_end` of the block before.

    dx [M, K] is the gradient of the convolution's output, w [K, N] its weight (outputs, inputs),
    dy2 [M, N] the gradient that came through the shortcut. Writes g and the sums.
    """
    tiles_n = n_total // BN
    tile_n = tl.program_id(0) % tiles_n
    p = tl.program_id(0) // tiles_n
    n = tile_n * BN + tl.arange(0, BN)
    k = tl.arange(0, K)
    mean = tl.load(saved + n)[None, :]
    # Sums stay with their rows until the end: threads that add to one would wait in every tile.
    sums = tl.zeros([BM, BN], tl.float32)
    products = tl.zeros([BM, BN], tl.float32)
    if PROJECTED:
        mean2 = tl.load(saved2 + n)[None, :]
        products2 = tl.zeros([BM, BN], tl.float32)
    r = tl.arange(0, BM)
    of_dx = r[:, None] * K + k[None, :]
    of_y = r[:, None] * n_total + n[None, :]
    weight = tl.load(w + k[:, None] * n_total + n[None, :])
    for tile in tl.range(p, tl.cdiv(m_total, BM), parts, num_stages=STAGES):
        row = tl.full([], 0, tl.int64) + tile * BM
        rows = tile * BM + r
        inside = (rows < m_total)[:, None]
        packed_row = (rows // 128) * 16 + rows % 16
        packed = tl.load(bits + packed_row[:, None] * n_total + n[None, :], mask=inside, other=0)
        at = row * n_total + of_y
        other = tl.load(dy2 + at, mask=inside, other=0.0)
        value = tl.load(x + at, mask=inside, other=0.0)
        if PROJECTED:
            value2 = tl.load(x2 + at, mask=inside, other=0.0)
        a = tl.load(dx + row * K + of_dx, mask=inside, other=0.0)
        acc = tl.dot(a, weight, input_precision=PRECISION)
        acc += other.to(tl.float32)
        alive = (packed.to(tl.int32) >> ((rows // 16) % 8)[:, None]) & 1
        rounded = tl.where(alive != 0, acc, 0.0).to(g_out.dtype.element_ty)
        tl.store(g_out + at, rounded, mask=inside)
        g = rounded.to(tl.float32)
        sums += g
        products += g * (value.to(tl.float32) - mean)
        if PROJECTED:
            products2 += g * (value2.to(tl.float32) - mean2)
    if PROJECTED:
        at_sum = partial + p * 3 * n_total + n
        tl.store(at_sum + 2 * n_total, tl.sum(products2, 0))
    else:
        at_sum = partial + p * 2 * n_total + n
    tl.store(at_sum, tl.sum(sums, 0))
    tl.store(at_sum + n_total, tl.sum(products, 0))


@triton.jit
def backward_through_block_end(
    g, x, coefficients, w, before, saved, dy, partial, weight_partial, m_total, parts,
    N: tl.constexpr, K: tl.constexpr, BM: tl.constexpr, STAGES: tl.constexpr,
    PRECISION: tl.constexpr,
) -> None:  # fmt: skip
    """The last convolution of a bottleneck, backward, between two batch normalizations.

    dx [M, K] = a * g + b * x + c is the gradient of its output, which never leaves the processor.
    dy [M, N] = dx times w [K, N], set to 0 where the ReLU before the convolution was closed
    (`before` [M, N] is that ReLU's batch normalization's input, `saved` its statistics); the sums
    of dy and dy * (before - mean) are partial[p, 0:2, N]. The weight's gradient is dx transposed
    times the convolution's input, made again from `before`: weight_partial [p, K, N], FP32. Its
    sums stay in registers, so this is for narrow blocks: 256 x 64 at most.
    """
    p = tl.program_id(0)
    n = tl.arange(0, N)
    k = tl.arange(0, K)
    r = tl.arange(0, BM)
    mean = tl.load(saved + n)[None, :]
    scale = tl.load(saved + 2 * N + n)[None, :]
    shift = tl.load(saved + 3 * N + n)[None, :]
    ca = tl.load(coefficients + k)[None, :]
    cb = tl.load(coefficients + K + k)[None, :]
    cc = tl.load(coefficients + 2 * K + k)[None, :]
    weight = tl.load(w + k[:, None] * N + n[None, :])
    sums = tl.zeros([BM, N], tl.float32)
    products = tl.zeros([BM, N], tl.float32)
    of_weight = tl.zeros([K, N], tl.float32)
    of_x = r[:, None] * K + k[None, :]
    of_y = r[:, None] * N + n[None, :]
    for tile in tl.range(p, tl.cdiv(m_total, BM), parts, num_stages=STAGES):
        row = tl.full([], 0, tl.int64) + tile * BM
        inside = (tile * BM + r < m_total)[:, None]
        grad = tl.load(g + row * K + of_x, mask=inside, other=0.0)
        value = tl.load(x + row * K + of_x, mask=inside, other=0.0)
        narrow = tl.load(before + row * N + of_y, mask=inside, other=0.0).to(tl.float32)
        a = ca * grad.to(tl.float32) + cb * value.to(tl.float32) + cc
        a = tl.where(inside, a, 0.0).to(w.dtype.element_ty)
        opened = tl.maximum(narrow * scale + shift, 0.0)
        acc = tl.dot(a, weight, input_precision=PRECISION)
        of_weight = tl.dot(
            tl.trans(a), opened.to(w.dtype.element_ty), of_weight, input_precision=PRECISION
        )
        rounded = tl.where((opened > 0) & inside, acc, 0.0).to(dy.dtype.element_ty)
        tl.store(dy + row * N + of_y, rounded, mask=inside)
        masked = rounded.to(tl.float32)
        sums += masked
        products += masked * (narrow - mean)
    at_sum = partial + p * 2 * N + n
    tl.store(at_sum, tl.sum(sums, 0))
    tl.store(at_sum + N, tl.sum(products, 0))
    at_weight = weight_partial + p * K * N
    tl.store(at_weight + k[:, None] * N + n[None, :], of_weight)
