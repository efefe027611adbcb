"""L-BFGS over sliced vectors against torch.optim.LBFGS, which has them whole."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from itertools import islice

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from lbfgs_oracle import Loss, torch_lbfgs
from scipy.optimize import minimize
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional

from fourmin.training.algorithms.lbfgs import (
    CURVATURE,
    DECREASE,
    LBFGS,
    MOST_EVALUATIONS,
    Point,
    strong_wolfe,
)
from fourmin.training.models import build_model
from fourmin.training.models.init import initialize


class Sliced:
    """Vectors in slices of unequal size; what is computed is computed slice by slice."""

    SLICES = 3

    def __init__(self, loss: Loss, x: Tensor) -> None:
        self.loss = loss
        self.losses: list[float] = []
        self.sizes = [x.numel() // 5, x.numel() // 3]
        self.sizes.append(x.numel() - sum(self.sizes))
        self.held: dict[str, list[Tensor]] = {}
        self.put("x", x)

    def put(self, name: str, value: Tensor) -> None:
        self.held[name] = [part.clone() for part in value.split(self.sizes)]

    def whole(self, name: str) -> Tensor:
        return torch.cat(self.held[name])

    def dots(self, left: Sequence[str], right: Sequence[str]) -> list[list[float]]:
        pairs = lambda a, b: zip(self.held[a], self.held[b], strict=True)  # noqa: E731
        return [[sum(float(p @ q) for p, q in pairs(a, b)) for b in right] for a in left]

    def absolute_sum(self, name: str) -> float:
        return sum(float(part.abs().sum()) for part in self.held[name])

    def combine(self, target: str, terms: Mapping[str, float]) -> None:
        self.held[target] = [
            sum((self.held[name][i] * by for name, by in terms.items()), torch.zeros(size))
            for i, size in enumerate(self.sizes)
        ]

    def evaluate(self, at: str, gradient: str) -> float:
        value, slope = value_and_gradient(self.loss, self.whole(at))
        self.put(gradient, slope)
        self.losses.append(value)
        return value


def value_and_gradient(loss: Loss, x: Tensor) -> tuple[float, Tensor]:
    x = x.clone().requires_grad_()
    value = loss(x)
    return float(value.detach()), torch.autograd.grad(value, x)[0]


@cache
def digits() -> tuple[Tensor, Tensor]:
    images, labels = load_digits(return_X_y=True)
    return torch.from_numpy(images[:200] / 16 - 0.3), torch.from_numpy(labels[:200])


def rosenbrock(x: Tensor) -> Tensor:
    return (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()


def logistic(x: Tensor) -> Tensor:
    """Regression of the digits, with a penalty that makes its minimum one point."""
    images, labels = digits()
    return functional.cross_entropy(images @ x.view(64, 10), labels) + 5e-4 * x.square().sum()


def residual_network() -> tuple[Loss, Tensor]:
    """ResNet-8 on digits in float64, without augmentation, its statistics frozen."""
    model = build_model("resnet8", num_classes=10, bn_momentum=0.1, bn_epsilon=1e-5)
    initialize(model, 7, "he", False)
    model.double().eval()
    images = digits()[0].view(-1, 1, 8, 8).expand(-1, 3, -1, -1)[:60]
    names = [name for name, _ in model.named_parameters()]
    shapes = [parameter.shape for parameter in model.parameters()]

    class Body(nn.Module):
        """Its layers without the classifier's rounding to FP32."""

        def __init__(self) -> None:
            super().__init__()
            self.net = model

        def forward(self, x: Tensor) -> Tensor:
            x = functional.relu(self.net.bn1(self.net.conv1(x)))
            x = self.net.layer3(self.net.layer2(self.net.layer1(x)))
            return self.net.fc(x.mean((2, 3)))

    body = Body()

    def loss(x: Tensor) -> Tensor:
        parts = x.split([shape.numel() for shape in shapes])
        weights = {
            f"net.{name}": part.view(shape)
            for name, part, shape in zip(names, parts, shapes, strict=True)
        }
        logits = torch.func.functional_call(body, weights, (images,))
        return functional.cross_entropy(logits, digits()[1][:60])

    return loss, torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


