"""Initial weights that are the same to the bit on every machine, and their digest.

torch.Tensor.normal_ and numpy's log and cos differ in the last bits between processors and
versions, and then the initial-weights digest of a run could not be recomputed elsewhere. So only
operations with one possible result are used: numpy's Philox bit generator, whose stream is
guaranteed (NEP 19), and + - * / sqrt in float64, which IEEE 754 rounds correctly, each as a numpy
operation of its own so that no compiler fuses a multiplication with an addition.

Sources: J. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011 (Philox);
M. Wichura, "Algorithm AS 241: the percentage points of the normal distribution", Applied
Statistics 37 (1988), routine PPND16 (relative error about 1e-16).
"""

from __future__ import annotations

import hashlib
import math
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from fourmin.base.errors import FourminError, unknown
from fourmin.training.models.resnet import ResidualBlock

Doubles = npt.NDArray[np.float64]

SCHEMES = ("he", "truncated-normal")
"""The initialization schemes by name."""

CHUNK = 1 << 16
"""Elements made at a time: the float64 temporaries stay in the processor's cache."""

# ln 2 in two parts; the last 21 bits of the first are 0, so that its product with an exponent is
# exact.
_LN2_HIGH = 6.93147180369123816490e-01
_LN2_LOW = 1.90821492927058770002e-10
_SQRT_HALF = 0.7071067811865476
_PHI_MINUS_2 = 0.022750131948179207  # standard normal distribution function at -2
_TRUNCATED_STD = 0.87962566103423978  # standard deviation of a standard normal cut at -2 and 2

# AS 241, PPND16: numerator and denominator of each range, constant term first.
_CENTRE = (
    (3.3871328727963666080e0, 1.3314166789178437745e2, 1.9715909503065514427e3,
     1.3731693765509461125e4, 4.5921953931549871457e4, 6.7265770927008700853e4,
     3.3430575583588128105e4, 2.5090809287301226727e3),
    (1.0, 4.2313330701600911252e1, 6.8718700749205790830e2, 5.3941960214247511077e3,
     2.1213794301586595867e4, 3.9307895800092710610e4, 2.8729085735721942674e4,
     5.2264952788528545610e3),
)  # fmt: skip
_TAIL = (
    (1.42343711074968357734e0, 4.63033784615654529590e0, 5.76949722146069140550e0,
     3.64784832476320460504e0, 1.27045825245236838258e0, 2.41780725177450611770e-1,
     2.27238449892691845833e-2, 7.74545014278341407640e-4),
    (1.0, 2.05319162663775882187e0, 1.67638483018380384940e0, 6.89767334985100004550e-1,
     1.48103976427480074590e-1, 1.51986665636164571966e-2, 5.47593808499534494600e-4,
     1.05075007164441684324e-9),
)  # fmt: skip
_FAR_TAIL = (
    (6.65790464350110377720e0, 5.46378491116411436990e0, 1.78482653991729133580e0,
     2.96560571828504891230e-1, 2.65321895265761230930e-2, 1.24266094738807843860e-3,
     2.71155556874348757815e-5, 2.01033439929228813265e-7),
    (1.0, 5.99832206555887937690e-1, 1.36929880922735805310e-1, 1.48753612908506148525e-2,
     7.86869131145613259100e-4, 1.84631831751005468180e-5, 1.42151175831644588870e-7,
     2.04426310338993978564e-15),
)  # fmt: skip


def natural_log(x: Doubles) -> Doubles:
    """Natural logarithm of positive normal float64 numbers, within about 2 units in the last place.

    x = m * 2^e with m in [sqrt(1/2), sqrt(2)); ln x = e ln 2 + 2 atanh(s), s = (m - 1) / (m + 1),
    by the series s + s^3/3 + s^5/5 + ...; |s| < 0.1716, so twelve terms leave 1e-19.
    """
    mantissa, exponent = np.frexp(x)
    low = mantissa < _SQRT_HALF
    mantissa = np.where(low, mantissa * 2.0, mantissa)
    exponent = (exponent - low).astype(np.float64)
    s = (mantissa - 1.0) / (mantissa + 1.0)
    square = s * s
    series = np.full_like(s, 1.0 / 23.0)
    for odd in range(21, 0, -2):
        series *= square
        series += 1.0 / odd
    result: Doubles = exponent * _LN2_HIGH + (2.0 * s * series + exponent * _LN2_LOW)
    return result


def normal_quantile(p: Doubles) -> Doubles:
    """The standard normal quantile of probabilities in (0, 1), by AS 241 (PPND16)."""
    q = p - 0.5
    central = np.abs(q) <= 0.425
    result: Doubles = q * _rational(_CENTRE, 0.180625 - q * q)
    (tail,) = np.nonzero(~central)
    tail_p = p[tail]
    r = np.sqrt(-natural_log(np.minimum(tail_p, 1.0 - tail_p)))
    size = np.where(r <= 5.0, _rational(_TAIL, r - 1.6), _rational(_FAR_TAIL, r - 5.0))
    result[tail] = np.where(tail_p < 0.5, -size, size)
    return result


def _rational(coefficients: tuple[tuple[float, ...], tuple[float, ...]], x: Doubles) -> Doubles:
    numerator, denominator = (np.full_like(x, part[-1]) for part in coefficients)
    for above, below in zip(coefficients[0][-2::-1], coefficients[1][-2::-1], strict=True):
        numerator *= x
        numerator += above
        denominator *= x
        denominator += below
    numerator /= denominator
    return numerator


