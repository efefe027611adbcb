"""`fourmin audit`: replays the start of a run from its seed and compares."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fourmin.cli import options
from fourmin.log.keys import LOGGED_STEPS


def audit(
    campaign: Annotated[Path, typer.Argument(metavar="CAMPAIGN", help="A campaign's folder.")],
    run: Annotated[int, typer.Option(help="Which run.", min=1)] = 1,
    steps: Annotated[
        int | None,
        typer.Option(
            help=f"Steps to replay. [default: {LOGGED_STEPS}, or 4 where the CPU stands in for "
            "GPUs]",
            min=1,
            max=LOGGED_STEPS,
            show_default=False,
        ),
    ] = None,
    data_dir: options.DataDir = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON on standard output.")] = False,
) -> None:
    """Recompute initial weights and data order from the seed, and replay the first steps.

    Exit code 0: nothing differs; 1: something does; 2: it could not be done here.
    """
    import json
    import os

    from fourmin.base.errors import FourminError
    from fourmin.base.text import printable
    from fourmin.campaign.audit import audit_run, replayable
    from fourmin.campaign.prepare import locate_checked_data
    from fourmin.cli.output import stderr, stdout
    from fourmin.launch import load_launcher
    from fourmin.rules.engine import load_campaign
    from fourmin.system.hardware import usable_gpus

    view = load_campaign(campaign)
    chosen = next((one for one in view.runs if one.number == run), None)
    if view.plan is None or chosen is None or chosen.configuration is None:
        raise FourminError(
            f"no run {run} in {campaign} that could be replayed",
            next_step=f"`fourmin validate {campaign}` says what is wrong",
        )
    found, manifest = locate_checked_data(view.plan, data_dir)
    cores = len(os.sched_getaffinity(0))
    replay = replayable(chosen.configuration, usable_gpus(), cores, steps)
    stderr().print(
        f"replaying {replay.max_steps} steps of {replay.global_batch_size} images of "
        f"{replay.image_size} x {replay.image_size} ({replay.model}, {replay.workers} worker(s), "
        f"{replay.device}, {replay.precision})"
    )
    outcome = audit_run(chosen.facts, replay, found, manifest, load_launcher("local"))
    console = stdout()
    if as_json:
        console.print(json.dumps(outcome.to_json()))
    else:
        machine = "the same kind of machine" if outcome.same_machine else "another kind of machine"
        console.print(f"run {run} of {printable(campaign)}, replayed on {machine}")
        for one in outcome.comparisons:
            console.print(f"  {one.name}: {one.verdict}")
            console.print(f"    claimed  {printable(one.claimed)}")
            console.print(f"    replayed {printable(one.replayed)}")
    if not outcome.ok:
        raise typer.Exit(1)
