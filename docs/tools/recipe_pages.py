"""Writes what is made from the fields of the configuration, the presets and the all-reduces.

`make docs` calls it: the configuration in the schemas of campaigns and
results, docs/configuration.md, and the tables of docs/presets.md and docs/allreduce.md.
"""

from __future__ import annotations

import json
import sys
import types
import typing
from collections.abc import Iterator
from dataclasses import MISSING
from pathlib import Path
from typing import Any

from marks import replace_between

from fourmin.base.files import rulesets_folder
from fourmin.recipe.allreduces import ALL_REDUCES
from fourmin.recipe.configuration import FIELDS
from fourmin.recipe.fields import Field
from fourmin.recipe.presets import PRESETS, describe_preset, load_preset
from fourmin.ruleset import CURRENT

_ROOT = Path(__file__).resolve().parents[2]
_MOST_ITEMS = 100
_LARGEST = 2**53 - 1
_PLAIN: dict[Any, dict[str, Any]] = {
    bool: {"type": "boolean"},
    int: {"type": "integer", "minimum": -_LARGEST, "maximum": _LARGEST},
    float: {"type": "number"},
}
_TYPES = {
    bool: "true or false",
    int: "integer",
    float: "number",
    str: "text",
    int | None: "integer or none",
    tuple[float, ...]: "numbers",
    tuple[str, ...]: "texts",
}
_CONFIGURATION = """\
# The configuration

Generated from the fields themselves by `make docs`; do not edit.

Everything that can change the outcome of a run is a field of the configuration, and is recorded in
campaign.json, in the event log and in result.json. A [preset](presets.md) states all of them,
`--set name=value` and some options of their own change one, and what cannot be is refused before
anything is registered. Several values are separated by commas: `--set pixel_mean=78,78,78`.

| field | type | bounds | unit | default | meaning |
|---|---|---|---|---|---|
"""


def configuration_schema() -> dict[str, Any]:
    """JSON Schema of a configuration: names, types, forms and choices.

    A number out of its bounds is left to rule HYP001, which says so in the words of `fourmin run`.
    """
    return {
        "type": "object",
        "properties": {
            name: {"description": field.meaning, **_schema(field, field.type)}
            for name, field in FIELDS.items()
        },
        "required": [name for name, field in FIELDS.items() if not field.later],
        "additionalProperties": False,
    }


def _schema(field: Field, declared: Any) -> dict[str, Any]:
    if isinstance(declared, types.UnionType):
        one = next(t for t in typing.get_args(declared) if t is not type(None))
        return {"anyOf": [_schema(field, one), {"type": "null"}]}
    if typing.get_origin(declared) is tuple:
        items = _schema(field, typing.get_args(declared)[0])
        return {"type": "array", "items": items, "maxItems": _MOST_ITEMS}
    if declared is str and field.choices:
        return {"type": "string", "enum": list(field.choices)}
    return _PLAIN.get(declared, {"type": "string", "pattern": field.pattern})


def _row(field: Field) -> str:
    """A field's line in the table of docs/configuration.md."""
    bounds = ", ".join(f"`{choice}`" for choice in field.choices) or field.bounds
    if field.items is not None:
        bounds = f"{field.items} values" + (f", each {bounds}" if bounds else "")
    default = "the preset's" if field.default is MISSING else f"`{json.dumps(field.default)}`"
    cells = (f"`{field.name}`", _TYPES[field.type], bounds, field.unit, default, field.meaning)
    return f"| {' | '.join(cells)} |\n"


def _presets() -> Iterator[str]:
    """The lines of the table of docs/presets.md."""
    yield "\n| preset | benchmark | global batch | workers | images a worker | what it is |\n"
    yield "|---|---|---|---|---|---|\n"
    for name in PRESETS:
        preset = load_preset(name)
        nodes = f"{preset.nodes} nodes of " if preset.nodes > 1 else ""
        yield (
            f"| `{name}` | {preset.benchmark} | {preset.global_batch_size:,} "
            f"| {nodes}{preset.procs_per_node} | {preset.local_batch_size:,} "
            f"| {describe_preset(name)[0]} |\n"
        )
    yield "\n"


def _all_reduces() -> Iterator[str]:
    """The lines of the table of docs/allreduce.md."""
    yield "\n| name | what it does | cost |\n|---|---|---|\n"
    for entry in ALL_REDUCES.values():
        yield f"| `{entry.name}` | {entry.meaning} | {entry.formula} |\n"
    yield "\n"


def generated() -> dict[Path, str]:
    """The files that are made here, with what they should hold."""
    made = {}
    for name in ("campaign", "result"):
        path = rulesets_folder() / CURRENT / "schemas" / f"{name}.schema.json"
        schema = json.loads(path.read_text())
        schema["$defs"]["configuration"] = configuration_schema()
        made[path] = json.dumps(schema, indent=1) + "\n"
    made[_ROOT / "docs" / "configuration.md"] = _CONFIGURATION + "".join(map(_row, FIELDS.values()))
    for name, lines in (("presets", _presets()), ("allreduce", _all_reduces())):
        page = _ROOT / "docs" / f"{name}.md"
        begin, end = f"<!-- {name}: written by `make docs` -->\n", f"<!-- end of {name} -->\n"
        made[page] = replace_between(page.read_text(), begin, end, "".join(lines))
    return made


def main() -> None:
    for path, text in generated().items():
        path.write_text(text)
        sys.stdout.write(f"{path}\n")


if __name__ == "__main__":
    main()
