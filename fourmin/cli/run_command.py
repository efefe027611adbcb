"""`fourmin run`: registers a campaign, runs it, and says what it left."""

from __future__ import annotations

import dataclasses
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fourmin.base.errors import NOT_CONVERGED
from fourmin.cli import options

if TYPE_CHECKING:
    from fourmin.campaign.events import Observer
    from fourmin.campaign.placement import Placement
    from fourmin.campaign.prepare import Request
    from fourmin.cli.display import Display
    from fourmin.launch import Choice


def run(
    preset: options.Preset = "digits",
    nodes: Annotated[int | None, typer.Option(help="Nodes.")] = None,
    procs_per_node: options.ProcsPerNode = None,
    precision: options.Precision = None,
    data_dir: options.DataDir = None,
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
    group_size: options.GroupSize = None,
    fusion_threshold: options.FusionThreshold = None,
    hybrid_threshold: options.HybridThreshold = None,
    tuning: options.Tuning = None,
    launcher: Annotated[
        str, typer.Option(help="auto, local, torchrun, slurm or kubernetes.")
    ] = "auto",
    address: Annotated[
        str,
        typer.Option(metavar="HOST[:PORT]", help="Where other nodes reach this one (torchrun)."),
    ] = "",
    site: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The cluster's settings; see docs/hpc.md.")
    ] = None,
    partition: Annotated[str | None, typer.Option(help="Slurm's partition.")] = None,
    account: Annotated[str | None, typer.Option(help="Slurm's account.")] = None,
    time_limit: Annotated[
        str | None, typer.Option(metavar="TIME", help="Time limit of a job, as sbatch takes it.")
    ] = None,
    directives: Annotated[
        list[str] | None,
        typer.Option("--directive", metavar="OPTION", help="A further option of sbatch."),
    ] = None,
    runs_per_job: Annotated[
        int | None, typer.Option(min=1, help="Runs in one job; default: all of them.")
    ] = None,
    runs: Annotated[int | None, typer.Option(help="Number of runs; only with --practice.")] = None,
    max_steps: Annotated[
        int | None, typer.Option(help="Stop after so many steps; only with --practice.")
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(min=0, max=2**32 - 1, help="Seed of the first run; only with --practice."),
    ] = None,
    settings: options.Settings = None,
    results_dir: Annotated[Path, typer.Option(help="Where campaigns are written.")] = Path(
        "results"
    ),
    submitter: Annotated[str, typer.Option(help="Who submits.")] = "self",
    system: options.System = "",
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
    campaign_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Names the campaign: written when it is registered, and gone on with if there.",
        ),
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
    from fourmin.campaign.placement import Placement
    from fourmin.campaign.prepare import Request
    from fourmin.cli.display import choose_display
    from fourmin.launch.site import load_site

    placement = Placement(
        launcher=launcher,
        site=load_site(site).with_slurm(
            partition=partition, account=account, time_limit=time_limit, directives=directives
        ),
        site_file=site,
        address=address,
        runs_per_job=runs_per_job,
        max_restarts=max_restarts,
    )
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
        tuning=tuning,
        stage=stage,
    )
    existing = registered or resume or _named_in(campaign_file)
    if dry_run:
        from fourmin.cli.dry_run import describe

        describe(request, existing, placement, as_json=json_lines)
        return
    display = choose_display(as_json=json_lines, quiet=quiet)
    watchers: list[Observer] = [display]
    if tensorboard is not None:
        from fourmin.cli.tensorboard import TensorBoard

        watchers.append(TensorBoard(tensorboard))
    _run(request, existing, base, placement, campaign_file, display, watchers)


def _named_in(campaign_file: Path | None) -> Path | None:
    """The campaign that a job before this one registered."""
    if campaign_file is None or not campaign_file.is_file():
        return None
    return Path(campaign_file.read_text().strip())


def _run(
    request: Request,
    existing: Path | None,
    base: str | None,
    placement: Placement,
    campaign_file: Path | None,
    display: Display,
    watchers: Sequence[Observer],
) -> None:
    from fourmin.campaign.placement import campaign_configuration
    from fourmin.launch import KUBERNETES, choose_launcher

    configuration = campaign_configuration(request, existing, placement)
    choice = choose_launcher(placement.launcher, configuration.nodes)
    request = dataclasses.replace(request, launcher=choice.name)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if choice.submits:
        from fourmin.campaign.events import Observers
        from fourmin.campaign.jobs import run_in_jobs

        submission = placement.submission(request, existing, base, configuration)
        placement.tell(choice, display)
        with display:
            folder = run_in_jobs(submission, Observers(*watchers))
        _close(folder, display)
    elif choice.name == KUBERNETES:
        from fourmin.cli.trainjob import write_trainjob

        write_trainjob(placement, request, existing, base, configuration)
    else:
        _execute(request, existing, base, placement, choice, campaign_file, display, watchers)


def _execute(
    request: Request,
    existing: Path | None,
    base: str | None,
    placement: Placement,
    choice: Choice,
    campaign_file: Path | None,
    display: Display,
    watchers: Sequence[Observer],
) -> None:
    from contextlib import closing

    from fourmin.base.files import write_durably
    from fourmin.campaign.events import Note, Observers
    from fourmin.campaign.execute import execute
    from fourmin.campaign.prepare import go_on, prepare
    from fourmin.ledger.campaign import Campaign, require_campaign
    from fourmin.ledger.lock import CampaignLock

    with closing(placement.load(choice.name, display)) as launcher:
        survey = launcher.survey()
        if existing is None:
            prepared = prepare(request, survey)
            folder = Campaign.create(request.results_dir, prepared.plan).folder
            if campaign_file is not None:
                campaign_file.parent.mkdir(parents=True, exist_ok=True)
                write_durably(campaign_file, f"{folder.absolute()}\n".encode())
        else:
            folder = existing
            require_campaign(folder)
        with CampaignLock(folder):
            if existing is None:
                campaign, materials = Campaign(folder), prepared.materials
            else:
                campaign, materials = go_on(
                    folder, request.data_dir, base, request.stage, request.launcher, survey
                )
            placement.tell(choice, display)
            with display:
                observer = Observers(*watchers)
                summary = execute(
                    campaign,
                    materials,
                    launcher,
                    observer,
                    placement.max_restarts,
                    placement.runs_per_job,
                )
    if summary is None:
        display.take(Note(f"more runs remain: fourmin run --resume {folder}"))
        return
    _close(folder, display)


def _close(folder: Path, display: Display) -> None:
    """Check what a closed campaign left, show it, and end as its runs did."""
    import json

    from fourmin.campaign.events import CampaignClosed
    from fourmin.ledger.campaign import SUMMARY_FILE, Campaign
    from fourmin.results.run_result import CONVERGED
    from fourmin.rules.engine import check

    campaign = Campaign(folder)
    summary = json.loads((folder / SUMMARY_FILE).read_bytes())
    display.take(CampaignClosed.of(folder, summary, check([folder])))
    missed = [run["run"] for run in summary["runs"] if run["status"] != CONVERGED]
    if missed and not campaign.practice:
        raise typer.Exit(NOT_CONVERGED)
