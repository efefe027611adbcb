"""`fourmin doctor`: what this machine can run, and what is missing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fourmin.base.errors import USAGE, FourminError
from fourmin.cli import options

if TYPE_CHECKING:
    from fourmin.doctor.examine import Examination


def doctor(
    data_dir: Annotated[
        Path | None, typer.Option(help="Images: train/<class>/* and val/<class>/*, or shards.")
    ] = None,
    results_dir: Annotated[Path, typer.Option(help="Where campaigns would be written.")] = Path(
        "results"
    ),
    nodes: Annotated[int, typer.Option(min=1, help="Try so many nodes too, each by itself.")] = 1,
    launcher: Annotated[str, typer.Option(help="What reaches them: slurm or torchrun.")] = "slurm",
    preset: Annotated[str, typer.Option(help="What they try.")] = "digits",
    site: options.Site = None,
    address: options.Address = "",
    timeouts: options.TimeoutOptions = None,
    as_json: options.Json = False,
) -> None:
    """Say what this machine can run, what is missing, and what to do about it.

    Nothing is changed. Exit code 0: the main job (`fourmin run`) can run; 2: it cannot.
    """
    import dataclasses

    from fourmin.base.text import printable
    from fourmin.campaign.request import Placement
    from fourmin.cli.output import print_json, say, stderr
    from fourmin.doctor.examine import examine, examine_nodes
    from fourmin.launch.site import load_site
    from fourmin.launch.timeouts import Timeouts

    found = examine(results_dir, data_dir)
    if nodes > 1:
        place = Placement(
            site=load_site(site), address=address, timeouts=Timeouts.parse(timeouts or ())[0]
        )
        others = examine_nodes(preset, nodes, launcher, place, stderr().print)
        found = dataclasses.replace(found, checks=(*found.checks, *others))
    if as_json:
        print_json("doctor", found.to_json())
    else:
        say(map(printable, _lines(found)))
    if not found.ok:
        raise typer.Exit(USAGE)


def _lines(found: Examination) -> Iterator[str]:
    from fourmin.campaign.requirements import Place

    widest = max(len(check.topic) for check in found.checks)
    for check in found.checks:
        yield f"{check.status:<7}  {check.topic:<{widest}}  {check.message}"
        if check.next_step:
            yield f"{'':<7}  {'':<{widest}}  next: {check.next_step}"
    yield ""
    widest = max(len(preset.name) for preset in found.presets)
    for preset in found.presets:
        status = "can run" if preset.can_run else "cannot"
        yield f"{status:<7}  {preset.name:<{widest}}  {preset.how}"
    for names, missing in _missing(found):
        yield ""
        yield f"for {', '.join(names)}:"
        yield "  " + ": ".join(filter(None, (missing.what, missing.why)))
        yield from (f"  next: {step}" for step in missing.next_step.splitlines())
    yield ""
    yield (
        f"the main job can run: fourmin run {Place.seen().other_loader}".rstrip()
        if found.ok
        else "the main job cannot run: see what is missing above"
    )


def _missing(found: Examination) -> list[tuple[list[str], FourminError]]:
    """What is missing, with the presets that lack it or the same with other numbers."""
    alike: dict[str, tuple[list[str], FourminError]] = {}
    for preset in found.presets:
        for missing in preset.missing:
            key = re.sub(r"\d[\d,]*", "N", f"{missing.what}: {missing.why}")
            alike.setdefault(key, ([], missing))[0].append(preset.name)
    return list(alike.values())
