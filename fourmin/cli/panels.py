"""How `--help` looks: options in groups, whole sentences, examples; and `-h` for it everywhere."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from fourmin.base.text import folded
from fourmin.base.toml import tomllib

EXAMPLES = Path(__file__).with_name("examples.toml")

_TYPE = re.compile(r" <(?:list\[)?(int|float|str|path)(?: range)?\]?>", re.IGNORECASE)
_WORDS = {"int": "N", "float": "X", "str": "TEXT", "path": "PATH"}
"""What is shown in place of a type as typer names it; an argument has its own name."""
MOST_COLUMN = 30
"""Where what an option means begins at the latest."""


class Command(TyperCommand):
    """Shows options under their panels' names, those without one last."""

    def format_help_text(self, ctx: Any, formatter: Any) -> None:
        for paragraph in inspect.cleandoc(self.help or "").split("\n\n"):
            formatter.write("\n" + _fold(formatter, "  " + " ".join(paragraph.split()), 2))

    def format_options(self, ctx: Any, formatter: Any) -> None:
        panels: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None:
                option = param.param_type_name == "option"
                usual = "Options" if option else "Arguments"
                title = getattr(param, "rich_help_panel", None) or usual
                name = _TYPE.sub(_word if option else "", record[0])
                panels.setdefault(title, []).append((name, record[1]))
        for title in sorted(panels, key=lambda title: title == "Options"):
            _list(formatter, title, panels[title])

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        examples = tomllib.loads(EXAMPLES.read_text()).get(ctx.command_path.partition(" ")[2])
        if examples:
            formatter.write("\nExamples:\n" + textwrap.indent(examples, "  "))


class Group(TyperGroup):
    """Says the whole first sentence of each command."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        told = [(name, one.get_short_help_str(1000)) for name, one in self.commands.items()]
        _list(formatter, "Commands", told)


def _word(shown: re.Match[str]) -> str:
    return f" {_WORDS[shown[1].lower()]}"


def _list(formatter: Any, title: str, records: Sequence[tuple[str, str]]) -> None:
    """A heading, and names with what they mean beside or, of a long one, below."""
    column = min(MOST_COLUMN, max(len(name) for name, _ in records) + 4)
    formatter.write(f"\n{title}:\n")
    for name, text in records:
        line = f"  {name:<{column - 2}}"
        if len(line) > column:
            formatter.write(f"{line}\n")
            line = " " * column
        formatter.write(_fold(formatter, line + text, column))


def _fold(formatter: Any, line: str, hang: int) -> str:
    return folded(line.rstrip(), formatter.width, hang) + "\n"


class App(typer.Typer):
    """A group of such commands."""

    def __init__(self, **how: Any) -> None:
        usual: dict[str, Any] = {"cls": Group, "no_args_is_help": True, "rich_markup_mode": None}
        names = {"help_option_names": ["-h", "--help"]}
        super().__init__(**usual | {"context_settings": names} | how)

    def command(self, name: str | None = None, **how: Any) -> Callable[[Any], Any]:
        return super().command(name, **{"cls": Command} | how)
