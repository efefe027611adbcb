"""The command `fourmin` and its sub-commands; `start` is how it begins and ends."""

from __future__ import annotations

from typing import Annotated

import typer

from fourmin import __version__
from fourmin.cli import (
    audit_command,
    bench_command,
    campaign_commands,
    data_command,
    doctor_command,
    estimate_command,
    presets_command,
    report_command,
    rules_command,
    run_command,
    validate_command,
)
from fourmin.cli.panels import App
from fourmin.cli.start import run

app = App(
    name="fourmin",
    help="Measure time to train to a fixed accuracy, and leave a result that can be checked.",
    pretty_exceptions_enable=False,
)
app.command("run")(run_command.run)
app.command("validate")(validate_command.validate)
app.command("report")(report_command.report)
app.command("presets")(presets_command.presets)
app.command("rules")(rules_command.rules)
app.command("register")(campaign_commands.register)
app.command("abandon")(campaign_commands.abandon)
app.command("submit")(campaign_commands.submit)
app.command("audit")(audit_command.audit)
app.command("prove")(audit_command.prove)
app.command("doctor")(doctor_command.doctor)
app.command("estimate")(estimate_command.estimate)
app.add_typer(data_command.app, name="data")
app.add_typer(bench_command.app, name="bench")


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"fourmin {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", "-V", callback=_version, is_eager=True, help="Say which version."
        ),
    ] = False,
) -> None:
    """Measure time to train to a fixed accuracy, and leave a result that can be checked."""


def main() -> None:
    """Run the command line; `fourmin.__main__` is quicker to take signals."""
    run(app)