@pytest.fixture(autouse=True)
def _float64() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("history", [5, 30])
@pytest.mark.parametrize(
    ("loss", "start", "step"),
    [
        (logistic, torch.zeros(640, dtype=torch.float64), 1.0),
        (rosenbrock, torch.linspace(-0.5, 0.5, 12, dtype=torch.float64), 0.1),
    ],
)
def test_with_a_fixed_step_it_goes_where_torchs_goes(
    loss: Loss, start: Tensor, step: float, history: int
) -> None:
    sliced = Sliced(loss, start)
    ours = LBFGS(sliced, history=history, step=step, line_search=False)
    theirs = torch_lbfgs(loss, start, 20, lr=step, history_size=history)
    for iteration, moved in zip(range(21), ours.minimize(), strict=False):
        assert moved
        torch.testing.assert_close(sliced.whole("x"), theirs[iteration], rtol=1e-6, atol=1e-6)
    assert len(sliced.losses) == 21
    assert float(loss(theirs[20])) < float(loss(start)) / 2


def test_a_residual_network_with_frozen_statistics_goes_where_torchs_goes() -> None:
    loss, start = residual_network()
    sliced = Sliced(loss, start)
    ours = LBFGS(sliced, history=10, step=0.5, line_search=False)
    theirs = torch_lbfgs(loss, start, 20, lr=0.5, history_size=10)
    assert all(islice(ours.minimize(), 21))
    assert (sliced.whole("x") - theirs[20]).abs().max() < 1e-6
    assert ours.loss < 0.5 < float(loss(start))


def evaluations_until(losses: Sequence[float], minimum: float, within: float) -> int:
    """How many it took until one was so close to the minimum."""
    return next(n for n, loss in enumerate(losses, 1) if loss - minimum <= within)


@pytest.mark.parametrize("history", [5, 20])
@pytest.mark.parametrize(
    ("loss", "start"),
    [
        (logistic, torch.zeros(640, dtype=torch.float64)),
        (rosenbrock, torch.linspace(-0.5, 0.5, 12, dtype=torch.float64)),
        (rosenbrock, torch.tensor([-1.2, 1.0], dtype=torch.float64)),
        (lambda x: (x**4 / 4 + x.square() / 2 + x.sum() ** 2).sum(), torch.linspace(-9, 20, 50)),
    ],
    ids=["logistic", "rosenbrock", "rosenbrock of two", "quartic"],
)
def test_with_line_search_it_needs_at_most_half_as_much_again_as_torch(
    loss: Loss, start: Tensor, history: int
) -> None:
    start = start.double()
    sliced = Sliced(loss, start)
    ours = LBFGS(sliced, history=history)
    best = math.inf
    for moved in islice(ours.minimize(), 2000):
        # It is where the loss is lowest, but for the noise of rounding.
        assert ours.loss == (sliced.losses[-1] if moved else best)
        assert ours.loss <= best
        best = ours.loss
    assert len(sliced.losses) < 2000
    seen = torch_lbfgs(loss, start, 500, history_size=history, line_search_fn="strong_wolfe")
    theirs = [float(loss(x)) for x in seen]
    # Newton's method, from where both ended: it has the second derivatives that neither has.
    x = torch.from_numpy(
        minimize(
            lambda x: float(loss(torch.from_numpy(x))),
            min(seen[-1], sliced.whole("x"), key=lambda x: float(loss(x))).numpy(),
            jac=lambda x: value_and_gradient(loss, torch.from_numpy(x))[1].numpy(),
            hess=lambda x: torch.func.hessian(loss)(torch.from_numpy(x)).numpy(),
            method="trust-exact",
            options={"gtol": 1e-12},
        ).x
    )
    minimum = float(loss(x))
    assert ours.loss == pytest.approx(float(loss(sliced.whole("x"))), abs=1e-12)
    for within in (1e-2, 1e-4, 1e-6):
        needed = evaluations_until(sliced.losses, minimum, within)
        assert needed <= 1.5 * evaluations_until(theirs, minimum, within)


Line = Callable[[float], Point]


def polynomial(coefficients: Sequence[float]) -> Line:
    """A line on which the loss is a polynomial."""
    derivative = np.polyder(coefficients)

    def at(step: float) -> Point:
        loss, slope = np.polyval(coefficients, step), np.polyval(derivative, step)
        return Point(step, float(loss), float(slope))

    return at


