"""Batch normalization, ReLU and addition on channels-last activations.

An activation is a matrix x [M, C], M = n * h * w, row-major: NHWC memory. Statistics and all
arithmetic are FP32 (sums of partial sums FP64); activations keep their own type. No kernel uses
atomics: each program writes partial sums to a place of its own and `finalize_*` adds them in a
fixed order, so that a step gives the same bits each time.

With mean mu, r = 1 / sqrt(variance + epsilon), scale = gamma * r and shift = beta - mu * scale:

    y  = relu(x * scale + shift [+ shortcut])
    g  = dy where y > 0, else 0
    dbeta = sum g;  dgamma = r * sum g * (x - mu)
    dx = scale * (g - dbeta / M - (x - mu) * r * dgamma / M) = a * g + b * x + c

(Ioffe and Szegedy 2015, arXiv 1502.03167). `finalize_backward` stores a, b and c.

Whether y > 0 is recomputed from x where y has no shortcut. At the end of a residual block it is
kept as one bit an element: byte (i, c) of `bits` [ceil(M / 128) * 16, C] holds in bit j the row
(i // 16) * 128 + j * 16 + i % 16, so that a program packs eight tiles without moving data
between threads.
"""

# Triton infers the types of a kernel's arguments: pointers and numbers.
# ruff: noqa: ANN001, ANN202

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _place(channels, BC: tl.constexpr):
    """(index, number, channels) of a program's part: those of the same rows are neighbours."""
    columns = channels // BC
    program = tl.program_id(0)
    c = (program % columns) * BC + tl.arange(0, BC)
    return program // columns, tl.num_programs(0) // columns, c


@triton.jit
def statistics(
    x, partial, m_total, channels, BM: tl.constexpr, BC: tl.constexpr, STAGES: tl.constexpr
) -> None:
    """partial[p, 0:2, C]: sums of x and x * x over the tiles of program p."""
    first, parts, c = _place(channels, BC)
    tiles = tl.cdiv(m_total, BM)
    r = tl.arange(0, BM)
    offsets = r[:, None] * channels + c[None, :]
    sums = tl.zeros([BM, BC], tl.float32)
    squares = tl.zeros([BM, BC], tl.float32)
    for index in tl.range(first, tiles, parts, num_stages=STAGES):
        m = index * BM
        at = m.to(tl.int64) * channels + offsets
        tile = tl.load(x + at, mask=(m + r < m_total)[:, None], other=0.0).to(tl.float32)
        sums += tile
        squares += tile * tile
    out = partial + first * 2 * channels + c
    tl.store(out, tl.sum(sums, 0))
    tl.store(out + channels, tl.sum(squares, 0))


@triton.jit
def _column(partial, parts, stride, c, BP: tl.constexpr, BC: tl.constexpr):
    """Sums over rows 0 to parts of partial[part * stride + c], in FP64."""
    total = tl.zeros([BP, BC], tl.float64)
    rows = tl.arange(0, BP)
    for first in range(0, parts, BP):
        row = first + rows
        tile = tl.load(
            partial + row[:, None] * stride + c[None, :], mask=(row < parts)[:, None], other=0.0
        )
        total += tile.to(tl.float64)
    return tl.sum(total, 0)


@triton.jit
def add_parts(partial, parts, stride, totals, BP: tl.constexpr, BC: tl.constexpr) -> None:
    """totals[0:stride], FP64: sums over the rows of partial [parts, stride]."""
    c = tl.program_id(0) * BC + tl.arange(0, BC)
    tl.store(totals + c, _column(partial, parts, stride, c, BP, BC))


