"""Options that several commands take, with the same words in each."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from fourmin.base.errors import FourminError, unknown
from fourmin.base.files import require_writable_file
from fourmin.base.values import SIZE_UNITS
from fourmin.recipe.configuration import FIELDS
from fourmin.recipe.presets import PRESETS

# The groups of the options of `run`, in its help.
training = partial(typer.Option, rich_help_panel="Training")
places = partial(typer.Option, rich_help_panel="Where it runs")
cluster = partial(typer.Option, rich_help_panel="Cluster")
campaign = partial(typer.Option, rich_help_panel="Campaign")
output = partial(typer.Option, "--output", "-o")


def of_field(name: str, more: str = "") -> Any:
    """An option that sets a field of the configuration, in the field's own words.

    It takes a text: the field refuses what is wrong, and a size may have a unit.
    """
    field = FIELDS[name]
    unit = "SIZE" if field.unit in SIZE_UNITS else field.unit.upper()
    return training(
        metavar="|".join(field.choices) or unit or "N",
        help=field.help + more,
        autocompletion=_beginning(field.choices),
    )


def one_of(*known: str, **how: Any) -> Any:
    """An option with named values; another is refused with those that are near."""

    def parse(text: str) -> str:
        if text not in known:
            error = unknown(f"{text!r} is not known", text, known)
            raise typer.BadParameter("; ".join(filter(None, str(error).split("\n"))))
        return text

    shown: dict[str, Any] = {"metavar": "|".join(known), "autocompletion": _beginning(known)}
    return typer.Option(*how.pop("names", ()), **shown | {"parser": parse} | how)


def finite(value: float | None) -> float | None:
    """The callback of an option with a number; `min` and `max` let nan pass."""
    if value is not None and not math.isfinite(value):
        raise typer.BadParameter(f"{value} is no finite number")
    return value


def _key(path: Path | None) -> Path | None:
    """Refuse what is no key before anything is written: ssh-keygen would wait for a FIFO."""
    if path is not None and not path.is_file():
        step = "name a private key, or the .pub of one in the agent"
        raise FourminError(f"no signing key {path}", "there is no such file", step)
    return path


def _beginning(known: Iterable[str]) -> Callable[[str], list[str]]:
    """What a shell is offered for an option with named values."""

    def complete(incomplete: str) -> list[str]:
        return [name for name in known if name.startswith(incomplete)]

    return complete


_PRESET = training(
    metavar="NAME", help="What to train; see `fourmin presets`.", autocompletion=_beginning(PRESETS)
)
Preset = Annotated[str, _PRESET]
AnyPreset = Annotated[str | None, _PRESET]
DataDir = Annotated[
    Path | None,
    places(metavar="DIR", help="Images: train/<class>/* and val/<class>/*, or shards."),
]
Nodes = Annotated[str | None, of_field("nodes")]
ProcsPerNode = Annotated[str | None, of_field("procs_per_node")]
Precision = Annotated[str | None, of_field("precision")]
Loader = Annotated[str | None, of_field("loader")]
Allreduce = Annotated[str | None, of_field("allreduce")]
GroupSize = Annotated[str | None, of_field("group_size")]
FusionThreshold = Annotated[str | None, of_field("fusion_threshold")]
HybridThreshold = Annotated[str | None, of_field("hybrid_threshold")]
MaxSteps = Annotated[str | None, of_field("max_steps")]
Tuning = Annotated[
    Path | None,
    training(metavar="FILE", help="A table of `fourmin bench allreduce --output FILE`."),
]
Site = Annotated[
    Path | None,
    cluster(metavar="FILE", help="The cluster's settings; see docs/hpc.md."),
]
Address = Annotated[
    str,
    cluster(metavar="HOST[:PORT]", help="Where other nodes reach this one (torchrun)."),
]
TimeoutOptions = Annotated[
    list[str] | None,
    cluster(
        "--timeout",
        metavar="NAME=SECONDS",
        help="How long is waited: join (nodes come), rejoin, look (nodes look at themselves), "
        "imports, silence, end, or collective; see docs/hpc.md.",
    ),
]
Settings = Annotated[
    list[str] | None,
    training(
        "--set",
        metavar="KEY=VALUE",
        help="Change one field of the configuration; see docs/configuration.md.",
        autocompletion=_beginning([f"{name}=" for name in FIELDS]),
    ),
]
SigningKey = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        callback=_key,
        help="Sign with this SSH key: a private one, or the .pub of one in the agent.",
    ),
]
System = Annotated[
    str | None,
    campaign(
        metavar="NAME",
        help="The system's name; default: the user's configuration, or its hardware.",
    ),
]
Submitter = Annotated[
    str | None,
    campaign(
        metavar="NAME",
        help="Who submits; default: the user's configuration, or `self`, which cannot.",
    ),
]
Campaign = Annotated[Path, typer.Argument(metavar="CAMPAIGN", help="A campaign's folder.")]
Json = Annotated[bool, typer.Option("--json", help="JSON on standard output.")]
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


def require_output_file(path: Path | None) -> None:
    """Raise FourminError where nothing could be written to `path`, before the work is done."""
    if path is not None:
        if not path.parent.is_dir():
            raise FourminError(f"cannot write {path}", f"there is no folder {path.parent}")
        if path.is_dir():
            raise FourminError(f"cannot write {path}", f"{path} is a folder", "name a file")
        require_writable_file(path, "output")
