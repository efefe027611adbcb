"""Options that several commands take, with the same words in each."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from fourmin.base.errors import FourminError
from fourmin.recipe.configuration import FIELDS


def of_field(name: str) -> Any:
    """An option that sets a field of the configuration, in the field's own words."""
    field = FIELDS[name]
    return typer.Option(metavar=field.unit.upper() or None, help=field.help)


_PRESET = typer.Option(help="What to train; see `fourmin presets`.")
Preset = Annotated[str, _PRESET]
AnyPreset = Annotated[str | None, _PRESET]
DataDir = Annotated[
    Path | None, typer.Option(help="Images: train/<class>/* and val/<class>/*, or shards.")
]
Nodes = Annotated[int | None, of_field("nodes")]
ProcsPerNode = Annotated[int | None, of_field("procs_per_node")]
Precision = Annotated[str | None, of_field("precision")]
Loader = Annotated[str | None, of_field("loader")]
Allreduce = Annotated[str | None, of_field("allreduce")]
GroupSize = Annotated[int | None, of_field("group_size")]
FusionThreshold = Annotated[int | None, of_field("fusion_threshold")]
HybridThreshold = Annotated[str | None, of_field("hybrid_threshold")]
MaxSteps = Annotated[int | None, of_field("max_steps")]
Tuning = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="A table of `fourmin bench allreduce --output FILE`."),
]
Site = Annotated[
    Path | None, typer.Option(metavar="FILE", help="The cluster's settings; see docs/hpc.md.")
]
Address = Annotated[
    str, typer.Option(metavar="HOST[:PORT]", help="Where other nodes reach this one (torchrun).")
]
TimeoutOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--timeout",
        metavar="NAME=SECONDS",
        help="How long is waited: join (nodes come), rejoin, look (nodes look at themselves), "
        "imports, silence, end, or collective; see docs/hpc.md.",
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change one field of the configuration."),
]
SigningKey = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Sign with this SSH key: a private one, or the .pub of one in the agent.",
    ),
]
System = Annotated[str | None, typer.Option(help="The system's name; default: its hardware.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Say everything that is known.")]


def usual_folders(purpose: str, needed: bool = True) -> list[Path]:
    """The folders submissions and results, where they are here.

    Raises FourminError where there is neither, and one is `needed`.
    """
    usual = [folder for folder in (Path("submissions"), Path("results")) if folder.is_dir()]
    if needed and not usual:
        raise FourminError(
            f"nothing to {purpose}",
            "there is no folder submissions or results here",
            "name campaigns or folders of them, or make one with `fourmin run`",
        )
    return usual
