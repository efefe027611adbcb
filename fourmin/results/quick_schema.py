"""JSON Schema's plain keywords as functions, for many small values that are nearly all valid."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

Check = Callable[[Any], bool]
Schema = Mapping[str, Any]

_KEYWORDS = {
    "integer": {"type", "minimum", "maximum"},
    "string": {"type", "maxLength", "pattern"},
    "array": {"type", "items", "minItems", "maxItems", "uniqueItems"},
    "object": {"type", "properties", "required", "additionalProperties"},
    "enum": {"enum"},
}


def quick_check(schema: Schema, parts: Schema) -> Check:
    """A function that is true only of valid values; one that is false has the validator decide.

    `parts` are the `$defs`. Of a schema with any other keyword it is always false.
    """
    try:
        return _compile(schema, parts)
    except KeyError:
        return lambda _: False


def _compile(schema: Schema, parts: Schema) -> Check:
    """Raises KeyError for what is not plain."""
    if "$ref" in schema:
        (reference,) = schema.values()
        return _compile(parts[reference.removeprefix("#/$defs/")], parts)
    kind = schema.get("type", "enum")
    if not schema.keys() <= _KEYWORDS[kind]:
        raise KeyError(kind)
    makers = {"integer": _integer, "string": _string, "array": _array, "object": _object}
    return makers[kind](schema, parts) if kind in makers else _enum(schema)


def _integer(schema: Schema, _: Schema) -> Check:
    low, high = schema.get("minimum", -math.inf), schema.get("maximum", math.inf)
    return lambda value: type(value) is int and low <= value <= high


def _string(schema: Schema, _: Schema) -> Check:
    longest, found = schema.get("maxLength", math.inf), re.compile(schema.get("pattern", "")).search
    return lambda value: type(value) is str and len(value) <= longest and found(value) is not None


def _enum(schema: Schema) -> Check:
    allowed = set(schema["enum"])
    if not all(isinstance(one, str) for one in allowed):
        raise KeyError("enum")  # JSON's true is no 1, Python's is
    return lambda value: type(value) is str and value in allowed


def _array(schema: Schema, parts: Schema) -> Check:
    item = _compile(schema["items"], parts)
    least, most = schema.get("minItems", 0), schema.get("maxItems", math.inf)
    if schema.get("uniqueItems") and schema["items"].get("type") != "integer":
        raise KeyError("uniqueItems")

    def check(value: Any) -> bool:
        if type(value) is not list or not least <= len(value) <= most:
            return False
        return all(map(item, value)) and (
            not schema.get("uniqueItems") or len(set(value)) == len(value)
        )

    return check


def _object(schema: Schema, parts: Schema) -> Check:
    if schema["additionalProperties"] is not False:
        raise KeyError("additionalProperties")
    fields = {name: _compile(one, parts) for name, one in schema["properties"].items()}
    required = set(schema.get("required", ()))

    def check(value: Any) -> bool:
        if type(value) is not dict or not required <= value.keys() <= fields.keys():
            return False
        return all(fields[name](one) for name, one in value.items())

    return check
