"""Every fused batch normalization block against float64: forward, backward, running statistics."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

TYPES = [torch.float32, torch.float16]
TOLERANCE = {torch.float32: 5e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3}
# 1 x 3 x 5: fewer rows than a tile; 6 x 9 x 13: several tiles of 128 rows and a rest.
SHAPES = [(2, 16, 3, 5), (6, 64, 9, 13), (3, 192, 8, 8)]


def activation(
    shape: tuple[int, ...], kind: torch.dtype, device: torch.device, seed: int
) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    # A mean away from 0 and a spread that differs from channel to channel.
    spread = torch.rand(shape[1], generator=generator)[:, None, None] + 0.5
    x = torch.randn(shape, generator=generator) * spread + spread * 3 - 2
    return x.to(device=device, dtype=kind).contiguous(memory_format=torch.channels_last)


def norm_of(channels: int, device: torch.device, seed: int) -> nn.BatchNorm2d:
    torch.manual_seed(seed)
    module = nn.BatchNorm2d(channels, eps=1e-5, momentum=0.1)
    nn.init.normal_(module.weight, 1.0, 0.5)
    nn.init.normal_(module.bias, 0.0, 0.5)
    module = module.to(device)
    for parameter in module.parameters():
        parameter.grad = torch.full_like(parameter, 7.0)  # to be overwritten
    return module


def double(module: nn.BatchNorm2d) -> nn.BatchNorm2d:
    twin = nn.BatchNorm2d(module.num_features, eps=module.eps, momentum=module.momentum)
    twin.load_state_dict(module.state_dict())
    return twin.double()


def close(actual: Tensor, expected: Tensor, kind: torch.dtype) -> None:
    actual = actual.detach().double().cpu()
    error = (actual - expected).norm() / expected.norm()
    assert error < TOLERANCE[kind], f"relative error {error:.2e}"


def leaf(x: Tensor) -> Tensor:
    return x.detach().double().cpu().requires_grad_()


def check_module(module: nn.BatchNorm2d, twin: nn.BatchNorm2d, kind: torch.dtype) -> None:
    close(module.weight.grad, twin.weight.grad, kind)
    close(module.bias.grad, twin.bias.grad, kind)
    # Statistics are those of the rounded input, so they are as exact as FP32 is.
    close(module.running_mean, twin.running_mean, torch.float32)
    close(module.running_var, twin.running_var, torch.float32)


@pytest.mark.parametrize(("shape", "kind"), [*product(SHAPES, TYPES)])
def test_relu_of_normalised(device: torch.device, shape: tuple, kind: torch.dtype) -> None:
    from fourmin.training.fast.normalization import FusedBatchNorm
    from fourmin.training.fast.plan import FusionPlan
    from fourmin.training.fast.workspace import Workspace

    module = norm_of(shape[1], device, 1)
    twin = double(module)
    x, dy = activation(shape, kind, device, 2), activation(shape, kind, device, 3)
    fused = FusedBatchNorm(module, Workspace(device, FusionPlan()))
    fused.statistics(x)
    y = fused.relu(x)
    dx = fused.relu_gradient(dy, x)

    x64 = leaf(x)
    y64 = functional.relu(twin(x64))
    y64.backward(dy.double().cpu())
    close(y, y64.detach(), kind)
    close(dx, x64.grad, kind)
    check_module(module, twin, kind)


@pytest.mark.parametrize(
    ("shape", "kind", "projected", "two"), [*product(SHAPES, TYPES, [False, True], [False, True])]
)
def test_block_end(
    device: torch.device, shape: tuple, kind: torch.dtype, projected: bool, two: bool
) -> None:
    from fourmin.training.fast.normalization import BlockEnd, FusedBatchNorm
    from fourmin.training.fast.plan import FusionPlan
    from fourmin.training.fast.workspace import Workspace

    module, other = norm_of(shape[1], device, 1), norm_of(shape[1], device, 2)
    twin, other_twin = double(module), double(other)
    x, shortcut, dy, dy2 = (activation(shape, kind, device, seed) for seed in (3, 4, 5, 6))
    workspace = Workspace(device, FusionPlan())
    fused, fused_other = FusedBatchNorm(module, workspace), FusedBatchNorm(other, workspace)
    end = BlockEnd(fused, fused_other if projected else None, workspace)
    fused.statistics(x)
    if projected:
        fused_other.statistics(shortcut)
    y, bits = end.forward(x, shortcut)
    g = end.reduce(dy, dy2 if two else None, bits, x, shortcut if projected else None)
    if projected:
        dx, dshortcut = end.gradients(g, x, shortcut)
    else:
        dx, dshortcut = fused.gradient(g, x), g

    x64, s64 = leaf(x), leaf(shortcut)
    y64 = functional.relu(twin(x64) + (other_twin(s64) if projected else s64))
    grad = dy.double().cpu() + (dy2.double().cpu() if two else 0)
    y64.backward(grad)
    close(y, y64.detach(), kind)
    close(dx, x64.grad, kind)
    close(dshortcut, s64.grad, kind)
    check_module(module, twin, kind)
    if projected:
        check_module(other, other_twin, kind)


@pytest.mark.parametrize(
    ("shape", "kind"), [*product([(2, 16, 8, 8), (3, 64, 9, 11), (1, 16, 1, 7)], TYPES)]
)
def test_relu_and_pool(device: torch.device, shape: tuple, kind: torch.dtype) -> None:
    from fourmin.training.fast.normalization import FusedBatchNorm
    from fourmin.training.fast.plan import FusionPlan
    from fourmin.training.fast.workspace import Workspace

    module = norm_of(shape[1], device, 1)
    twin = double(module)
    x = activation(shape, kind, device, 2)
    fused = FusedBatchNorm(module, Workspace(device, FusionPlan()))
    fused.statistics(x)
    y, taps, winners = fused.relu_pool(x)
    dy = activation(tuple(y.shape), kind, device, 3)
    dx = fused.relu_pool_gradient(dy, taps, winners, x)

    x64 = leaf(x)
    y64 = functional.max_pool2d(functional.relu(twin(x64)), 3, 2, 1)
    y64.backward(dy.double().cpu())
    close(y, y64.detach(), kind)
    close(dx, x64.grad, kind)
    check_module(module, twin, kind)


def test_gradients_of_micro_batches_add_up(device: torch.device) -> None:
    from fourmin.training.fast.normalization import FusedBatchNorm
    from fourmin.training.fast.plan import FusionPlan
    from fourmin.training.fast.workspace import Workspace

    module = norm_of(16, device, 1)
    x, dy = (activation((4, 16, 6, 6), torch.float32, device, seed) for seed in (2, 3))
    fused = FusedBatchNorm(module, Workspace(device, FusionPlan()))
    fused.statistics(x)
    fused.relu_gradient(dy, x)
    once = module.weight.grad.clone()
    fused.accumulate = True
    fused.relu_gradient(dy, x)
    torch.testing.assert_close(module.weight.grad, 2 * once)


def test_a_great_mean_leaves_the_variance_exact(device: torch.device) -> None:
    """Sums of squares cancel: mean 10, deviation 1 must still give the variance to 1e-4."""
    from fourmin.training.fast.normalization import FusedBatchNorm
    from fourmin.training.fast.plan import FusionPlan
    from fourmin.training.fast.workspace import Workspace

    x = torch.randn(8, 16, 16, 16, generator=torch.Generator().manual_seed(1)) + 10
    x = x.to(device).contiguous(memory_format=torch.channels_last)
    fused = FusedBatchNorm(norm_of(16, device, 1), Workspace(device, FusionPlan()))
    fused.statistics(x)
    variance = x.double().var(dim=(0, 2, 3), correction=0)
    torch.testing.assert_close(
        fused.saved[1].double(), (variance + 1e-5).rsqrt(), rtol=1e-4, atol=0
    )
