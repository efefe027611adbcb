"""`fourmin presets`: what can be trained, and with which settings."""

from __future__ import annotations

from typing import Annotated

import typer


def presets(
    name: Annotated[str | None, typer.Argument(help="A preset; all are listed without.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON on standard output.")] = False,
) -> None:
    """List the presets, or show one with its whole configuration."""
    import json

    from fourmin.cli.output import stdout
    from fourmin.recipe.presets import PRESETS, describe_preset, load_preset

    console = stdout()
    if name is not None:
        configuration = load_preset(name).to_json()
        if as_json:
            console.print(json.dumps(configuration, indent=2))
            return
        console.print(f"{name}: {describe_preset(name)[1]}\n")
        for field, value in configuration.items():
            console.print(f"  {field} = {value}")
        return
    if as_json:
        console.print(json.dumps({known: load_preset(known).to_json() for known in PRESETS}))
        return
    for known in PRESETS:
        console.print(f"{known}\n    {describe_preset(known)[0]}")
