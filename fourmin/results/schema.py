"""JSON Schemas of a ruleset, applied to somebody else's values."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Any

from fourmin.ruleset import load_ruleset

if TYPE_CHECKING:
    from jsonschema.protocols import Validator

MOST_ERRORS = 10
"""How many errors of one value are told."""
_MOST_MESSAGE = 200


@dataclass(frozen=True)
class SchemaError:
    """Where a value is not what its schema asks for (a JSON pointer, empty for all), and why."""

    pointer: str
    message: str

    def __str__(self) -> str:
        return f"{self.pointer}: {self.message}" if self.pointer else self.message


def schema_errors(ruleset: str, name: str, value: Any, part: str = "") -> list[SchemaError]:
    """What is wrong with `value` by the schema `name` of a ruleset, or by `part` of its `$defs`.

    Empty when it is valid. Unlike JSON Schema's own reading, 1.0 is no integer here: other readers
    tell them apart. Raises FourminError for an unknown ruleset.
    """
    found: Iterable[Any] = _validator(ruleset, name, part).iter_errors(value)
    return [
        SchemaError(_pointer(error.absolute_path), _message(error))
        for error in islice(found, MOST_ERRORS)
    ]


@cache
def _validator(ruleset: str, name: str, part: str) -> Validator:
    # Imported here because it takes longer than everything else that `--help` needs.
    from jsonschema import Draft202012Validator, ValidationError
    from jsonschema.validators import extend

    def unique(_: Any, wanted: bool, items: Any, __: Any) -> Iterator[ValidationError]:
        # In linear time: jsonschema's own compares each object with all others.
        told = items if wanted and isinstance(items, list) else []
        if len({json.dumps(item, sort_keys=True) for item in told}) < len(told):
            yield ValidationError(f"{_short(items)} has non-unique elements")

    checker = Draft202012Validator.TYPE_CHECKER.redefine(
        "integer", lambda _, value: type(value) is int
    )
    known = Draft202012Validator.VALIDATORS
    keywords = {
        "uniqueItems": _unless_too_many(unique, "maxItems"),
        "items": _unless_too_many(known["items"], "maxItems"),
        "additionalProperties": _unless_too_many(known["additionalProperties"], "maxProperties"),
    }
    strict: Any = extend(  # type: ignore[no-untyped-call]
        Draft202012Validator, keywords, type_checker=checker
    )
    schema = load_ruleset(ruleset).schema(name)
    if part:
        schema = {"$ref": f"#/$defs/{part}", "$defs": schema["$defs"]}
    validator: Validator = strict(schema)
    return validator


def _unless_too_many(look: Callable[..., Any], limit: str) -> Callable[..., Iterator[Any]]:
    """A keyword that looks into no value with more in it than `limit` of its schema allows: that
    alone is said of it.
    """

    def keyword(validator: Any, wanted: Any, value: Any, schema: Any) -> Iterator[Any]:
        if not (isinstance(value, (list, dict)) and len(value) > schema.get(limit, len(value))):
            yield from look(validator, wanted, value, schema) or ()

    return keyword


def _pointer(path: Iterable[str | int]) -> str:
    return "".join(f"/{str(part).replace('~', '~0').replace('/', '~1')}" for part in path)


def _message(error: Any) -> str:
    if error.validator == "anyOf":
        message = f"{_short(error.instance)} is none of what is allowed here"
    elif error.validator == "pattern":
        message = f"{_short(error.instance)} has not the form that is asked for"
    else:
        message = str(error.message)
    return message if len(message) <= _MOST_MESSAGE else message[: _MOST_MESSAGE - 1] + "…"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:79] + "…"