def searched(at: Line, first: float) -> tuple[Point, list[Point]]:
    """What a search takes, and all that it looked at."""
    search, seen = strong_wolfe(at(0.0), first), []
    step = next(search)
    while True:
        seen.append(at(step))
        try:
            step = search.send(seen[-1])
        except StopIteration as end:
            return end.value, seen


def test_a_cubic_is_known_after_two_points() -> None:
    # Lowest at 2 / sqrt(3) + 1: (t - 1)^3 - 4 (t - 1).
    found, seen = searched(polynomial([1.0, -3.0, -1.0, 3.0]), 6.0)
    assert [point.step for point in seen] == pytest.approx([6.0, 1 + 2 / math.sqrt(3)])
    assert found is seen[-1]


@given(
    roots=st.lists(st.floats(0.01, 50), min_size=1, max_size=3),
    scale=st.floats(1e-3, 1e3),
    first=st.floats(1e-4, 200),
)
def test_what_it_finds_satisfies_the_strong_wolfe_conditions(
    roots: list[float], scale: float, first: float
) -> None:
    # A product of such squares has minima at its roots and goes down from 0 on.
    coefficients = [scale]
    for root in roots:
        coefficients = np.polymul(coefficients, [1 / root**2, -2 / root, 1.0])
    at = polynomial(coefficients)
    found, seen = searched(at, first)
    start = at(0.0)
    assert found.loss <= start.loss + DECREASE * found.step * start.slope
    assert abs(found.slope) <= CURVATURE * abs(start.slope)
    assert found is seen[-1]


@pytest.mark.parametrize("beyond", [math.nan, math.inf])
def test_where_the_loss_is_not_finite_is_too_far(beyond: float) -> None:
    def at(step: float) -> Point:
        loss = step**2 / 2 - step if step < 3 else beyond
        return Point(step, loss, step - 1 if step < 3 else beyond)

    found, _ = searched(at, 1000.0)
    assert 0 < found.step < 2


class Flat(Sliced):
    """The loss never keeps what the gradient promises, as by rounding near a minimum."""

    def evaluate(self, at: str, gradient: str) -> float:
        return min(0.0, super().evaluate(at, gradient) * 0.0)


def test_where_nothing_is_lower_it_stays_and_ends() -> None:
    sliced = Flat(lambda x: x.sum(), torch.ones(9))
    ours = LBFGS(sliced, history=3)
    moves = list(islice(ours.minimize(), 100))
    assert moves == [True] + [False] * (len(sliced.losses) - 1)
    assert 2 < len(moves) < 100
    assert sliced.whole("x").tolist() == [1.0] * 9


class Rough(Sliced):
    """The slope is always as steep, whatever the loss does: no point has a small enough one."""

    def evaluate(self, at: str, gradient: str) -> float:
        loss = super().evaluate(at, gradient)
        self.put(gradient, torch.full((9,), -1.0))
        return loss


def test_the_best_point_is_evaluated_again_when_the_search_ends_without_one() -> None:
    sliced = Rough(lambda x: (x - 3).square().sum(), torch.zeros(9))
    ours = LBFGS(sliced, history=3)
    moves = list(islice(ours.minimize(), MOST_EVALUATIONS + 2))
    assert moves == [True] + [False] * MOST_EVALUATIONS + [True]
    assert ours.loss == sliced.losses[-1] == min(sliced.losses)


def test_at_a_minimum_there_is_no_step() -> None:
    sliced = Sliced(lambda x: (x - 1).square().sum(), torch.ones(9))
    assert list(LBFGS(sliced, history=3).minimize()) == [True]
    assert (len(sliced.losses), sliced.whole("x").tolist()) == (1, [1.0] * 9)


def test_a_pair_without_curvature_is_not_remembered() -> None:
    """Along a straight line y is 0, and a step divided by s.y would be no step."""
    sliced = Sliced(lambda x: -x.sum(), torch.zeros(6))
    ours = LBFGS(sliced, history=2, step=0.5, line_search=False)
    assert all(islice(ours.minimize(), 5))
    # The first step is divided by the gradient's absolute sum, 6.
    assert sliced.whole("x").tolist() == pytest.approx([0.5 / 6 + 3 * 0.5] * 6)
    assert not {"s0", "y0"} & set(sliced.held)
