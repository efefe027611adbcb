"""Which step a run takes, from what is against the fast one in its configuration and its nodes."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest

from fourmin.base.errors import FourminError
from fourmin.recipe.configuration import Configuration
from fourmin.recipe.presets import load_preset
from fourmin.recipe.steps import against_machine, describe_step, with_step
from fourmin.ruleset import load_ruleset


def on_gpus(**changes: Any) -> Configuration:
    fields = {"device": "cuda", "precision": "fp16", "decoder": "mixed", "procs_per_node": 4}
    return dataclasses.replace(load_preset("digits"), **(fields | changes))


@pytest.mark.parametrize(
    ("capabilities", "triton", "told"),
    [
        (["9.0"], True, ""),
        (["8.0"], True, ""),
        (["10.0", "9.0"], True, ""),
        (["12.1"], True, ""),
        (["7.5"], True, "capability 8.0, and one has 7.5"),
        (["9.0", "6.1"], True, "capability 8.0, and one has 6.1"),
        (["9.0"], False, "Triton is not installed"),
        ([], True, "no GPU"),
        (None, False, "Triton is not installed"),
        (None, True, None),
    ],
)
def test_what_is_against_it_on_a_node(
    capabilities: list[str] | None, triton: bool, told: str | None
) -> None:
    found = against_machine(capabilities, triton)
    assert found == told if not told else told in (found or "")


@pytest.mark.parametrize(
    ("changes", "against_nodes", "step", "line"),
    [
        ({}, "", "fast", "step: fast"),
        ({"precision": "bf16"}, "", "fast", "step: fast"),
        ({"optimizer": "lars", "nesterov": False}, "", "fast", "step: fast"),
        ({"optimizer": "sgd"}, "", "fast", "step: fast"),
        ({"optimizer": "lamb"}, "", "eager", "has no update for lamb"),
        ({"optimizer": "adamw"}, "", "eager", "has no update for adamw"),
        ({"precision": "fp32"}, "", "eager", "this run is fp32"),
        ({"bn_span": 4}, "", "fast", "step: fast"),
        ({"bn_span": 4, "model": "alexnet"}, "", "fast", "step: fast"),
        ({"model": "alexnet"}, "", "fast", "step: fast"),
        ({"device": "cpu"}, "", "eager", "step: eager, since this run is on the cpu"),
        ({"device": "cpu"}, None, "eager", "this run is on the cpu"),
        ({"bn_span": 2, "model": "alexnet"}, None, "auto", "step: decided where the workers run"),
        ({}, "Triton is away", "eager", "step: eager, since Triton is away"),
        ({}, None, "auto", "step: decided where the workers run"),
        ({"step": "eager"}, "", "eager", "step: eager, as asked for"),
        ({"step": "fast"}, "Triton is away", "fast", "step: fast, as asked for"),
    ],
)  # fmt: skip
def test_what_auto_comes_to(
    changes: dict[str, Any], against_nodes: str | None, step: str, line: str
) -> None:
    asked = on_gpus(**changes)
    found = with_step(asked, against_nodes)
    assert found == dataclasses.replace(asked, step=step)
    said = describe_step(found, asked.step, against_nodes)
    assert said == line if line == "step: fast" else line in said


@pytest.mark.parametrize(
    "changes",
    [
        {"precision": "fp32"},
        {"device": "cpu", "precision": "bf16", "decoder": "cpu"},
        {"optimizer": "lamb", "division": "open"},
    ],
)
def test_what_was_asked_for_and_cannot_train_is_refused(changes: dict[str, Any]) -> None:
    with_step(on_gpus(**changes), "").check()
    on_gpus(step="fast").check()
    with pytest.raises(FourminError, match="step=fast cannot train this") as caught:
        on_gpus(step="fast", **changes).check()
    assert (caught.value.next_step, caught.value.exit_code) == ("--set step=eager", 2)


def test_auto_is_no_step_of_a_run() -> None:
    with pytest.raises(FourminError, match="step='auto' is not known"):
        on_gpus().check()
    schema = load_ruleset().schema("campaign")
    steps = [(where, value) for where, value in _named(schema, "step") if isinstance(value, dict)]
    assert steps
    for where, value in steps:
        assert sorted(value["enum"]) == ["eager", "fast"], where


def _named(node: Any, name: str, where: str = "") -> Iterator[tuple[str, Any]]:
    """Every value of that key, however deep, and where it is."""
    for key, value in node.items() if isinstance(node, dict) else ():
        if key == name:
            yield f"{where}/{key}", value
        yield from _named(value, name, f"{where}/{key}")
