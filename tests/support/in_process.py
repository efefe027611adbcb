"""`fourmin run` in this process, its options by the names of its parameters."""

from __future__ import annotations

from typing import Any

import typer

from fourmin.cli.main import app


def fourmin_run(**options: Any) -> None:
    """As the command line would call it with these options."""
    command = typer.main.get_command(app).commands["run"]  # type: ignore[attr-defined]
    with command.make_context("run", []) as context:
        context.params.update(options)
        command.invoke(context)