@triton.jit
def finalize_forward(
    partial, parts, m_total, channels, gamma, beta, running_mean, running_var, saved,
    epsilon, momentum, BP: tl.constexpr, BC: tl.constexpr,
) -> None:  # fmt: skip
    """saved[0:4, C] = mean, r, scale, shift; running statistics move by `momentum`."""
    c = tl.program_id(0) * BC + tl.arange(0, BC)
    count = m_total.to(tl.float64)
    mean = _column(partial, parts, 2 * channels, c, BP, BC) / count
    square = _column(partial + channels, parts, 2 * channels, c, BP, BC) / count
    variance = tl.maximum(square - mean * mean, 0.0)
    mean32 = mean.to(tl.float32)
    inverse = 1.0 / tl.sqrt(variance.to(tl.float32) + epsilon)
    scale = tl.load(gamma + c) * inverse
    tl.store(saved + c, mean32)
    tl.store(saved + channels + c, inverse)
    tl.store(saved + 2 * channels + c, scale)
    tl.store(saved + 3 * channels + c, tl.load(beta + c) - mean32 * scale)
    # torch keeps the unbiased variance in its running statistics.
    unbiased = (variance * count / (count - 1.0)).to(tl.float32)
    old_mean = tl.load(running_mean + c)
    old_var = tl.load(running_var + c)
    tl.store(running_mean + c, old_mean + momentum * (mean32 - old_mean))
    tl.store(running_var + c, old_var + momentum * (unbiased - old_var))


@triton.jit
def finalize_backward(
    partial, parts, stride, product_offset, totals, m_total, channels, saved, grad_gamma,
    grad_beta, coefficients, SHARED: tl.constexpr, ACCUMULATE: tl.constexpr, BP: tl.constexpr,
    BC: tl.constexpr,
) -> None:  # fmt: skip
    """Gradients of gamma and beta, and a, b, c as coefficients[0:3, C].

    Row p of `partial` (`stride` apart) has sum g at 0 and sum g * (x - mean) at
    `product_offset`. With SHARED, `totals` has these sums over all ranks that share statistics,
    `m_total` their rows: a, b, c are by those, the gradients by this rank's own.
    """
    c = tl.program_id(0) * BC + tl.arange(0, BC)
    total = _column(partial, parts, stride, c, BP, BC)
    product = _column(partial + product_offset, parts, stride, c, BP, BC)
    mean = tl.load(saved + c)
    inverse = tl.load(saved + channels + c)
    scale = tl.load(saved + 2 * channels + c)
    dbeta = total.to(tl.float32)
    dgamma = product.to(tl.float32) * inverse
    count = m_total.to(tl.float32)
    of_all, product_of_all = dbeta, dgamma
    if SHARED:
        of_all = tl.load(totals + c).to(tl.float32)
        product_of_all = tl.load(totals + product_offset + c).to(tl.float32) * inverse
    b = -scale * inverse * (product_of_all / count)
    tl.store(coefficients + c, scale)
    tl.store(coefficients + channels + c, b)
    tl.store(coefficients + 2 * channels + c, -scale * (of_all / count) - b * mean)
    if ACCUMULATE:
        dbeta += tl.load(grad_beta + c)
        dgamma += tl.load(grad_gamma + c)
    tl.store(grad_beta + c, dbeta)
    tl.store(grad_gamma + c, dgamma)


@triton.jit
def apply_relu(
    x, saved, y, m_total, channels, RELU: tl.constexpr, BM: tl.constexpr, BC: tl.constexpr
) -> None:
    """y = relu(x * scale + shift); without RELU, x * scale + shift."""
    index, _, c = _place(channels, BC)
    m = index * BM
    r = tl.arange(0, BM)
    base = m.to(tl.int64) * channels
    offsets = r[:, None] * channels + c[None, :]
    mask = (m + r < m_total)[:, None]
    scale = tl.load(saved + 2 * channels + c)[None, :]
    shift = tl.load(saved + 3 * channels + c)[None, :]
    out = tl.load(x + base + offsets, mask=mask, other=0.0).to(tl.float32) * scale + shift
    if RELU:
        out = tl.maximum(out, 0.0)
    tl.store(y + base + offsets, out.to(y.dtype.element_ty), mask=mask)


