"""Options that several commands take, with the same words in each."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

_PRESET = typer.Option(help="What to train; see `fourmin presets`.")
Preset = Annotated[str, _PRESET]
AnyPreset = Annotated[str | None, _PRESET]
ProcsPerNode = Annotated[int | None, typer.Option(help="Worker processes on each node.")]
Precision = Annotated[str | None, typer.Option(help="fp32, fp16 or bf16.")]
DataDir = Annotated[
    Path | None, typer.Option(help="Images: train/<class>/* and val/<class>/*, or shards.")
]
GroupSize = Annotated[
    int | None, typer.Option(help="Workers in a group of the hierarchy; 0: those of a node.")
]
FusionThreshold = Annotated[
    int | None, typer.Option(metavar="BYTES", help="Size at which a gradient bucket is sent.")
]
HybridThreshold = Annotated[
    int | None, typer.Option(metavar="BYTES", help="Where hybrid changes its algorithm.")
]
Tuning = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="A table of `fourmin bench allreduce --output FILE`."),
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change one field of the configuration."),
]
System = Annotated[str | None, typer.Option(help="The system's name; default: its hardware.")]
