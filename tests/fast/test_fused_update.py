"""The fused update against `Lars` and torch's SGD, with overflow, schedule and loss scale."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fourmin.training.optim.lars import Lars

RATES = [0.1, 0.3, 0.2, 0.5]
# Channels-last memory, sizes that no four divides, one weight in several chunks.
SHAPES = [(8, 3, 7, 7), (33, 65), (20000,), (10,), (7,)]


def make(kind: str, device: torch.device) -> tuple[list[nn.Parameter], torch.optim.Optimizer]:
    generator = torch.Generator().manual_seed(1)
    parameters = [
        nn.Parameter(torch.randn(shape, generator=generator).to(device)) for shape in SHAPES
    ]
    parameters[0].data = parameters[0].data.to(memory_format=torch.channels_last)
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
    groups = [
        {"params": parameters[:3], "weight_decay": 1e-2},
        {"params": parameters[3:], "weight_decay": 0.0},
    ]
    if kind in ("sgd", "nesterov"):
        return parameters, torch.optim.SGD(
            groups, lr=0.1, momentum=0.9, nesterov=kind == "nesterov"
        )
    groups[0]["adapt"], groups[1]["adapt"] = True, False
    return parameters, Lars(groups, lr=0.1, eta=0.01, epsilon=1e-3, clip=kind == "clip")


@pytest.mark.parametrize("factor", [1.0, 1 / 6])
@pytest.mark.parametrize("kind", ["lars", "clip", "sgd", "nesterov"])
def test_weights_schedule_and_loss_scale(device: torch.device, kind: str, factor: float) -> None:
    from fourmin.training.fast.update import FusedUpdate

    ours, fused_optimizer = make(kind, device)
    theirs, optimizer = make(kind, device)
    halves = {p: torch.zeros_like(p, dtype=torch.float16) for p in ours[:2]}
    update = FusedUpdate(
        fused_optimizer, halves, RATES, scaled=True, loss_scale=1024.0, growth_interval=3,
        factor=factor,
    )  # fmt: skip
    generator = torch.Generator().manual_seed(2)
    scales, performed = [], 0
    for step in range(7):
        for a, b in zip(ours, theirs, strict=True):
            grad = torch.randn(a.shape, generator=generator).to(device) * 0.1
            b.grad.copy_(grad)
            a.grad.copy_(grad / factor * update.scale[0])
        if step == 2:
            ours[4].grad[3] = float("inf")
        elif step == 5:
            ours[0].grad[0, 0, 0, 0] = float("nan")
        else:
            for group in optimizer.param_groups:
                group["lr"] = RATES[min(performed, len(RATES) - 1)]
            optimizer.step()
            performed += 1
        update.launch()
        scales.append(update.read()["loss_scale"])
        for a, b in zip(ours, theirs, strict=True):
            torch.testing.assert_close(a, b, rtol=2e-5, atol=1e-7)
    assert update.read() == {
        "performed": 5, "skipped_steps": 2, "good_steps": 1, "loss_scale": scales[-1]
    }  # fmt: skip
    # Halved by the overflow, doubled after three good steps only if they come in a row.
    assert scales == [1024.0, 1024.0, 512.0, 512.0, 512.0, 256.0, 256.0]
    for parameter, half in halves.items():
        torch.testing.assert_close(half, parameter.detach().half(), rtol=0, atol=0)
    buffers = [fused_optimizer.state[p]["momentum_buffer"] for p in ours]
    expected = [optimizer.state[p]["momentum_buffer"] for p in theirs]
    for a, b in zip(buffers, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=2e-5, atol=1e-7)


def test_a_zero_norm_keeps_the_weight_decay(device: torch.device) -> None:
    from fourmin.training.fast.update import FusedUpdate

    ours, optimizer = make("lars", device)
    before = ours[1].detach().clone()
    FusedUpdate(optimizer, {}, RATES, scaled=False, loss_scale=1.0, growth_interval=1).launch()
    torch.testing.assert_close(ours[1].detach(), before * (1 - 0.1 * 1e-2))


def test_reset_forgets_momentum_and_counts(device: torch.device) -> None:
    from fourmin.training.fast.update import FusedUpdate

    ours, optimizer = make("lars", device)
    update = FusedUpdate(optimizer, {}, RATES, scaled=True, loss_scale=8.0, growth_interval=1)
    for parameter in ours:
        parameter.grad.fill_(1.0)
    update.launch()
    assert update.read()["loss_scale"] == 16.0
    update.reset(8.0)
    assert update.read() == {
        "performed": 0, "skipped_steps": 0, "good_steps": 0, "loss_scale": 8.0
    }  # fmt: skip
    assert all(not optimizer.state[p]["momentum_buffer"].any() for p in ours)
