"""Fields that state their bounds: what is refused, in which words, and where else they show."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from fourmin.base.errors import FourminError
from fourmin.cli.main import app
from fourmin.recipe.configuration import AUTO, FIELDS, Configuration
from fourmin.recipe.fields import Field, fields_of
from fourmin.recipe.presets import load_preset

# Written from what the tool refused before fields stated it; not from the fields.
ABOVE_ZERO = (
    "nodes", "procs_per_node", "global_batch_size", "gradient_accumulation_steps", "decay_epochs",
    "max_epochs", "bn_span", "loss_scale", "loss_scale_growth_interval",
    "collective_timeout_seconds", "loader_threads", "image_size", "eval_resize", "threads",
    "bn_epsilon",
)  # fmt: skip
NOT_NEGATIVE = (
    "base_learning_rate", "end_learning_rate", "weight_decay", "lars_eta", "lars_epsilon",
    "warmup_epochs", "warmup_start_learning_rate", "group_size", "fusion_threshold",
    "hybrid_threshold", "eval_offset", "momentum", "decoded_cache", "label_smoothing",
    "bn_momentum",
)  # fmt: skip
AT_MOST_ONE = ("momentum", "label_smoothing", "bn_momentum")


@dataclasses.dataclass(frozen=True)
class Two:
    share: Annotated[float, Field("A share.", above=0, below=1)] = 0.5
    sizes: Annotated[tuple[int, ...], Field("Sizes.", minimum=2, maximum=8, items=2)] = (2, 8)
    count: Annotated[int | None, Field("A count.", unit="steps", minimum=1)] = None
    kind: Annotated[str, Field("Which.", choices=("a", "b", "c"))] = "a"


TWO = fields_of(Two)


@given(st.floats(-1, 2))
def test_exclusive_bounds(value: float) -> None:
    assert refusal(TWO["share"], value) == (
        "" if 0 < value < 1 else f"share must be greater than 0 and less than 1, not {value}"
    )


@given(st.lists(st.integers(0, 10), max_size=3))
def test_inclusive_bounds_hold_for_each_of_several_values(values: list[int]) -> None:
    said = refusal(TWO["sizes"], tuple(values))
    if len(values) != 2:
        assert said == f"sizes takes 2 values, not {len(values)}"
    else:
        assert (said == "") == all(2 <= value <= 8 for value in values)
        assert said == "" or "at least 2 and at most 8" in said


def test_none_has_no_bounds() -> None:
    assert refusal(TWO["count"], None) == ""
    assert refusal(TWO["count"], 0) == "count must be at least 1, not 0"


def test_a_choice_that_is_none_names_them_all() -> None:
    with pytest.raises(FourminError, match="kind='d' is not known") as caught:
        TWO["kind"].check("d")
    assert caught.value.next_step == "known: a, b, c"
    assert TWO["kind"].help == "Which: a, b or c."


def refusal(field: Field, value: Any) -> str:
    try:
        field.check(value)
    except FourminError as error:
        return error.what
    return ""


@pytest.mark.parametrize("name", [*ABOVE_ZERO, *NOT_NEGATIVE])
def test_what_was_refused_before_is_refused(name: str) -> None:
    digits = load_preset("digits").resolved(0, keep_workers=True)
    wrong, edge = (0, None) if name in ABOVE_ZERO else (-1, 0)
    for value in [wrong, float("nan")] if FIELDS[name].type is float else [wrong]:
        with pytest.raises(FourminError, match=f"{name} must be"):
            dataclasses.replace(digits, **{name: value}).check()
    if edge is not None:
        assert refusal(FIELDS[name], edge) == ""
    assert bool(refusal(FIELDS[name], 1.001)) == (name in AT_MOST_ONE)


def test_every_field_says_what_it_is_and_keeps_its_own_bounds() -> None:
    own = [name for name in FIELDS if name in Configuration.__annotations__]
    assert sorted(FIELDS) == sorted(field.name for field in dataclasses.fields(Configuration))
    assert list(FIELDS)[: len(own)] == own == [*Configuration.__annotations__]
    for name, field in FIELDS.items():
        assert field.meaning[0].isupper(), name
        assert field.meaning.endswith("."), name
        assert len(field.meaning) <= 80, name
        assert "|" not in field.meaning + field.unit, name
        if field.default is dataclasses.MISSING:
            assert not field.later, f"{name}: what came later needs a default for what was before"
        elif field.default != AUTO:
            assert field.coerce(field.default) == field.default
            field.check(field.default)


@pytest.mark.parametrize("command", ["run", "estimate", "register", "audit"])
def test_an_option_that_sets_a_field_says_so_in_its_words(command: str) -> None:
    parameters = typer.main.get_command(app).commands[command].params  # type: ignore[attr-defined]
    others = {"preset", "tuning"}  # the one is looked up, the other is a file
    sets = {one.name: one for one in parameters if one.name in FIELDS and one.name not in others}
    assert {"run": len(sets) >= 9, "register": "nodes" in sets}.get(command, True)
    for name, parameter in sets.items():
        assert parameter.help == FIELDS[name].help
        assert parameter.default is None
