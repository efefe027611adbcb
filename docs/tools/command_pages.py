"""Writes docs/commands.md: what `--help` says of every command."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
from typer.testing import CliRunner

from fourmin.cli.main import app

PAGE = Path(__file__).resolve().parents[1] / "commands.md"
COLUMNS = "100"
HEAD = """# Commands

What `fourmin COMMAND --help` says, written by `make docs`. Exit codes are in the
[README](../README.md#what-a-run-leaves).
"""


def page() -> str:
    commands = sorted(_commands(typer.main.get_command(app), ()))
    return "\n".join([HEAD, *map(_section, commands)])


def _commands(group: Any, above: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for name, command in group.commands.items():
        words = (*above, name)
        if hasattr(command, "commands"):
            yield from _commands(command, words)
        else:
            yield words


def _section(words: tuple[str, ...]) -> str:
    result = CliRunner().invoke(
        app, [*words, "--help"], env={"COLUMNS": COLUMNS, "TERM": "dumb"}, prog_name="fourmin"
    )
    assert result.exit_code == 0, result.output
    text = "\n".join(line.rstrip() for line in result.output.strip().splitlines())
    return f"## fourmin {' '.join(words)}\n\n```\n{text}\n```\n"


if __name__ == "__main__":
    PAGE.write_text(page())
