"""The optimizer update of all parameters in three launches, and the loss scale's.

Parameters need not lie side by side. `table` int64 [chunks, 6] gives for each chunk the addresses
of weight, gradient and velocity (FP32) and of the half-precision copy (0: none), the number of
elements, and the parameter it belongs to. `state` int32 [4] is: steps performed, steps skipped,
good steps since the loss scale changed, attempted. `scale` FP32 [3] is the loss scale, what the
gradients are multiplied by, and the latter times the loss scale. Nothing is read by the host.
"""

# Triton infers the types of a kernel's arguments: pointers and numbers.
# ruff: noqa: ANN001, ANN202

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _squares(w, g, inverse, count, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    weight = tl.load(w + i, mask=i < count, other=0.0)
    grad = tl.load(g + i, mask=i < count, other=0.0) * inverse
    return tl.sum(weight * weight, 0), tl.sum(grad * grad, 0)


@triton.jit
def norms(table, scale, partial, BLOCK: tl.constexpr) -> None:
    """partial[chunk, 0:2]: sums of squares of the weights and of the unscaled gradients."""
    chunk = tl.program_id(0)
    row = table + chunk * 6
    w = tl.multiple_of(tl.load(row).to(tl.pointer_type(tl.float32)), 16)
    g = tl.multiple_of(tl.load(row + 1).to(tl.pointer_type(tl.float32)), 16)
    count = tl.load(row + 4).to(tl.int32)
    inverse = tl.load(scale + 1)
    # The compiler makes wide loads only of what it sees to come in fours. A hint on `count` itself
    # would hold in both branches, and the last elements would be read past the end.
    if count % 4 == 0:
        weights, grads = _squares(w, g, inverse, count // 4 * 4, BLOCK)
    else:
        weights, grads = _squares(w, g, inverse, count, BLOCK)
    tl.store(partial + chunk * 2, weights)
    tl.store(partial + chunk * 2 + 1, grads)


@triton.jit
def rates(
    partial, first_chunk, group, settings, learning_rates, last_rate, state, rate, bad,
    LARS: tl.constexpr, BLOCK: tl.constexpr,
) -> None:  # fmt: skip
    """rate[s] of parameter s, and bad[s] = 1 where its gradient is not finite.

    `settings` FP32 [groups, 6]: weight decay, eta, epsilon, adapt, clip, momentum.
    """
    s = tl.program_id(0)
    begin = tl.load(first_chunk + s)
    end = tl.load(first_chunk + s + 1)
    i = tl.arange(0, BLOCK)
    weights = tl.zeros([BLOCK], tl.float64)
    grads = tl.zeros([BLOCK], tl.float64)
    for first in range(begin, end, BLOCK):
        chunk = first + i
        weights += tl.load(partial + chunk * 2, mask=chunk < end, other=0.0).to(tl.float64)
        grads += tl.load(partial + chunk * 2 + 1, mask=chunk < end, other=0.0).to(tl.float64)
    weight_norm = tl.sqrt(tl.sum(weights, 0)).to(tl.float32)
    total = tl.sum(grads, 0)
    grad_norm = tl.sqrt(total).to(tl.float32)
    # Infinity minus itself is not a number, and nothing that is not a number equals itself.
    tl.store(bad + s, tl.where(total - total == 0.0, 0, 1))
    step = tl.minimum(tl.load(state), last_rate)
    lr = tl.load(learning_rates + step)
    result = lr
    if LARS:
        setting = settings + tl.load(group + s) * 6
        decay = tl.load(setting)
        denominator = grad_norm + decay * weight_norm + tl.load(setting + 2)
        adapted = (weight_norm > 0) & (grad_norm > 0) & (tl.load(setting + 3) != 0)
        ratio = tl.load(setting + 1) * weight_norm / tl.where(adapted, denominator, 1.0)
        clipped = tl.where(tl.load(setting + 4) != 0, tl.minimum(ratio, lr), ratio * lr)
        result = tl.where(adapted, clipped, lr)
    tl.store(rate + s, result)


@triton.jit
def _move(
    w, g, v, half, has_half, inverse, decay, momentum, factor, count,
    LARS: tl.constexpr, NESTEROV: tl.constexpr, BLOCK: tl.constexpr,
) -> None:  # fmt: skip
    i = tl.arange(0, BLOCK)
    mask = i < count
    weight = tl.load(w + i, mask=mask, other=0.0)
    grad = tl.load(g + i, mask=mask, other=0.0) * inverse + decay * weight
    velocity = tl.load(v + i, mask=mask, other=0.0)
    if LARS:
        velocity = momentum * velocity + factor * grad
        weight -= velocity
    else:
        velocity = momentum * velocity + grad
        if NESTEROV:
            weight -= factor * (grad + momentum * velocity)
        else:
            weight -= factor * velocity
    tl.store(v + i, velocity, mask=mask)
    tl.store(w + i, weight, mask=mask)
    tl.store(half + i, weight.to(half.dtype.element_ty), mask=mask & has_half)


@triton.jit
def update(
    table, scale, rate, bad, group, settings, parameters,
    LARS: tl.constexpr, NESTEROV: tl.constexpr, SCALED: tl.constexpr, HALF: tl.constexpr,
    SEGMENTS: tl.constexpr, BLOCK: tl.constexpr,
) -> None:  # fmt: skip
    """Velocity, weight and half-precision copy of one chunk; nothing if any gradient is bad.

    Without SCALED (no loss scale) the step is performed whatever the gradients are.
    """
    chunk = tl.program_id(0)
    skip = 0
    if SCALED:
        j = tl.arange(0, SEGMENTS)
        skip = tl.max(tl.load(bad + j, mask=j < parameters, other=0), 0)
    if skip == 0:
        row = table + chunk * 6
        w = tl.multiple_of(tl.load(row).to(tl.pointer_type(tl.float32)), 16)
        g = tl.multiple_of(tl.load(row + 1).to(tl.pointer_type(tl.float32)), 16)
        v = tl.multiple_of(tl.load(row + 2).to(tl.pointer_type(tl.float32)), 16)
        address = tl.load(row + 3)
        half = tl.multiple_of(address.to(tl.pointer_type(HALF)), 16)
        has_half = address != 0
        count = tl.load(row + 4).to(tl.int32)
        s = tl.load(row + 5)
        setting = settings + tl.load(group + s) * 6
        decay = tl.load(setting)
        momentum = tl.load(setting + 5)
        factor = tl.load(rate + s)
        inverse = tl.load(scale + 1)
        if count % 4 == 0:
            _move(w, g, v, half, has_half, inverse, decay, momentum, factor,
                  count // 4 * 4, LARS, NESTEROV, BLOCK)  # fmt: skip
        else:
            _move(w, g, v, half, has_half, inverse, decay, momentum, factor,
                  count, LARS, NESTEROV, BLOCK)  # fmt: skip


@triton.jit
def advance(
    state, scale, bad, parameters, growth_interval, minimum, maximum,
    SCALED: tl.constexpr, SEGMENTS: tl.constexpr,
) -> None:  # fmt: skip
    """Count the step, performed or skipped, and adapt the loss scale as `LossScaler.update`."""
    if SCALED:
        j = tl.arange(0, SEGMENTS)
        skip = tl.max(tl.load(bad + j, mask=j < parameters, other=0), 0)
        value = tl.load(scale)
        good = tl.where(skip != 0, 0, tl.load(state + 2) + 1)
        grow = good == growth_interval
        value = tl.where(skip != 0, tl.maximum(value * 0.5, minimum), value)
        value = tl.where(grow, tl.minimum(value * 2.0, maximum), value)
        tl.store(state + 2, tl.where(grow, 0, good))
        tl.store(state + 1, tl.load(state + 1) + skip)
        tl.store(state, tl.load(state) + 1 - skip)
        tl.store(scale, value)
        tl.store(scale + 1, tl.load(scale + 2) / value)
    else:
        tl.store(state, tl.load(state) + 1)