@triton.jit
def apply_block_end(
    x, saved, shortcut, shortcut_saved, y, bits, m_total, channels,
    PROJECTED: tl.constexpr, BC: tl.constexpr, STAGES: tl.constexpr,
) -> None:  # fmt: skip
    """y = relu(x * scale + shift + s), s the shortcut, normalised with its own if PROJECTED.

    A tile is 128 rows and their bits.
    """
    first, parts, c = _place(channels, BC)
    r = tl.arange(0, 16)
    scale = tl.load(saved + 2 * channels + c)[None, :]
    shift = tl.load(saved + 3 * channels + c)[None, :]
    if PROJECTED:
        shift += tl.load(shortcut_saved + 3 * channels + c)[None, :]
        shortcut_scale = tl.load(shortcut_saved + 2 * channels + c)[None, :]
    offsets = r[:, None] * channels + c[None, :]
    for block in tl.range(first, tl.cdiv(m_total, 128), parts, num_stages=STAGES):
        row = tl.full([], 0, tl.int64) + block * 16
        packed = tl.zeros([16, BC], tl.int32)
        for j in tl.static_range(8):
            mask = (block * 128 + j * 16 + r < m_total)[:, None]
            at = (row * 8 + j * 16) * channels + offsets
            tile = tl.load(x + at, mask=mask, other=0.0).to(tl.float32)
            other = tl.load(shortcut + at, mask=mask, other=0.0).to(tl.float32)
            if PROJECTED:
                other = other * shortcut_scale
            out = tl.maximum(tile * scale + shift + other, 0.0).to(y.dtype.element_ty)
            tl.store(y + at, out, mask=mask)
            packed = packed | tl.where(out > 0, 1 << j, 0)
        tl.store(bits + row * channels + offsets, packed.to(tl.uint8))


@triton.jit
def reduce_relu(
    dy, x, saved, partial, m_total, channels, MASKED: tl.constexpr, BM: tl.constexpr,
    BC: tl.constexpr, STAGES: tl.constexpr,
) -> None:  # fmt: skip
    """partial[p, 0:2, C]: sums of g and g * (x - mean); g is dy, or dy where y > 0 if MASKED."""
    first, parts, c = _place(channels, BC)
    tiles = tl.cdiv(m_total, BM)
    r = tl.arange(0, BM)
    offsets = r[:, None] * channels + c[None, :]
    mean = tl.load(saved + c)[None, :]
    scale = tl.load(saved + 2 * channels + c)[None, :]
    shift = tl.load(saved + 3 * channels + c)[None, :]
    sums = tl.zeros([BM, BC], tl.float32)
    products = tl.zeros([BM, BC], tl.float32)
    for index in tl.range(first, tiles, parts, num_stages=STAGES):
        m = index * BM
        mask = (m + r < m_total)[:, None]
        at = m.to(tl.int64) * channels + offsets
        tile = tl.load(x + at, mask=mask, other=0.0).to(tl.float32)
        g = tl.load(dy + at, mask=mask, other=0.0).to(tl.float32)
        if MASKED:
            g = tl.where(tile * scale + shift > 0, g, 0.0)
        sums += g
        products += g * (tile - mean)
    out = partial + first * 2 * channels + c
    tl.store(out, tl.sum(sums, 0))
    tl.store(out + channels, tl.sum(products, 0))


@triton.jit
def reduce_block_end(
    dy, dy2, bits, x, saved, x2, saved2, g_out, partial, m_total, channels,
    TWO_GRADIENTS: tl.constexpr, PROJECTED: tl.constexpr, BC: tl.constexpr, STAGES: tl.constexpr,
) -> None:  # fmt: skip
    """g = (dy [+ dy2]) where the bit is set, stored; its sums, and with x - mean, x2 - mean2.

    partial is [p, 3, C] if PROJECTED, else [p, 2, C]; a tile is 128 rows.
    """
    first, parts, c = _place(channels, BC)
    tiles = tl.cdiv(m_total, 128)
    r = tl.arange(0, 16)
    offsets = r[:, None] * channels + c[None, :]
    mean = tl.load(saved + c)[None, :]
    sums = tl.zeros([16, BC], tl.float32)
    products = tl.zeros([16, BC], tl.float32)
    if PROJECTED:
        mean2 = tl.load(saved2 + c)[None, :]
        products2 = tl.zeros([16, BC], tl.float32)
    for block in tl.range(first, tiles, parts, num_stages=STAGES):
        at_bits = (tl.full([], 0, tl.int64) + block) * 16 * channels + offsets
        at = (tl.full([], 0, tl.int64) + block) * 128 * channels + offsets
        packed = tl.load(bits + at_bits).to(tl.int32)
        for j in tl.static_range(8):
            mask = (block * 128 + j * 16 + r < m_total)[:, None]
            g = tl.load(dy + at, mask=mask, other=0.0).to(tl.float32)
            if TWO_GRADIENTS:
                g += tl.load(dy2 + at, mask=mask, other=0.0).to(tl.float32)
            tile = tl.load(x + at, mask=mask, other=0.0).to(tl.float32)
            g = tl.where((packed & (1 << j)) != 0, g, 0.0)
            rounded = g.to(g_out.dtype.element_ty)
            tl.store(g_out + at, rounded, mask=mask)
            g = rounded.to(tl.float32)
            sums += g
            products += g * (tile - mean)
            if PROJECTED:
                tile2 = tl.load(x2 + at, mask=mask, other=0.0).to(tl.float32)
                products2 += g * (tile2 - mean2)
            at += 16 * channels
    if PROJECTED:
        out = partial + first * 3 * channels + c
        tl.store(out + 2 * channels, tl.sum(products2, 0))
    else:
        out = partial + first * 2 * channels + c
    tl.store(out, tl.sum(sums, 0))
    tl.store(out + channels, tl.sum(products, 0))


