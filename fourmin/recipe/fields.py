"""What a field of the configuration is: type, bounds, unit and meaning, stated beside it.

A field is declared as `name: Annotated[type, Field("Its meaning.", minimum=1)] = default`. Values
are checked by it, options of the command line take their help from it, and `make docs` writes
schemas and documentation from it.
"""

from __future__ import annotations

import dataclasses
import operator
import types
import typing
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any

from fourmin.base.canonical import MAX_INTEGER
from fourmin.base.errors import FourminError, unknown

AUTO = "auto"
"""What a preset or an option says where the machine or a cost model decides."""


def is_auto(value: object) -> bool:
    """Whether a field still says AUTO, whatever its type."""
    return value == AUTO


NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$(?!\n)"
_BOUNDS = (
    ("minimum", operator.ge, "at least"),
    ("above", operator.gt, "greater than"),
    ("maximum", operator.le, "at most"),
    ("below", operator.lt, "less than"),
)


@dataclass(frozen=True)
class Field:
    """One field; name, type and default are those of the class that declares it."""

    meaning: str
    """One sentence."""
    _: KW_ONLY
    unit: str = ""
    choices: tuple[str, ...] = ()
    """The values of a field with named ones."""
    minimum: float | None = None
    above: float | None = None
    maximum: float | None = None
    below: float | None = None
    items: int | None = None
    """How many values a field of several has; bounds are those of each."""
    pattern: str = NAME
    """The form of a text without choices, as a regular expression of JSON Schema."""
    later: bool = False
    """Added after the first submissions: a campaign that lacks it was run with its default."""
    auto: bool = False
    """Whether a number may be asked for as AUTO, which planning replaces."""
    name: str = ""
    type: Any = None
    default: Any = None

    @property
    def bounds(self) -> str:
        """The bounds in words, empty where there are none."""
        stated = [(words, getattr(self, name)) for name, _, words in _BOUNDS]
        return " and ".join(f"{words} {bound}" for words, bound in stated if bound is not None)

    @property
    def help(self) -> str:
        if not self.choices:
            return self.meaning
        *others, last = self.choices
        return f"{self.meaning.rstrip('.')}: {', '.join(others)} or {last}."

    def coerce(self, value: Any) -> Any:
        """`value` as the field's type; JSON does not tell 16 from 16.0.

        Raises FourminError where that would lose something.
        """
        declared = self.type
        if self.auto and value == AUTO:
            return value
        if isinstance(declared, types.UnionType):
            if value is None:
                return None
            declared = next(t for t in typing.get_args(declared) if t is not type(None))
        result: Any = _as_type(declared, value)
        if result is None:
            wanted = getattr(declared, "__name__", str(declared))
            far = type(value) is declared
            raise FourminError(
                f"{self.name}={value!r} is {'out of range' if far else f'not of type {wanted}'}"
            )
        return result

    def check(self, value: Any) -> None:
        """Raise FourminError unless `value`, of the field's type, keeps choices and bounds."""
        if self.choices and value not in self.choices:
            raise unknown(f"{self.name}={value!r} is not known", str(value), self.choices)
        if value is None:
            return
        if self.auto and value == AUTO:
            raise FourminError(
                f"{self.name}={AUTO} was not resolved", next_step=f"--set {self.name}=N"
            )
        values = value if isinstance(value, tuple) else (value,)
        if self.items not in (None, len(values)):
            raise FourminError(f"{self.name} takes {self.items} values, not {len(values)}")
        for name, holds, _ in _BOUNDS:
            bound = getattr(self, name)
            if bound is not None and not all(holds(one, bound) for one in values):
                raise FourminError(f"{self.name} must be {self.bounds}, not {value}")


later = partial(Field, later=True)
"""One that was added after the first submissions."""


def fields_of(declaring: type) -> dict[str, Field]:
    """The fields of a dataclass whose annotations carry a `Field` each, in their order.

    Those that a base class declares are for some recipes only, and come last.
    """
    hints = typing.get_type_hints(declaring, include_extras=True)
    described = {}
    own = declaring.__annotations__
    for one in sorted(dataclasses.fields(declaring), key=lambda one: one.name not in own):
        declared, field = typing.get_args(hints[one.name])
        described[one.name] = dataclasses.replace(
            field, name=one.name, type=declared, default=one.default
        )
    return described


def _as_type(declared: Any, value: Any) -> Any:
    """`value` as `declared`, or None where that would lose something."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    # Neither NaN, nor infinite, nor so large that what is counted from it has no number.
    number = number and abs(value) <= MAX_INTEGER
    if declared is float:
        return float(value) if number else None
    if declared is int:
        exact = number and value == int(value)
        return int(value) if exact else None
    if declared is bool or declared is str:
        return value if isinstance(value, declared) else None
    if isinstance(value, (list, tuple)):
        items = [_as_type(typing.get_args(declared)[0], item) for item in value]
        return None if None in items else tuple(items)
    return None
