"""The eager step against formulas: micro-batches, smoothed labels, gradients of this step alone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD

from fourmin.training.comm.fusion import GradientReducer
from fourmin.training.comm.native import NativeAllReduce
from fourmin.training.precision import Precision
from fourmin.training.step import EagerStep, HostUpdate

CPU = torch.device("cpu")
RATE, SMOOTHING, CLASSES = 0.5, 0.1, 3


@pytest.fixture
def model() -> nn.Sequential:
    torch.manual_seed(3)
    return nn.Sequential(nn.Flatten(), nn.Linear(12, CLASSES))


@pytest.fixture
def step(model: nn.Sequential) -> Iterator[EagerStep]:
    reducer = GradientReducer(model.named_parameters(), NativeAllReduce(1), 1, 0)
    optimizer = SGD(model.parameters(), lr=99.0)
    precision = Precision("fp32", CPU)
    update = HostUpdate(optimizer, reducer.flat_buffers, precision, lambda _: RATE)
    yield EagerStep(model, update, reducer, precision, SMOOTHING)
    reducer.close()


def loss_and_gradients(x: Tensor, y: Tensor, w: Tensor, b: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Mean cross-entropy with smoothed labels: -sum of t log p, t = 0.1 / 3 and 0.9 more."""
    x = x.reshape(len(x), -1)
    p = torch.softmax(x @ w.T + b, 1)
    t = torch.full_like(p, SMOOTHING / CLASSES)
    t[range(len(y)), y] += 1 - SMOOTHING
    return -(t * p.log()).sum(1).mean(), (p - t).T @ x / len(x), (p - t).mean(0)


@pytest.mark.parametrize("micro_batches", [1, 2, 4])
def test_each_step_is_that_of_the_whole_batch(
    model: nn.Sequential, step: EagerStep, micro_batches: int
) -> None:
    w, b = (p.detach().double().clone() for p in model.parameters())
    for _ in range(3):
        x, y = torch.randn(8, 3, 2, 2), torch.randint(CLASSES, (8,))
        parts = list(zip(x.chunk(micro_batches), y.chunk(micro_batches), strict=True))
        expected, of_weights, of_biases = loss_and_gradients(x.double(), y, w, b)
        loss, _ = step(parts)
        assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
        w, b = w - RATE * of_weights, b - RATE * of_biases
        for found, wanted in zip(model.parameters(), (w, b), strict=True):
            assert torch.allclose(found.double(), wanted, rtol=1e-4, atol=1e-6)
