"""The quick check against the validator that it stands for."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from jsonschema.validators import extend

from fourmin.results.quick_schema import quick_check
from fourmin.ruleset import load_ruleset

PARTS: dict[str, Any] = dict(load_ruleset().schema("ledger")["$defs"])
KINDS = sorted(set(PARTS) - {"digest"})
# 1.0 is no integer here, as for every schema of a ruleset.
_CHECKER = Draft202012Validator.TYPE_CHECKER.redefine("integer", lambda _, v: type(v) is int)
STRICT: Any = extend(Draft202012Validator, type_checker=_CHECKER)
ODD = st.sampled_from(
    [None, True, 0, -1, 1, 1.0, 1000, 1001, 2**32, 2**53, "", "ab" * 32, "ab" * 32 + "\n", "AB",
     "self", "aborted", [], [1], [1, 1], [True, 1], ["1"], {}, {"run": 1}]
)  # fmt: skip


def _verdicts(schema: Any, value: Any) -> tuple[bool, bool]:
    full = {**schema, "$defs": PARTS}
    return quick_check(schema, PARTS)(value), STRICT(full).is_valid(value)


def _good(part: Any) -> Any:
    """A value that is valid by a plain schema."""
    if "$ref" in part:
        return "ab" * 32
    if "enum" in part:
        return part["enum"][0]
    kind = part["type"]
    if kind == "array":
        return [1]
    if kind == "string":
        return "cd" * 32
    return part.get("minimum", 1) if kind == "integer" else {}


@pytest.mark.parametrize("kind", KINDS)
def test_every_record_of_a_ledger_has_one(kind: str) -> None:
    whole = {name: _good(part) for name, part in PARTS[kind]["properties"].items()}
    assert _verdicts(PARTS[kind], whole) == (True, True)


@given(data=st.data())
def test_it_says_what_the_validator_says(data: st.DataObject) -> None:
    schema = PARTS[data.draw(st.sampled_from(KINDS))]
    value = {name: _good(part) for name, part in schema["properties"].items()}
    for name in data.draw(st.lists(st.sampled_from([*value, "more"]), max_size=2)):
        if data.draw(st.booleans()):
            value.pop(name, None)
        else:
            value[name] = data.draw(ODD)
    quick, valid = _verdicts(schema, value)
    assert quick == valid


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "integer", "multipleOf": 2},
        {"enum": [1, "a"]},
        {"type": "object", "properties": {}},
        {"type": "array", "items": {"type": "string"}, "uniqueItems": True},
        {"anyOf": [{"type": "string"}]},
        {"type": "number"},
    ],
)
def test_of_other_keywords_it_knows_nothing(schema: Any) -> None:
    for value in (1, "a", True, [], {}, ["a", "a"]):
        assert not quick_check(schema, PARTS)(value)
