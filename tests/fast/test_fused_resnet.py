"""The written-out residual network against autograd in float64, each fusion on and off."""

from __future__ import annotations

import copy
from functools import partial

import pytest
import torch
from fast_cases import Collect
from torch import Tensor, nn
from torch.nn import functional

from fourmin.training.fast.graphs import at_once
from fourmin.training.models.resnet import BasicBlock, Bottleneck, ResNet

SCALE = 8.0
FIELDS = ("pointwise", "stem", "to_end", "through_end")


def make(block: type, depths: tuple[int, ...], stem: str, device: torch.device) -> ResNet:
    torch.manual_seed(0)
    batch_norm = partial(nn.BatchNorm2d, eps=1e-5, momentum=0.1)
    model = ResNet(block, depths, 16, stem=stem, num_classes=10, batch_norm=batch_norm).to(
        device=device, memory_format=torch.channels_last
    )
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.normal_(module.weight, 1.0, 0.3)
            nn.init.normal_(module.bias, 0.0, 0.3)
    return model


def reference(model: ResNet, images: Tensor, labels: Tensor) -> tuple[ResNet, Tensor]:
    twin = copy.deepcopy(model).double()
    x = twin.maxpool(functional.relu(twin.bn1(twin.conv1(images.double()))))
    for stage in range(twin.stage_count):
        x = twin.get_submodule(f"layer{stage + 1}")(x)
    logits = x.mean(dim=(2, 3)) @ twin.fc.weight.T + twin.fc.bias
    loss = functional.cross_entropy(logits, labels, label_smoothing=0.1)
    (loss * SCALE).backward()
    return twin, loss.detach()


PLANS = {
    name: {field: name in (field, "all") for field in FIELDS} | {"epilogue": False}
    for name in ("none", *FIELDS, "all")
}


@pytest.mark.parametrize(
    ("block", "depths", "stem", "size", "plan"),
    [
        (BasicBlock, (1, 1), "small", 8, "none"),
        (BasicBlock, (2, 1), "small", 9, "all"),
        *((Bottleneck, (2, 2), "large", 20, plan) for plan in PLANS),
        (Bottleneck, (2, 2), "pooled", 12, "all"),
        (Bottleneck, (1, 2), "small", 10, "all"),
    ],
)
def test_loss_gradients_and_statistics(
    device: torch.device, block: type, depths: tuple, stem: str, size: int, plan: str
) -> None:
    from fourmin.training.fast.plan import FusionPlan
    from fourmin.training.fast.resnet import FusedResNet

    model = make(block, depths, stem, device)
    generator = torch.Generator().manual_seed(1)
    images = torch.randn(7, 3, size, size, generator=generator).to(device)
    labels = torch.randint(0, 10, (7,), generator=generator).to(device)
    twin, expected = reference(model, images, labels)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    copies = {m.weight: m.weight.detach() for m in model.modules() if isinstance(m, nn.Conv2d)}
    fused = FusedResNet(model, copies, FusionPlan(**PLANS[plan]))
    fused.refresh()
    buffer = fused.stem.input_buffer(images)
    fused.stem.fill(buffer, images)
    sink = Collect()
    with torch.no_grad():
        loss = fused.loss_and_gradients(
            buffer,
            lambda logits: functional.cross_entropy(logits, labels, label_smoothing=0.1),
            torch.tensor(SCALE, device=device),
            sink,
            at_once,
            accumulate=False,
        )
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
    assert sorted(map(id, sink.came)) == sorted(map(id, model.parameters()))
    for (name, parameter), other in zip(model.named_parameters(), twin.parameters(), strict=True):
        error = (parameter.grad.double() - other.grad).norm() / other.grad.norm()
        assert error < 5e-5, f"{name}: {error:.1e}"
    for (name, value), other in zip(model.named_buffers(), twin.buffers(), strict=True):
        torch.testing.assert_close(value.double(), other.double(), rtol=1e-5, atol=1e-6, msg=name)
