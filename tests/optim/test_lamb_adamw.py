"""LAMB and AdamW against their formulas in float64, and LAMB against forms that it is not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from fourmin.recipe.presets import load_preset
from fourmin.training.models import build_model
from fourmin.training.optim import build_optimizer, set_learning_rate, split_parameters
from fourmin.training.optim.lamb import Lamb

Array = NDArray[Any]

TOLERANCE = 5e-6  # relative to the largest weight of a tensor
SHAPES = [(8, 3, 3, 3), (5, 7), (13,)]
STEPS = 40
RATES = [0.02 * (s + 1) / 6 if s < 6 else 0.02 * (1 - (s - 6) / STEPS) ** 2 for s in range(STEPS)]
"""Warmup, then a steep decay: every step has another rate."""


def problem(seed: int = 0) -> tuple[list[Array], list[list[Array]]]:
    """Start weights and a gradient for each step, FP32."""
    rng = np.random.default_rng(seed)
    weights = [np.asarray(rng.normal(0, 0.1, shape), np.float32) for shape in SHAPES]
    grads = [
        [np.asarray(rng.normal(0, 0.02, shape), np.float32) for shape in SHAPES]
        for _ in range(STEPS)
    ]
    return weights, grads


def lamb(
    weights: list[Array],
    grads: list[list[Array]],
    rates: list[float],
    *,
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-6,
    wd: float = 0.01,
    another: str = "",
) -> list[Array]:
    """You et al., algorithm 2, tensor by tensor; `another` is a form that others call LAMB too."""
    finals = []
    for index, start in enumerate(weights):
        x, m, v = start.astype(np.float64), 0.0, 0.0
        for t, (lr, step) in enumerate(zip(rates, grads, strict=True), start=1):
            g = step[index].astype(np.float64)
            if another == "gradients over their common norm":
                g = g / np.sqrt(sum(np.sum(one.astype(np.float64) ** 2) for one in step))
            m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g**2
            mean, square = m / (1 - b1**t), v / (1 - b2**t)
            if another == "no bias correction":
                mean, square = m, v
            r = mean / (np.sqrt(square) + eps)
            update = r if another == "decay outside the norm" else r + wd * x
            ratio, size = 1.0, np.sqrt(np.sum(update**2))
            if np.any(x) and size > 0:
                ratio = np.sqrt(np.sum(x**2)) / size
            if another == "no adaptation":
                ratio = 1.0
            elif another == "a ratio of at most 0.1":
                ratio = min(ratio, 0.1)
            x = x - lr * ratio * update - (lr * wd * x if "outside" in another else 0)
        finals.append(x)
    return finals


def adamw(
    weights: list[Array],
    grads: list[list[Array]],
    rates: list[float],
    *,
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-6,
    wd: float = 0.01,
) -> list[Array]:
    """Loshchilov and Hutter, algorithm 2, with the schedule times the rate on the decay too."""
    finals = []
    for index, start in enumerate(weights):
        x, m, v = start.astype(np.float64), 0.0, 0.0
        for t, (lr, step) in enumerate(zip(rates, grads, strict=True), start=1):
            g = step[index].astype(np.float64)
            m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g**2
            x = x - lr * (m / (1 - b1**t) / (np.sqrt(v / (1 - b2**t)) + eps) + wd * x)
        finals.append(x)
    return finals


def train(
    parameters: list[torch.nn.Parameter],
    optimizer: torch.optim.Optimizer,
    grads: list[list[Array]],
    rates: list[float],
) -> list[Array]:
    for lr, step in zip(rates, grads, strict=True):
        set_learning_rate(optimizer, lr)
        for parameter, grad in zip(parameters, step, strict=True):
            parameter.grad = torch.tensor(grad, device=parameter.device)
        optimizer.step()
    return [parameter.detach().cpu().numpy() for parameter in parameters]


def run_lamb(
    weights: list[Array], grads: list[list[Array]], rates: list[float], **settings: Any
) -> list[Array]:
    parameters = [torch.nn.Parameter(torch.tensor(weight)) for weight in weights]
    names = {"b1": "beta1", "b2": "beta2", "eps": "epsilon", "wd": "weight_decay"}
    given = {"b1": 0.9, "b2": 0.999, "eps": 1e-6, "wd": 0.01} | settings
    optimizer = Lamb(parameters, 0.0, **{names[name]: value for name, value in given.items()})
    return train(parameters, optimizer, grads, rates)


def distance(ours: list[Array], expected: list[Array]) -> float:
    """Largest difference relative to the largest weight, over all tensors; inf for a NaN."""
    found = [
        np.abs(a - b).max() / max(np.abs(b).max(), 1e-30)
        for a, b in zip(ours, expected, strict=True)
    ]
    return float(np.nan_to_num(np.array(found), nan=np.inf).max())


@pytest.mark.parametrize(
    "settings", [{}, {"b1": 0.5, "b2": 0.9}, {"eps": 1e-2}, {"wd": 0.0}, {"b1": 0.0}], ids=str
)
def test_many_steps_of_lamb_against_the_formula(settings: dict[str, float]) -> None:
    weights, grads = problem()
    ours = run_lamb(weights, grads, RATES, **settings)
    assert distance(ours, lamb(weights, grads, RATES, **settings)) < TOLERANCE


@pytest.mark.parametrize(
    "another",
    ["no bias correction", "gradients over their common norm", "decay outside the norm",
     "no adaptation", "a ratio of at most 0.1"],
)  # fmt: skip
def test_it_is_not_another_lamb(another: str) -> None:
    weights, grads = problem()
    # Gradients that grow show what a common norm and a missing correction take away.
    grads = [[g * np.float32(1 + t) for g in step] for t, step in enumerate(grads)]
    ours = run_lamb(weights, grads, RATES, wd=0.1)
    assert distance(ours, lamb(weights, grads, RATES, wd=0.1)) < TOLERANCE
    assert distance(ours, lamb(weights, grads, RATES, wd=0.1, another=another)) > 100 * TOLERANCE


def test_a_zero_norm_leaves_the_rate_alone() -> None:
    weights, grads = problem()
    weights[1][:] = 0
    for step in grads:
        step[2][:] = 0
    ours = run_lamb(weights, grads, RATES, wd=0.0)
    assert distance(ours, lamb(weights, grads, RATES, wd=0.0)) < TOLERANCE
    assert np.array_equal(ours[2], weights[2])
    assert np.abs(ours[1]).max() > 0.001


def test_a_parameter_without_gradient_is_left_alone_and_counts_its_own_steps() -> None:
    weights, grads = problem()
    parameters = [torch.nn.Parameter(torch.tensor(weight)) for weight in weights[:2]]
    optimizer = Lamb(parameters, 0.0, weight_decay=0.01)
    for number, (lr, step) in enumerate(zip(RATES, grads, strict=True)):
        set_learning_rate(optimizer, lr)
        parameters[0].grad = torch.tensor(step[0])
        parameters[1].grad = torch.tensor(step[1]) if number % 2 else None
        optimizer.step()
    expected = lamb(weights[:1], [[step[0]] for step in grads], RATES)
    expected += lamb(weights[1:2], [[step[1]] for step in grads[1::2]], RATES[1::2])
    assert distance([p.detach().numpy() for p in parameters], expected) < TOLERANCE


def test_lamb_needs_fp32() -> None:
    with pytest.raises(TypeError, match="Lamb needs FP32 parameters"):
        Lamb([torch.nn.Parameter(torch.ones(2, dtype=torch.float16))], 0.1)


@pytest.mark.parametrize("exclude", [True, False])
@pytest.mark.parametrize("name", ["lamb", "adamw"])
def test_a_network_against_the_formula(name: str, exclude: bool) -> None:
    """As a configuration has it: decay and adaptation on weights, or on all parameters."""
    decay = 0.05
    config = load_preset("digits").with_overrides(
        {"optimizer": name, "weight_decay": decay, "exclude_bias_and_bn": exclude,
         "adam_beta1": 0.8, "adam_beta2": 0.98, "adam_epsilon": 1e-5}
    )  # fmt: skip
    torch.manual_seed(3)
    model = build_model("resnet8", num_classes=10, bn_momentum=0.1, bn_epsilon=1e-5)
    optimizer = build_optimizer(model, config)
    adapted, plain = split_parameters(model)
    parameters = adapted + plain
    weights = [parameter.detach().numpy().copy() for parameter in parameters]
    rng = np.random.default_rng(1)
    grads = [
        [np.asarray(rng.normal(0, 0.02, weight.shape), np.float32) for weight in weights]
        for _ in range(15)
    ]
    rates = RATES[:15]
    ours = train(parameters, optimizer, grads, rates)
    formula: Any = lamb if name == "lamb" else adamw
    same = {"b1": 0.8, "b2": 0.98, "eps": 1e-5}
    rest: dict[str, Any] = {"wd": 0.0} if exclude else {"wd": decay}
    if name == "lamb" and exclude:
        rest["another"] = "no adaptation"
    count = len(adapted)
    expected = formula(weights[:count], [s[:count] for s in grads], rates, wd=decay, **same)
    expected += formula(weights[count:], [s[count:] for s in grads], rates, **same, **rest)
    assert distance(ours, expected) < TOLERANCE


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["lamb", "adamw"])
def test_on_a_gpu_nothing_waits_for_the_device(name: str) -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA GPU")
    config = load_preset("digits").with_overrides({"optimizer": name, "weight_decay": 0.01})
    model = build_model("resnet8", num_classes=10, bn_momentum=0.1, bn_epsilon=1e-5)
    adapted, _ = split_parameters(model)
    weights = [parameter.detach().numpy().copy() for parameter in adapted]
    model.cuda()
    optimizer = build_optimizer(model, config)
    rng = np.random.default_rng(1)
    grads = [
        [np.asarray(rng.normal(0, 0.02, w.shape), np.float32) for w in weights] for _ in range(9)
    ]
    on_device = [[torch.tensor(grad, device="cuda") for grad in step] for step in grads]
    torch.cuda.set_sync_debug_mode("error")
    try:
        for lr, step in zip(RATES, on_device, strict=False):
            set_learning_rate(optimizer, lr)
            for parameter, grad in zip(adapted, step, strict=True):
                parameter.grad = grad
            optimizer.step()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    formula: Any = lamb if name == "lamb" else adamw
    ours = [parameter.detach().cpu().numpy() for parameter in adapted]
    assert distance(ours, formula(weights, grads, RATES[:9])) < TOLERANCE
