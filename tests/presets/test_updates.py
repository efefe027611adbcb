"""Weight updates with a preset's optimizer and learning rates against float64 formulas.

A small model takes the optimizer that the preset builds, and one update at the learning rate of
every 50th step of the run. The formulas are written here from the papers, in numpy float64;
their last weights lie in golden/updates-*.json.
"""

from __future__ import annotations

import json

import pytest

np = pytest.importorskip("numpy")
torch = pytest.importorskip("torch")

from fourmin.recipe.presets import load_preset  # noqa: E402
from fourmin.recipe.schedule import LearningRateSchedule  # noqa: E402
from fourmin.training.optim import (  # noqa: E402
    build_optimizer,
    set_learning_rate,
)

IMAGES = 1_281_167
EVERY = 50
# LARS and weight decay leave out what belongs to batch normalization, and biases.
SHAPES = {
    "conv.weight": (4, 3, 3, 3),
    "bn.weight": (4,),
    "bn.bias": (4,),
    "fc.weight": (5, 4),
    "fc.bias": (5,),
}
DECAYED = ("conv.weight", "fc.weight")


def wave(name, step, amplitude):
    """Numbers that look random, the same in every version of every library."""
    size = int(np.prod(SHAPES[name]))
    phase = 7.0 * list(SHAPES).index(name) + 0.37 * step
    values = amplitude * np.sin(1.3 * np.arange(size) ** 1.5 + phase)
    # Both sides start from the same FP32 numbers.
    return values.astype(np.float32).astype(np.float64).reshape(SHAPES[name])


def initial(name):
    return wave(name, -1, 0.3)


def gradient(name, step):
    return wave(name, step, 0.02)


def learning_rates(preset):
    steps_per_epoch = preset.steps_per_epoch(IMAGES)
    schedule = LearningRateSchedule(preset, steps_per_epoch)
    return [schedule(step) for step in range(0, preset.max_epochs * steps_per_epoch, EVERY)]


def lars(rates, *, momentum=0.951807, decay=1e-4, eta=0.001):
    """You et al. 2017: v = m v + lr lam (g + wd w); w -= v; lam = eta |w| / (|g| + wd |w|)."""
    weights = {name: initial(name) for name in SHAPES}
    velocity = {name: np.zeros(shape) for name, shape in SHAPES.items()}
    for step, rate in enumerate(rates):
        for name, w in weights.items():
            g, local = gradient(name, step), 1.0
            if name in DECAYED:
                norm = np.sqrt((w * w).sum())
                local = eta * norm / (np.sqrt((g * g).sum()) + decay * norm)
                g = g + decay * w
            velocity[name] = momentum * velocity[name] + rate * local * g
            weights[name] = w - velocity[name]
    return weights


def nesterov(rates, *, momentum=0.9, decay=1e-4):
    """Goyal et al. 2017, equations 2 and 9, with Nesterov's step: w -= lr (g + m v)."""
    weights = {name: initial(name) for name in SHAPES}
    velocity = {name: np.zeros(shape) for name, shape in SHAPES.items()}
    for step, rate in enumerate(rates):
        for name, w in weights.items():
            g = gradient(name, step) + (decay * w if name in DECAYED else 0.0)
            velocity[name] = momentum * velocity[name] + g
            weights[name] = w - rate * (g + momentum * velocity[name])
    return weights


FORMULAS = {"resnet50-64k": lars, "resnet50-8k": nesterov}


class Small(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 4, 3, bias=False)
        self.bn = torch.nn.BatchNorm2d(4)
        self.fc = torch.nn.Linear(4, 5)


def updated(preset):
    model = Small()
    parameters = dict(model.named_parameters())
    assert set(parameters) == set(SHAPES)
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(torch.from_numpy(initial(name)))
    optimizer = build_optimizer(model, preset)
    for step, rate in enumerate(learning_rates(preset)):
        for name, parameter in parameters.items():
            parameter.grad = torch.from_numpy(gradient(name, step)).float()
        set_learning_rate(optimizer, rate)
        optimizer.step()
    return {name: p.detach().double().numpy() for name, p in parameters.items()}


@pytest.mark.parametrize("name", FORMULAS)
def test_the_presets_updates_are_those_of_the_formula(name, golden):
    preset = load_preset(name)
    expected = FORMULAS[name](learning_rates(preset))
    weights = updated(preset)
    lists = {parameter: values.ravel().tolist() for parameter, values in expected.items()}
    kept = json.loads(golden.kept(f"updates-{name}.json", json.dumps(lists, indent=1) + "\n"))
    assert set(kept) == set(SHAPES)
    for parameter, values in expected.items():
        scale = np.abs(values).max()
        assert np.abs(values - initial(parameter)).max() > 0.01  # the weights did move
        # FP32 rounding of every update; a wrong formula is wrong by percents.
        np.testing.assert_allclose(weights[parameter], values, rtol=0, atol=2e-5 * scale)
        np.testing.assert_allclose(kept[parameter], values.ravel(), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    "wrong",
    [
        {"weight_decay": 2e-4},
        {"momentum": 0.95},
        {"lars_eta": 0.0011},
        {"exclude_bias_and_bn": False},
        {"lars_clip": True},
    ],
)
def test_the_comparison_would_show_a_wrong_setting(wrong):
    preset = load_preset("resnet50-64k")
    expected = lars(learning_rates(preset))
    weights = updated(preset.with_overrides(wrong))
    assert any(
        np.abs(weights[name] - expected[name]).max() > 2e-4 * np.abs(expected[name]).max()
        for name in SHAPES
    )
