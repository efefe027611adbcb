"""The quick check against the validator that it stands for."""

from __future__ import annotations

import json
from typing import Any

import pytest
from campaign_factory import make_campaign, system_description
from hypothesis import given, settings
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


STORIES: list[dict[str, Any]] = [
    {},
    {"not_converged": [2], "aborted": [3], "restarts": [(1, 4)], "configuration": {"nodes": 2}},
    {"benchmark": "resnet50", "epochs": 36, "joules": [1.0] * 5, "practice": True, "runs": 5},
]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, Any]]:
    """What campaigns leave, each with the name of its schema."""
    found: list[tuple[str, Any]] = [("system", system_description())]
    for number, story in enumerate(STORIES):
        folder = make_campaign(tmp_path_factory.mktemp(f"campaign-{number}"), **story)
        for path in sorted(folder.rglob("*.json")):
            found.append((path.stem, json.loads(path.read_bytes())))
    return found


def test_what_campaigns_leave_passes_without_the_validator(files: list[tuple[str, Any]]) -> None:
    assert {name for name, _ in files} == {"system", "campaign", "result", "summary"}
    for name, value in files:
        schema = load_ruleset().schema(name)
        assert quick_check(schema, schema.get("$defs", {}))(value), name


@settings(max_examples=100)
@given(data=st.data())
def test_it_lets_nothing_pass_that_the_validator_refuses(
    files: list[tuple[str, Any]], data: st.DataObject
) -> None:
    """Values of any kind at any place in a real file, or fields taken away and added."""
    name, value = data.draw(st.sampled_from(files))
    schema = load_ruleset().schema(name)
    value = holder = json.loads(json.dumps(value))
    place: Any = data.draw(st.sampled_from(sorted(value)))
    while isinstance(holder[place], (dict, list)) and holder[place] and data.draw(st.booleans()):
        holder = holder[place]
        places = list(holder) if isinstance(holder, dict) else range(len(holder))
        place = data.draw(st.sampled_from(places))
    if data.draw(st.booleans()):
        holder[place] = data.draw(ODD | st.sampled_from([0.5, -1e300, "x" * 5000, {"A": 1}]))
    elif isinstance(holder, dict):
        holder[data.draw(st.sampled_from(["more", "status", place]))] = holder.pop(place)
    assert STRICT(schema).is_valid(value) or not quick_check(schema, schema.get("$defs", {}))(value)


PLAIN = [
    {"type": ["integer", "null"], "minimum": 1, "maximum": 1000},
    {"minimum": 1}, {"exclusiveMinimum": 1}, {"maxLength": 1}, {"minLength": 1}, {"minItems": 1},
    {"pattern": "^a"}, {"enum": [1, "self", True]}, {"const": 1}, {"type": "number"},
    {"items": {"type": "integer"}, "uniqueItems": True}, {"prefixItems": [{"type": "string"}]},
    {"properties": {"run": {"type": "string"}}}, {"additionalProperties": False},
    {"required": ["run"]}, {"propertyNames": {"pattern": "^a"}}, {"maxProperties": 0},
    {"anyOf": [{"type": "array"}, {"const": "self"}]}, {"type": "object", "properties": {}},
    {"properties": {"run": {"type": "integer"}}, "additionalProperties": {"type": "null"}},
    {"if": {"properties": {"run": {"const": "a"}}}, "then": {"required": ["more"]}},
]  # fmt: skip


@pytest.mark.parametrize("schema", PLAIN)
@settings(max_examples=30)
@given(value=ODD | st.dictionaries(st.sampled_from(["run", "a", "more"]), ODD))
def test_each_keyword_says_no_more_than_the_validators(schema: Any, value: Any) -> None:
    quick, valid = _verdicts(schema, value)
    assert valid or not quick


@pytest.mark.parametrize(("schema", "good", "bad"), [
    ({"minimum": 1}, 1, 0.5), ({"exclusiveMinimum": 1}, 1.5, 1), ({"maximum": 1}, 1, 2),
    ({"maxLength": 1}, "a", "ab"), ({"minLength": 1}, "a", ""), ({"minItems": 1}, [1], []),
    ({"maxProperties": 0}, {}, {"a": 1}), ({"const": 1}, 1, True), ({"type": "number"}, 1.0, True),
    ({"additionalProperties": False}, {}, {"a": 1}), ({"prefixItems": [{"const": 1}]}, [1, 2], [2]),
    ({"if": {"properties": {"a": {"const": "b"}}}, "then": {"required": ["c"]}}, {"a": 1}, {}),
    ({"anyOf": [{"const": 1}, {"const": "a"}]}, "a", "b"),
    ({"uniqueItems": True}, [1, "1"], [1, 1]),
])  # fmt: skip
def test_each_keyword_by_hand(schema: Any, good: Any, bad: Any) -> None:
    assert _verdicts(schema, good) == (True, True)
    assert _verdicts(schema, bad) == (False, False)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "integer", "multipleOf": 2},
        {"enum": [None, "a"]},
        {"type": "array", "items": {"type": "string"}, "uniqueItems": False},
        {"oneOf": [{"type": "string"}]},
        {"not": {"type": "string"}},
        {"patternProperties": {"a": {"type": "string"}}},
        {"prefixItems": [], "items": {"type": "string"}},
        {"if": {"properties": {"a": {"const": 1}}}, "then": {"required": ["a"]}},
        {"if": {"required": ["a"]}, "then": {"required": ["b"]}},
        {"then": {"required": ["a"]}},
        {"if": {"properties": {"a": {"const": "b"}}}, "else": {"required": ["a"]}},
    ],
)
def test_of_other_keywords_it_knows_nothing(schema: Any) -> None:
    for value in (1, "a", True, [], {}, ["a", "a"]):
        assert not quick_check(schema, PARTS)(value)