def normals(seed: int, name: str, count: int, *, truncated: bool = False) -> npt.NDArray[Any]:
    """`count` standard normal numbers (float64) that depend on seed, name and position only.

    Philox's key is (seed, first 8 bytes of SHA-256(name) as a big-endian integer); element i takes
    the i-th 64-bit output. Its top 52 bits k make the probability (2 k + 1) / 2^53: the middle of
    one of 2^52 equal cells, exact in float64, never 0 or 1, and symmetric. `truncated`: the
    probability is rescaled to (Phi(-2), Phi(2)), which cuts the distribution at -2 and 2.
    """
    name_key = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big")
    generator = np.random.Philox(
        key=np.array([seed, name_key], dtype=np.uint64), counter=np.zeros(4, dtype=np.uint64)
    )
    result = np.empty(count, dtype=np.float64)
    for start in range(0, count, CHUNK):
        cells = generator.random_raw(min(CHUNK, count - start)) >> np.uint64(12)
        p = (2.0 * cells.astype(np.float64) + 1.0) * 2.0**-53
        if truncated:
            p = p * (1.0 - 2.0 * _PHI_MINUS_2) + _PHI_MINUS_2
        result[start : start + len(p)] = normal_quantile(p)
    return result


def _fill(parameter: Tensor, seed: int, name: str, std: float, *, truncated: bool) -> None:
    values = normals(seed, name, parameter.numel(), truncated=truncated)
    values *= std
    parameter.copy_(torch.from_numpy(values.astype(np.float32)).view(parameter.shape))


def _convolution_std(layer: nn.Conv2d, scheme: str) -> float:
    # A weight is [outputs, inputs / groups, height, width].
    outputs, fan_in = layer.weight.shape[0], layer.weight[0].numel()
    if scheme == "he":
        fan_out = outputs // layer.groups * layer.weight[0, 0].numel()
        return math.sqrt(2.0 / fan_out)
    return math.sqrt(1.0 / fan_in) / _TRUNCATED_STD


@torch.no_grad()
def initialize(model: nn.Module, seed: int, scheme: str, zero_last_gamma: bool) -> None:
    """Set every parameter and every batch normalization statistic of `model`, in place.

    `he` (He et al. 2015, arXiv 1502.01852): convolutions normal with standard deviation
    sqrt(2 / fan_out), fan_out = outputs / groups * kernel height * kernel width.
    `truncated-normal` (MLPerf's TensorFlow reference: variance scaling, scale 1, fan_in):
    convolutions normal cut at two standard deviations, with standard deviation
    sqrt(1 / fan_in) after the cut. In both, as in Goyal et al. 2017 and MLPerf's reference,
    linear layers are normal with standard deviation 0.01. Biases and beta 0, gamma 1, but with
    `zero_last_gamma` 0 in the last batch normalization of each residual block (Goyal et al. 2017,
    section 5.1); running mean 0, running variance 1, batches tracked 0.

    `seed` is an unsigned 64-bit integer. The values depend on seed and parameter name only, not
    on the machine, the device, the memory format or the order of the layers.
    Raises FourminError for an unknown scheme or a seed out of range, TypeError for a module with
    parameters of a kind that no scheme covers.
    """
    if scheme not in SCHEMES:
        raise unknown(f"unknown initialization {scheme!r}", scheme, SCHEMES)
    if not 0 <= seed < 1 << 64:
        raise FourminError(f"seed {seed} is out of range", "a seed is an unsigned 64-bit integer")
    zeroed = {
        block.last_batch_norm
        for block in model.modules()
        if zero_last_gamma and isinstance(block, ResidualBlock)
    }
    for prefix, module in model.named_modules():
        if isinstance(module, _BatchNorm):
            module.reset_running_stats()
            if module.affine:
                module.weight.fill_(0.0 if module in zeroed else 1.0)
                module.bias.zero_()
        elif isinstance(module, (nn.Conv2d, nn.Linear)):
            name = f"{prefix}.weight" if prefix else "weight"
            if isinstance(module, nn.Conv2d):
                std = _convolution_std(module, scheme)
                _fill(module.weight, seed, name, std, truncated=scheme == "truncated-normal")
            else:
                _fill(module.weight, seed, name, 0.01, truncated=False)
            if module.bias is not None:
                module.bias.zero_()
        elif next(module.parameters(recurse=False), None) is not None:
            raise TypeError(f"no initialization is defined for {type(module).__name__} {prefix!r}")


def weights_digest(model: nn.Module) -> str:
    """Hex SHA-256 of all parameters and buffers of `model`, in state_dict order.

    For each entry: its name in UTF-8, a zero byte, its dimensions in decimal joined by commas, a
    zero byte, and its elements in row-major (NCHW) order, little-endian: float32 for floating
    types, int64 for integers (`num_batches_tracked` is one of the entries). Device, memory format
    and a cast to a narrower type and back do not enter; pass the bare model, since a wrapper such
    as torch.compile's changes the names.
    """
    digest = hashlib.sha256()
    for name, tensor in model.state_dict().items():
        shape = ",".join(map(str, tensor.shape))
        digest.update(f"{name}\0{shape}\0".encode())
        kind, layout = (
            (torch.float32, "<f4") if tensor.is_floating_point() else (torch.int64, "<i8")
        )
        values = tensor.detach().to("cpu", kind).contiguous().numpy()
        digest.update(np.ascontiguousarray(values, dtype=layout).tobytes())
    return digest.hexdigest()
