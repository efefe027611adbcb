"""Files that stand for options: `run --config FILE`, and the user's own configuration.

A file of options is TOML. At its top stand options of `fourmin run`, spelled with underscores;
below `[configuration]` fields of the configuration, as `--set` takes them. What is given on the
command line goes over it. The user's own configuration, fourmin/config.toml below XDG_CONFIG_HOME
(~/.config), says who submits, and from which system, where nothing else does.
"""

from __future__ import annotations

import inspect
import json
import re
import typing
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import typer

from fourmin.base.errors import FourminError, list_names
from fourmin.base.files import read_given, user_folder
from fourmin.base.mishaps import told
from fourmin.base.toml import MALFORMED, tomllib
from fourmin.base.values import listed
from fourmin.recipe.configuration import FIELDS
from fourmin.recipe.settings import as_text, from_text, nearest

CONFIGURATION = "configuration"
USER_FILE = "config.toml"
USER_KEYS = {"submitter": str, "system": str}
NOT_IN_FILES = {"ctx", "config", "resume", "registered", "base", "campaign_file", "dry_run",
                "plan_format", "json_lines", "quiet", "help", "settings", "return"}  # fmt: skip
"""Parameters of `fourmin run` that no file stands for: which campaign, and how it is told."""
_WANTED = {
    str: "a text",
    int: "a whole number",
    bool: "true or false",
    list: "a list of texts",
    dict: "a table",
}


def read_options(path: Path, keys: Mapping[str, type]) -> dict[str, Any]:
    """What the file says, checked; fields of the configuration have their types.

    Raises FourminError, with the line, for what is no TOML, for an unknown key, or a value of
    another type or unit.
    """
    with told(f"cannot read the configuration {path}", kind=(OSError, *MALFORMED)):
        text = read_given(path).decode()
        document: dict[str, Any] = tomllib.loads(text)
    for name, value in document.items():
        _require_known(name, keys, path, text)
        kind = keys[name]
        texts = kind is not list or all(isinstance(one, str) for one in listed(value))
        if type(value) is not kind or not texts:
            place = _place(path, text, name)
            raise FourminError(f"{place}: {name} = {value!r} is not {_WANTED[kind]}")
    fields = document.get(CONFIGURATION, {})
    known = {name: field for name, field in FIELDS.items() if name not in ("preset", "benchmark")}
    for name, value in fields.items():
        _require_known(name, known, path, text, CONFIGURATION)
        try:
            fields[name] = from_text(name, value) if isinstance(value, str) else value
            FIELDS[name].coerce(fields[name])
        except FourminError as error:
            place = _place(path, text, name, CONFIGURATION)
            raise FourminError(f"{place}: {error.what}", error.why, error.next_step) from None
    return document


def run_keys(ctx: typer.Context) -> dict[str, type]:
    """What a file may say instead of options of the command, with its types."""
    keys: dict[str, type] = {CONFIGURATION: dict}
    callback: Any = ctx.command.callback
    for name, hint in typing.get_type_hints(inspect.unwrap(callback)).items():
        if name not in NOT_IN_FILES and (name == "preset" or name not in FIELDS):
            kinds = {typing.get_origin(one) or one for one in typing.get_args(hint) or (hint,)}
            keys[name] = next((kind for kind in (list, bool, int) if kind in kinds), str)
    return keys


def over_options(ctx: typer.Context, path: Path | None) -> Path | None:
    """The callback of `--config`: what the file says becomes the options' default."""
    if path is not None:
        told = read_options(path, run_keys(ctx))
        ctx.meta[CONFIGURATION] = told.pop(CONFIGURATION, {})
        ctx.default_map = told
    return path


def with_fields(ctx: typer.Context, settings: Sequence[str]) -> tuple[str, ...]:
    """`--set` options with the fields of the file in front that nothing else names."""
    options = field_options(ctx)
    named = {name for name, value in options.items() if value is not None}
    named |= {setting.partition("=")[0].strip() for setting in settings}
    fields = ctx.meta.get(CONFIGURATION, {}).items()
    rest = (f"{name}={as_text(value)}" for name, value in fields if name not in named)
    return (*rest, *settings)


def field_options(ctx: typer.Context) -> dict[str, Any]:
    """The fields of the configuration that have an option of their own, as they were given."""
    others = ("preset", "tuning")
    return {name: given for name, given in ctx.params.items() if name in FIELDS.keys() - others}


def user_options() -> dict[str, str]:
    """What the user's own configuration says. Raises FourminError as `read_options` does."""
    path = user_folder("XDG_CONFIG_HOME", ".config") / USER_FILE
    return read_options(path, USER_KEYS) if path.is_file() else {}


def toml_lines(ctx: typer.Context, configuration: Mapping[str, Any]) -> Iterator[str]:
    """A file of options: those of `fourmin run` that were given, and every field."""
    yield "# for: fourmin run --config FILE"
    given = ctx.params | {"preset": configuration["preset"]}
    for name in run_keys(ctx):
        value = given.get(name)
        # A number may be 0, and --no-trial says something.
        if value or type(value) is int or (name, value) == ("trial", False):
            yield f"{name} = {_toml(value)}"
    yield ""
    yield f"[{CONFIGURATION}]"
    for name, value in configuration.items():
        if value is not None and name not in ("preset", "benchmark"):
            yield f"{name} = {_toml(value)}"


def _toml(value: Any) -> str:
    # Texts, numbers, booleans and lists of them are written alike in both.
    return json.dumps(str(value) if isinstance(value, Path) else value, ensure_ascii=False)


def _require_known(
    name: str, keys: Mapping[str, Any], path: Path, text: str, table: str = ""
) -> None:
    if name in keys:
        return
    near = nearest(name, keys)
    if not near and CONFIGURATION in keys:
        near = [f"{field} below [{CONFIGURATION}]" for field in nearest(name, FIELDS)]
    raise FourminError(
        f"{_place(path, text, name, table)}: unknown key {name}",
        f"near: {', '.join(near)}" if near else f"known: {list_names([*keys])}",
        "`fourmin run --dry-run --format toml` writes such a file",
    )


def _place(path: Path, text: str, name: str, table: str = "") -> str:
    """The file and, where it can be found, the line of a key below a table's head."""
    lines = text.splitlines()
    heads = [n for n, line in enumerate(lines) if re.match(rf"\s*\[\s*{table}\s*\]", line)]
    start = heads[0] if table and heads else 0
    for number, line in enumerate(lines[start:], start + 1):
        if re.match(rf"""\s*\[?\s*["']?{re.escape(name)}["']?\s*[=.\]]""", line):
            return f"{path}:{number}"
    return str(path)
