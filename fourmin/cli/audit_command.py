"""`fourmin audit`: replays the start of a run from its seed and compares."""

from __future__ import annotations

from typing import Annotated

import typer

from fourmin.cli import options
from fourmin.log.keys import LOGGED_STEPS


def audit(
    campaign: options.Campaign,
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
    as_json: options.Json = False,
) -> None:
    """Recompute initial weights and data order from the seed, and replay the first steps.

    Exit code 0: nothing differs; 1: something does; 2: it could not be done here.
    """
    from fourmin.base.text import printable
    from fourmin.campaign.audit import prepare_audit
    from fourmin.cli.output import print_json, stderr, stdout, working

    prepared = prepare_audit(campaign, run, data_dir, steps)
    replay = prepared.configuration
    stderr().print(
        f"replaying {replay.max_steps} steps of {replay.global_batch_size} images of "
        f"{replay.image_size} x {replay.image_size} ({replay.model}, {replay.workers} worker(s), "
        f"{replay.device}, {replay.precision})"
    )
    with working("replaying"):
        outcome = prepared.replay()
    console = stdout()
    if as_json:
        print_json("audit", outcome.to_json(), indent=None)
    else:
        machine = "the same kind of machine" if outcome.same_machine else "another kind of machine"
        console.print(f"run {run} of {printable(campaign)}, replayed on {machine}")
        for one in outcome.comparisons:
            console.print(f"  {one.name}: {one.verdict}")
            console.print(f"    claimed  {printable(one.claimed)}")
            console.print(f"    replayed {printable(one.replayed)}")
    if not outcome.ok:
        raise typer.Exit(1)
