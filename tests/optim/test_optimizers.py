"""The torch-free entries: what they promise is what training does, logs and refuses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from processes import fourmin

from fourmin.base.errors import FourminError
from fourmin.log import keys
from fourmin.recipe.configuration import FIELDS, Configuration
from fourmin.recipe.optimizers import OPTIMIZERS, fields_not_read
from fourmin.recipe.presets import load_preset
from fourmin.ruleset import load_ruleset
from fourmin.training.models import build_model
from fourmin.training.optim import build_optimizer

PLAIN = {"lars": {"momentum_buffer"}, "sgd": {"momentum_buffer"}, "adagrad": {"sum", "step"}}
ADAM = {"exp_avg", "exp_avg_sq", "step"}


def configured(**changes: Any) -> Configuration:
    digits = load_preset("digits").resolved(0, keep_workers=True)
    return replace(digits, division="open", **changes)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_it_reads_the_fields_of_its_entry_and_keeps_the_state_of_its_entry(name: str) -> None:
    entry = OPTIMIZERS[name]
    whole = configured(optimizer=name)
    read = {field: getattr(whole, field) for field in entry.fields}
    # Whether gradients are compressed decides which SGD it is.
    config: Any = SimpleNamespace(optimizer=name, gradient_density=1.0, **read)
    model = build_model("resnet8", num_classes=10, bn_momentum=0.1, bn_epsilon=1e-5)
    optimizer = build_optimizer(model, config)
    for step in range(3):
        for parameter in model.parameters():
            state = optimizer.state[parameter]
            assert set(state) == {*entry.tensors, *entry.counters} == PLAIN.get(name, ADAM)
            for tensor in entry.tensors:
                assert state[tensor].shape == parameter.shape
                assert state[tensor].dtype == torch.float32
                assert bool(state[tensor].any()) == (step > 0)
            assert [state[counter].item() for counter in entry.counters] == [step] * len(
                entry.counters
            )
            parameter.grad = torch.ones_like(parameter)
        optimizer.step()
    parameters = [parameter.numel() for parameter in model.parameters()]
    kept = sum(t.numel() for state in optimizer.state.values() for t in state.values() if t.ndim)
    assert len(entry.tensors) == kept / sum(parameters)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_fields_and_keys_are_known(name: str) -> None:
    entry = OPTIMIZERS[name]
    assert set(entry.fields) <= set(FIELDS)
    assert set(entry.logged) <= set(keys.HYPERPARAMETERS)


def test_fields_that_only_others_read() -> None:
    lars = {"lars_eta", "lars_epsilon", "lars_clip"}
    adam = {"adam_beta1", "adam_beta2", "adam_epsilon"}
    assert fields_not_read("lars") == adam
    assert fields_not_read("sgd") == lars | adam
    assert fields_not_read("lamb") == fields_not_read("adamw") == lars | {"momentum", "nesterov"}
    assert fields_not_read("adagrad") == lars | adam | {"momentum", "nesterov"}


@pytest.mark.parametrize(
    ("name", "own"),
    [
        (
            "lamb",
            {
                "opt_lamb_learning_rate_min": 0.002,
                "opt_lamb_learning_rate_decay_poly_power": 1.5,
                "opt_lamb_beta_1": 0.8,
                "opt_lamb_beta_2": 0.98,
                "opt_lamb_epsilon": 1e-5,
                "opt_lamb_weight_decay_rate": 0.03,
            },
        ),
        (
            "adamw",
            {
                "opt_end_learning_rate": 0.002,
                "opt_adamw_beta_1": 0.8,
                "opt_adamw_beta_2": 0.98,
                "opt_adamw_epsilon": 1e-5,
                "opt_adamw_weight_decay": 0.03,
            },
        ),
    ],
)
def test_what_is_logged_has_the_names_of_mlperfs_logging(name: str, own: dict[str, Any]) -> None:
    config = configured(
        optimizer=name, base_learning_rate=0.25, end_learning_rate=0.002, weight_decay=0.03,
        decay_poly_power=1.5, warmup_epochs=2.5, decay_milestones=(3.0, 5.0),
        adam_beta1=0.8, adam_beta2=0.98, adam_epsilon=1e-5,
    )  # fmt: skip
    assert OPTIMIZERS[name].values(config, 77) == own | {
        "opt_base_learning_rate": 0.25,
        "opt_learning_rate_decay_steps": 77,
        "opt_learning_rate_decay_boundary_epochs": [3.0, 5.0],
        "opt_learning_rate_warmup_epochs": 2.5,
    }


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"optimizer": "lars", "nesterov": True}, "LARS has no Nesterov form"),
        ({"optimizer": "sgd", "nesterov": True, "momentum": 0.0}, "a momentum greater than 0"),
        ({"optimizer": "lamb", "division": "closed"}, "lamb is not for the closed division"),
        ({"optimizer": "adamw", "division": "closed"}, "adamw is not for the closed division"),
        ({"optimizer": "lamb", "adam_beta1": 1.0}, "adam_beta1 must be at least 0 and less than 1"),
        (
            {"optimizer": "adamw", "adam_beta2": -0.1},
            "adam_beta2 must be at least 0 and less than 1",
        ),
        ({"optimizer": "adamw", "adam_epsilon": 0.0}, "adam_epsilon must be greater than 0"),
        ({"optimizer": "adam"}, "optimizer='adam' is not known"),
    ],
)
def test_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(FourminError, match=message):
        replace(configured(), **changes).check()


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_allowed(name: str) -> None:
    configured(optimizer=name).check()


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_fast_step_is_refused_by_name_where_it_has_no_update(name: str) -> None:
    config = configured(optimizer=name, step="fast", device="cuda", precision="fp16")
    if name in ("lars", "sgd"):
        config.check()
        return
    with pytest.raises(FourminError, match=f"the fast step has no update for {name}"):
        config.check()


def test_a_closed_division_limits_the_optimizer_wherever_another_is_known() -> None:
    """The refusal does not hang on the tool alone: rule HYP002 reads these limits."""
    ruleset = load_ruleset()
    for name in ruleset.benchmark_names():
        benchmark = ruleset.benchmark(name)
        allowed = [known for known, entry in OPTIMIZERS.items() if "closed" in entry.divisions]
        assert benchmark.closed["optimizer"] == {"choices": allowed}, name


def test_run_refuses_it_in_the_closed_division(tmp_path: Path) -> None:
    results = ("--results-dir", str(tmp_path / "results"))
    done = fourmin("run", "--set", "optimizer=lamb", *results, state=tmp_path)
    assert done.returncode == 2
    assert "optimizer=lamb is not for the closed division" in done.stderr
    assert "--set division=open" in done.stderr
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize("name", ["lamb", pytest.param("adamw", marks=pytest.mark.slow)])
def test_a_practice_campaign_is_valid(tmp_path: Path, name: str) -> None:
    options = ["--practice", "--runs", "1", "--max-steps", "3", "--results-dir", str(tmp_path)]
    options += ["--set", f"optimizer={name}", "--set", "division=open", "--set", "device=cpu"]
    done = fourmin("run", *options, state=tmp_path)
    assert "checked: valid" in done.stdout, done.stdout + done.stderr
    done = fourmin("validate", str(tmp_path), state=tmp_path)
    assert done.returncode == 0, done.stdout