@triton.jit
def gradient_relu(
    dy, x, saved, coefficients, dx, m_total, channels, MASKED: tl.constexpr,
    POSITIVE: tl.constexpr, BM: tl.constexpr, BC: tl.constexpr,
) -> None:  # fmt: skip
    """dx = a * g + b * x + c; g is `dy` itself, or dy where y > 0 if MASKED.

    If POSITIVE, x came out of a ReLU, and dx is the gradient before it.
    """
    index, _, c = _place(channels, BC)
    m = index * BM
    r = tl.arange(0, BM)
    base = m.to(tl.int64) * channels
    offsets = r[:, None] * channels + c[None, :]
    mask = (m + r < m_total)[:, None]
    ca = tl.load(coefficients + c)[None, :]
    cb = tl.load(coefficients + channels + c)[None, :]
    cc = tl.load(coefficients + 2 * channels + c)[None, :]
    tile = tl.load(x + base + offsets, mask=mask, other=0.0).to(tl.float32)
    g = tl.load(dy + base + offsets, mask=mask, other=0.0).to(tl.float32)
    if MASKED:
        scale = tl.load(saved + 2 * channels + c)[None, :]
        shift = tl.load(saved + 3 * channels + c)[None, :]
        g = tl.where(tile * scale + shift > 0, g, 0.0)
    g = ca * g + cb * tile + cc
    if POSITIVE:
        g = tl.where(tile > 0, g, 0.0)
    tl.store(dx + base + offsets, g.to(dx.dtype.element_ty), mask=mask)


@triton.jit
def gradient_two(
    g, x, coefficients, dx, x2, coefficients2, dx2, m_total, channels,
    BM: tl.constexpr, BC: tl.constexpr,
) -> None:  # fmt: skip
    """dx = a * g + b * x + c, dx2 = a2 * g + b2 * x2 + c2: both branches of a projected block."""
    index, _, c = _place(channels, BC)
    m = index * BM
    r = tl.arange(0, BM)
    base = m.to(tl.int64) * channels
    offsets = r[:, None] * channels + c[None, :]
    mask = (m + r < m_total)[:, None]
    grad = tl.load(g + base + offsets, mask=mask, other=0.0).to(tl.float32)
    tile = tl.load(x + base + offsets, mask=mask, other=0.0).to(tl.float32)
    tile2 = tl.load(x2 + base + offsets, mask=mask, other=0.0).to(tl.float32)
    a = tl.load(coefficients + c)[None, :]
    b = tl.load(coefficients + channels + c)[None, :]
    k = tl.load(coefficients + 2 * channels + c)[None, :]
    tl.store(dx + base + offsets, (a * grad + b * tile + k).to(dx.dtype.element_ty), mask=mask)
    a = tl.load(coefficients2 + c)[None, :]
    b = tl.load(coefficients2 + channels + c)[None, :]
    k = tl.load(coefficients2 + 2 * channels + c)[None, :]
    tl.store(dx2 + base + offsets, (a * grad + b * tile2 + k).to(dx2.dtype.element_ty), mask=mask)
