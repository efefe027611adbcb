"""JSON Schema's plain keywords as functions, for the many values that are nearly all valid."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

Check = Callable[[Any], bool]
Schema = Mapping[str, Any]

_TYPES: dict[str, tuple[type, ...]] = {
    "integer": (int,),
    "number": (int, float),
    "string": (str,),
    "boolean": (bool,),
    "null": (type(None),),
    "array": (list,),
    "object": (dict,),
}
_SAYS_NOTHING = {"$schema", "$id", "$defs", "title", "description"}
_BOUNDS = {"minimum", "maximum", "exclusiveMinimum"}
_LENGTHS: dict[str, type[Any]] = {
    "minLength": str, "maxLength": str, "minItems": list, "maxItems": list, "maxProperties": dict
}  # fmt: skip


def quick_check(schema: Schema, parts: Schema) -> Check:
    """A function that is true only of valid values; one that is false has the validator decide.

    `parts` are the `$defs`. Of a schema with any other keyword it is always false.
    """
    try:
        return _compile(schema, parts)
    except KeyError:
        return lambda _: False


def _compile(schema: Schema | bool, parts: Schema) -> Check:
    """Raises KeyError for what is not plain."""
    if isinstance(schema, bool):
        return lambda _: schema
    checks = []
    for name, wanted in schema.items():
        if name in _LENGTHS:
            checks.append(_length(name, wanted))
        elif name in _BOUNDS:
            checks.append(_bound(name, wanted))
        elif name not in _SAYS_NOTHING:
            made = _KEYWORDS[name](wanted, schema, parts)
            checks.extend([made] if made else [])
    return checks[0] if len(checks) == 1 else lambda value: all(check(value) for check in checks)


def _ref(wanted: str, _: Schema, parts: Schema) -> Check:
    return _compile(parts[wanted.removeprefix("#/$defs/")], parts)


def _type(wanted: str | list[str], _: Schema, __: Schema) -> Check:
    names = [wanted] if isinstance(wanted, str) else wanted
    types = frozenset(one for name in names for one in _TYPES[name])
    return lambda value: type(value) in types


def _enum(wanted: list[Any], _: Schema, __: Schema) -> Check:
    allowed = {(type(one), one) for one in wanted if isinstance(one, (str, int))}
    if len(allowed) < len(wanted):
        raise KeyError("enum")
    # JSON's true is no 1, Python's is.
    return lambda value: type(value) in (str, int, bool) and (type(value), value) in allowed


def _bound(name: str, wanted: float) -> Check:
    if name == "maximum":
        return lambda value: not _is_number(value) or value <= wanted
    if name == "minimum":
        return lambda value: not _is_number(value) or value >= wanted
    return lambda value: not _is_number(value) or value > wanted


def _is_number(value: Any) -> bool:
    return type(value) in (int, float)


def _length(name: str, wanted: int) -> Check:
    kind = _LENGTHS[name]
    if name.startswith("min"):
        return lambda value: not isinstance(value, kind) or len(value) >= wanted
    return lambda value: not isinstance(value, kind) or len(value) <= wanted


def _pattern(wanted: str, _: Schema, __: Schema) -> Check:
    found = re.compile(wanted).search
    return lambda value: type(value) is not str or found(value) is not None


def _items(wanted: Schema, _: Schema, parts: Schema) -> Check:
    item = _compile(wanted, parts)
    return lambda value: type(value) is not list or all(map(item, value))


def _prefix(wanted: list[Schema], schema: Schema, parts: Schema) -> Check:
    if "items" in schema:
        raise KeyError("prefixItems")
    checks = [_compile(one, parts) for one in wanted]
    return lambda value: (
        type(value) is not list
        or all(check(one) for check, one in zip(checks, value, strict=False))
    )


def _unique(wanted: bool, _: Schema, __: Schema) -> Check:
    if wanted is not True:
        raise KeyError("uniqueItems")
    return lambda value: (
        type(value) is not list
        or (all(type(one) in (int, str) for one in value) and len(set(value)) == len(value))
    )


def _required(wanted: list[str], _: Schema, __: Schema) -> Check:
    names = set(wanted)
    return lambda value: type(value) is not dict or names <= value.keys()


def _properties(wanted: Schema, schema: Schema, parts: Schema) -> Check:
    fields = {name: _compile(one, parts) for name, one in wanted.items()}
    other = _compile(schema.get("additionalProperties", True), parts)

    def check(value: Any) -> bool:
        return type(value) is not dict or all(
            fields.get(name, other)(one) for name, one in value.items()
        )

    return check


def _additional(_: Any, schema: Schema, parts: Schema) -> Check | None:
    """With `properties` that has looked at the others as well."""
    return None if "properties" in schema else _properties({}, schema, parts)


def _names(wanted: Schema, _: Schema, parts: Schema) -> Check:
    name = _compile(wanted, parts)
    return lambda value: type(value) is not dict or all(map(name, value))


def _any(wanted: list[Schema], _: Schema, parts: Schema) -> Check:
    checks = [_compile(one, parts) for one in wanted]
    return lambda value: any(check(value) for check in checks)


def _then(wanted: Schema, schema: Schema, parts: Schema) -> Check:
    """Of conditions only that one field is a certain text: others may be met unnoticed."""
    (name, said), *more = schema["if"]["properties"].items()
    if more or len(schema["if"]) > 1 or said.keys() != {"const"} or type(said["const"]) is not str:
        raise KeyError("if")
    text, then = said["const"], _compile(wanted, parts)
    return lambda value: (type(value) is dict and value.get(name, text) != text) or then(value)


_KEYWORDS: dict[str, Callable[[Any, Schema, Schema], Check | None]] = {
    "$ref": _ref,
    "type": _type,
    "enum": _enum,
    "const": lambda wanted, schema, parts: _enum([wanted], schema, parts),
    "pattern": _pattern,
    "items": _items,
    "prefixItems": _prefix,
    "uniqueItems": _unique,
    "required": _required,
    "properties": _properties,
    "additionalProperties": _additional,
    "propertyNames": _names,
    "anyOf": _any,
    "if": lambda wanted, schema, parts: None,
    "then": _then,
}
