"""`fourmin run`: registers a campaign, runs it, and says what it left."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fourmin.errors import NOT_CONVERGED

if TYPE_CHECKING:
    from fourmin.cli.display import Display
    from fourmin.launch import Launcher
    from fourmin.launch.execute import Materials, Observer
    from fourmin.ledger.campaign import Campaign
    from fourmin.plan import Request


def run(
    preset: Annotated[str, typer.Option(help="What to train; see `fourmin presets`.")] = "digits",
    nodes: Annotated[int | None, typer.Option(help="Nodes.")] = None,
    procs_per_node: Annotated[
        int | None, typer.Option(help="Worker processes on each node.")
    ] = None,
    precision: Annotated[str | None, typer.Option(help="fp32, fp16 or bf16.")] = None,
    data_dir: Annotated[
        Path | None, typer.Option(help="Images: train/<class>/* and val/<class>/*, or shards.")
    ] = None,
    stage: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Each run first copies the images to DIR on its node, on the clock."
        ),
    ] = None,
    loader: Annotated[str | None, typer.Option(help="dali or torchvision.")] = None,
    allreduce: Annotated[
        str | None,
        typer.Option(help="native, ring, hierarchical, hybrid, halving-doubling, torus or tuned."),
    ] = None,
    group_size: Annotated[
        int | None, typer.Option(help="Workers in a group of the hierarchy; 0: those of a node.")
    ] = None,
    fusion_threshold: Annotated[
        int | None, typer.Option(metavar="BYTES", help="Size at which a gradient bucket is sent.")
    ] = None,
    hybrid_threshold: Annotated[
        int | None, typer.Option(metavar="BYTES", help="Where hybrid changes its algorithm.")
    ] = None,
    tuning: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A table of `fourmin bench allreduce --output FILE`."),
    ] = None,
    launcher: Annotated[str, typer.Option(help="auto or local.")] = "auto",
    runs: Annotated[int | None, typer.Option(help="Number of runs; only with --practice.")] = None,
    max_steps: Annotated[
        int | None, typer.Option(help="Stop after so many steps; only with --practice.")
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(min=0, max=2**32 - 1, help="Seed of the first run; only with --practice."),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change one field of the configuration."),
    ] = None,
    results_dir: Annotated[Path, typer.Option(help="Where campaigns are written.")] = Path(
        "results"
    ),
    submitter: Annotated[str, typer.Option(help="Who submits.")] = "self",
    system: Annotated[str, typer.Option(help="The system's name; default: its hardware.")] = "",
    practice: Annotated[
        bool, typer.Option("--practice", help="A campaign that never counts.")
    ] = False,
    resume: Annotated[
        Path | None, typer.Option(metavar="CAMPAIGN", help="Go on with an interrupted campaign.")
    ] = None,
    registered: Annotated[
        Path | None,
        typer.Option("--campaign", metavar="CAMPAIGN", help="Run a registered, merged campaign."),
    ] = None,
    base: Annotated[
        str | None,
        typer.Option(metavar="REF", help="The branch that --campaign was merged into."),
    ] = None,
    tensorboard: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write scalars for TensorBoard there.")
    ] = None,
    max_restarts: Annotated[
        int,
        typer.Option(min=0, help="How often a run whose workers failed goes on."),
    ] = 3,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")
    ] = False,
    json_lines: Annotated[
        bool, typer.Option("--json", help="One JSON object a line on standard output.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print only the closing result.")] = False,
) -> None:
    """Train to the target accuracy, as often as the benchmark asks, and leave the result.

    Without options it runs the preset `digits`, which needs nothing but this machine.
    """
    from fourmin.cli.display import choose_display
    from fourmin.plan import Request

    request = Request(
        preset=preset,
        options={
            "nodes": nodes,
            "procs_per_node": procs_per_node,
            "precision": precision,
            "loader": loader,
            "allreduce": allreduce,
            "group_size": group_size,
            "fusion_threshold": fusion_threshold,
            "hybrid_threshold": hybrid_threshold,
            "max_steps": max_steps,
        },
        settings=tuple(settings or ()),
        practice=practice,
        runs=runs,
        seed=seed,
        data_dir=data_dir,
        results_dir=results_dir,
        submitter=submitter,
        system_name=system,
        launcher=launcher,
        tuning=tuning,
        stage=stage,
    )
    if dry_run:
        from fourmin.cli.dry_run import describe

        describe(request, launcher, as_json=json_lines)
        return
    display = choose_display(as_json=json_lines, quiet=quiet)
    watchers: list[Observer] = [display]
    if tensorboard is not None:
        from fourmin.cli.tensorboard import TensorBoard

        watchers.append(TensorBoard(tensorboard))
    _execute(request, registered or resume, base, max_restarts, display, watchers)


def _execute(
    request: Request,
    existing: Path | None,
    base: str | None,
    max_restarts: int,
    display: Display,
    watchers: Sequence[Observer],
) -> None:
    from fourmin.launch import load_launcher
    from fourmin.ledger.campaign import Campaign, require_campaign
    from fourmin.ledger.lock import CampaignLock
    from fourmin.plan import go_on, prepare

    workers = load_launcher(request.launcher)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if existing is None:
        prepared = prepare(request)
        campaign = Campaign.create(request.results_dir, prepared.plan)
        with CampaignLock(campaign.folder):
            _conduct(campaign, prepared.materials, workers, max_restarts, display, watchers)
        return
    require_campaign(existing)
    with CampaignLock(existing):
        campaign, materials = go_on(existing, request.data_dir, base, request.stage)
        _conduct(campaign, materials, workers, max_restarts, display, watchers)


def _conduct(
    campaign: Campaign,
    materials: Materials,
    workers: Launcher,
    max_restarts: int,
    display: Display,
    watchers: Sequence[Observer],
) -> None:
    """Run the campaign under its display, check what it left, and end as its runs did."""
    from fourmin.launch.execute import Observers, execute
    from fourmin.results.run_result import CONVERGED
    from fourmin.rules.engine import check

    with display:
        summary = execute(campaign, materials, workers, Observers(*watchers), max_restarts)
    report = check([campaign.folder])
    display.closed(campaign.folder, summary, report)
    missed = [run["run"] for run in summary["runs"] if run["status"] != CONVERGED]
    if missed and not campaign.practice:
        raise typer.Exit(NOT_CONVERGED)
