"""`--set name=value`: the type of each field, and what is said where it cannot be."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fourmin.base.errors import FourminError
from fourmin.recipe.configuration import FIELDS
from fourmin.recipe.settings import parse_settings


def test_settings_take_the_type_of_their_field() -> None:
    assert parse_settings(
        ["global_batch_size=128", "base_learning_rate=8", "nesterov=true", "pixel_mean=1,2,3",
         "max_steps=none", "model=resnet20", "decay_milestones=[30,60]"]
    ) == {
        "global_batch_size": 128,
        "base_learning_rate": 8.0,
        "nesterov": True,
        "pixel_mean": (1.0, 2.0, 3.0),
        "max_steps": None,
        "model": "resnet20",
        "decay_milestones": (30.0, 60.0),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("learning_rate=3", "unknown --set key 'learning_rate'"),
        ("global_batch_size", "has no value"),
        ("global_batch_size=many", "not of type int"),
        ("global_batch_size=64.5", "not of type int"),
        ("nesterov=1", "not of type bool"),
        ("base_learning_rate=nan", "not of type float"),
        ("base_learning_rate=1e999", "out of range"),
        ("nodes=1e999", "not of type int"),
        (f"nodes={2**53}", "nodes=9007199254740992 is out of range"),
        (f"base_learning_rate=1{400 * '0'}", "not of type float"),
        ("pixel_mean=1,2,red", "not of type"),
        ("preset=digits", "unknown --set key 'preset'"),
        ("=3", "unknown --set key ''"),
    ],
)
def test_a_setting_that_cannot_be_is_named(setting: str, message: str) -> None:
    with pytest.raises(FourminError, match=message) as caught:
        parse_settings([setting])
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("learning_rate", "end_learning_rate, base_learning_rate"),
        ("momentun", "momentum"),
        ("weigth_decay", "weight_decay"),
        ("lars-eta", "lars_eta"),
        ("Momentum", "momentum"),
        ("batch", "global_batch_size"),
    ],
)
def test_an_unknown_key_is_answered_with_the_near_ones_alone(typed: str, meant: str) -> None:
    with pytest.raises(FourminError) as caught:
        parse_settings([f"{typed}=3"])
    assert caught.value.why.startswith(f"near: {meant}")
    assert "fourmin presets" in caught.value.next_step
    assert "known keys" not in str(caught.value)


def test_a_key_that_is_near_to_none_is_answered_with_all() -> None:
    with pytest.raises(FourminError) as caught:
        parse_settings(["zzzz=3"])
    known = set(FIELDS) - {"preset", "benchmark"}
    assert set(caught.value.next_step.removeprefix("known keys: ").split(", ")) == known


def test_the_preset_is_no_setting() -> None:
    with pytest.raises(FourminError, match="--preset"):
        parse_settings(["preset=digits"])


def test_a_repeated_setting_is_refused() -> None:
    with pytest.raises(FourminError, match="given twice"):
        parse_settings(["threads=1", "threads=2"])


@given(st.text(max_size=30))
def test_no_text_after_set_raises_anything_but_a_named_error(text: str) -> None:
    with suppress(FourminError):
        parse_settings([text])
