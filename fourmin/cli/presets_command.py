"""`fourmin presets`: what can be trained, and with which settings."""

from __future__ import annotations

from typing import Annotated

import typer

from fourmin.cli import options


def presets(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="A preset; without, all are listed.")
    ] = None,
    as_json: options.Json = False,
) -> None:
    """List the presets, or show one with its whole configuration."""
    from fourmin.cli.output import print_json, say, stdout
    from fourmin.recipe.optimizers import fields_not_read
    from fourmin.recipe.presets import PRESETS, describe_preset, load_preset

    console = stdout()
    if name is not None:
        preset = load_preset(name)
        configuration = preset.to_json()
        if as_json:
            print_json("preset", configuration)
            return
        told = f"{name}: {describe_preset(name)[1]}".split("\n\n")
        say(line for paragraph in told for line in (" ".join(paragraph.split()), ""))
        others = fields_not_read(preset.optimizer)
        for field, value in configuration.items():
            note = f"  (not read by {preset.optimizer})" if field in others else ""
            console.print(f"  {field} = {value}{note}")
        return
    if as_json:
        known = {known: load_preset(known).to_json() for known in PRESETS}
        print_json("presets", known, indent=None)
        return
    say(line for name in PRESETS for line in (name, f"    {describe_preset(name)[0]}"))
