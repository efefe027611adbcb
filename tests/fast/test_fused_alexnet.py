"""The written-out AlexNet, and the convolutions rewritten for it, against autograd in float64."""

from __future__ import annotations

import copy
from itertools import pairwise

import pytest
import torch
from fast_cases import Collect
from torch import Tensor, nn
from torch.nn import functional

from fourmin.training.fast.graphs import at_once
from fourmin.training.models.alexnet import AlexNet

SCALE = 8.0
SIZE = 67  # pixels: 15, 7, 3 and 1 after the poolings


def narrow() -> AlexNet:
    """An AlexNet of few channels, for small images."""
    model = AlexNet(10, nn.BatchNorm2d)
    widths = (3, 16, 32, 48, 48, 32)
    for number, (inputs, outputs) in enumerate(pairwise(widths), 1):
        old = model.get_submodule(f"conv{number}")
        conv = nn.Conv2d(
            inputs, outputs, old.kernel_size, old.stride, old.padding, groups=old.groups
        )
        model.add_module(f"conv{number}", conv)
        model.add_module(f"bn{number}", nn.BatchNorm2d(outputs))
    model.fc6, model.fc7, model.fc8 = nn.Linear(32, 64), nn.Linear(64, 48), nn.Linear(48, 10)
    return model


def image_batch(n: int, size: int, device: torch.device) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(n, 3, size, size, generator=generator).to(device)


@pytest.mark.parametrize(
    ("kernel", "stride", "padding", "size"),
    [(7, 2, 3, 20), (7, 2, 3, 21), (11, 4, 0, 31), (11, 4, 2, 33), (3, 1, 1, 9), (5, 3, 1, 16)],
)
@pytest.mark.parametrize("memory", [torch.channels_last, torch.contiguous_format])
def test_a_folded_convolution_is_the_convolution(
    device: torch.device, kernel: int, stride: int, padding: int, size: int, memory: object
) -> None:
    from fourmin.training.fast.plan import FusionPlan
    from fourmin.training.fast.rewritten import FoldedConvolution
    from fourmin.training.fast.workspace import Workspace

    torch.manual_seed(0)
    module = nn.Conv2d(3, 8, kernel, stride, padding, bias=False).to(device)
    images = image_batch(3, size, device).contiguous(memory_format=memory)
    folded = FoldedConvolution(module, module.weight.detach(), Workspace(device, FusionPlan()))
    buffer = folded.input_buffer(images).fill_(float("nan"))
    with torch.no_grad():
        folded.fill(buffer, images)
        folded.refresh()
        y = folded.forward(buffer)
    twin = copy.deepcopy(module).double()
    expected = twin(images.double())
    torch.testing.assert_close(y.double(), expected.detach(), rtol=1e-5, atol=1e-5)
    dy = torch.randn_like(y)
    expected.backward(dy.double())
    found = folded.weight_gradient(dy, buffer)
    torch.testing.assert_close(found.double(), twin.weight.grad, rtol=1e-5, atol=1e-4)


def test_groups_as_one_dense_convolution(device: torch.device) -> None:
    from fourmin.training.fast.plan import FusionPlan
    from fourmin.training.fast.rewritten import DenseConvolution
    from fourmin.training.fast.workspace import Workspace

    torch.manual_seed(0)
    module = nn.Conv2d(6, 9, 3, padding=1, groups=3, bias=False).to(device)
    x = torch.randn(2, 6, 7, 7, device=device)
    dense = DenseConvolution(module, module.weight.detach(), Workspace(device, FusionPlan()))
    with torch.no_grad():
        dense.refresh()
        y = dense.forward(x)
    x64 = x.double().requires_grad_()
    twin = copy.deepcopy(module).double()
    expected = twin(x64)
    torch.testing.assert_close(y.double(), expected.detach(), rtol=1e-5, atol=1e-5)
    dy = torch.randn_like(y)
    expected.backward(dy.double())
    for found, wanted in (
        (dense.weight_gradient(dy, x), twin.weight.grad), (dense.data_gradient(dy, x), x64.grad)
    ):  # fmt: skip
        torch.testing.assert_close(found.double(), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("accumulate", [False, True])
def test_loss_gradients_and_statistics(device: torch.device, accumulate: bool) -> None:
    from fourmin.training.fast.alexnet import FusedAlexNet
    from fourmin.training.fast.plan import FusionPlan

    torch.manual_seed(0)
    model = narrow().to(device=device, memory_format=torch.channels_last)
    model.dropout.p = 0.0  # its masks are held to the eager step's on a GPU
    for name, parameter in model.named_parameters():
        if "bn" in name or "bias" in name:
            nn.init.normal_(parameter, float("bn" in name and "weight" in name), 0.3)
        parameter.grad = torch.full_like(parameter, 1.0 if accumulate else 0.0)
    images = image_batch(24, SIZE, device).contiguous(memory_format=torch.channels_last)
    labels = torch.arange(24, device=device) % 10
    twin = copy.deepcopy(model).double()
    twin.zero_grad()
    seen = functional.cross_entropy(_logits(twin, images.double()), labels, label_smoothing=0.1)
    (seen * SCALE).backward()

    copies = {p: p.detach() for p in model.parameters() if p.ndim > 1}
    fused = FusedAlexNet(model, copies, FusionPlan())
    sink = Collect()
    with torch.no_grad():
        fused.refresh()
        buffer = fused.stem.input_buffer(images)
        fused.stem.fill(buffer, images)
        loss = fused.loss_and_gradients(
            buffer,
            lambda logits: functional.cross_entropy(logits, labels, label_smoothing=0.1),
            torch.tensor(SCALE, device=device),
            sink,
            at_once,
            accumulate=accumulate,
        )
    assert loss.item() == pytest.approx(seen.item(), rel=1e-5)
    assert sorted(map(id, sink.came)) == sorted(map(id, model.parameters()))
    for (name, parameter), other in zip(model.named_parameters(), twin.parameters(), strict=True):
        found = parameter.grad.double() - float(accumulate)
        error = (found - other.grad).norm() / other.grad.norm()
        assert error < (1e-3 if accumulate else 5e-5), f"{name}: {error:.1e}"
    for (name, value), other in zip(model.named_buffers(), twin.buffers(), strict=True):
        torch.testing.assert_close(value.double(), other.double(), rtol=1e-5, atol=1e-6, msg=name)


def _logits(twin: nn.Module, x: Tensor) -> Tensor:
    """The model's forward pass in float64: its own classifier computes in FP32."""
    for number in range(1, 6):
        x = functional.relu(twin.get_submodule(f"conv{number}")(x))
        x = functional.max_pool2d(x, 3, 2) if number in (1, 2, 5) else x
        x = twin.get_submodule(f"bn{number}")(x)
    x = x.flatten(1)
    for layer in (twin.fc6, twin.fc7):
        x = functional.relu(layer(x))
    return x @ twin.fc8.weight.T + twin.fc8.bias
