"""`fourmin run`: registers a campaign, runs it, and says what it left."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fourmin.base.errors import NOT_CONVERGED
from fourmin.cli import options

if TYPE_CHECKING:
    from fourmin.campaign.events import Observer
    from fourmin.campaign.prepare import Prepared
    from fourmin.cli.display import Display


def run(
    preset: options.AnyPreset = None,
    nodes: options.Nodes = None,
    procs_per_node: options.ProcsPerNode = None,
    precision: options.Precision = None,
    data_dir: options.DataDir = None,
    stage: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Each run first copies the images to DIR on its node, on the clock."
        ),
    ] = None,
    loader: options.Loader = None,
    allreduce: options.Allreduce = None,
    group_size: options.GroupSize = None,
    fusion_threshold: options.FusionThreshold = None,
    hybrid_threshold: options.HybridThreshold = None,
    tuning: options.Tuning = None,
    launcher: Annotated[
        str, typer.Option(help="auto, local, torchrun, slurm or kubernetes.")
    ] = "auto",
    address: options.Address = "",
    site: options.Site = None,
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
    max_steps: options.MaxSteps = None,
    seed: Annotated[
        int | None,
        typer.Option(min=0, max=2**32 - 1, help="Seed of the first run; only with --practice."),
    ] = None,
    settings: options.Settings = None,
    results_dir: Annotated[
        Path | None, typer.Option(help="Where campaigns are written. [default: results]")
    ] = None,
    submitter: Annotated[str | None, typer.Option(help="Who submits. [default: self]")] = None,
    system: options.System = None,
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
    timeouts: options.TimeoutOptions = None,
    trial: Annotated[
        bool | None,
        typer.Option(
            "--trial/--no-trial",
            help="Try each of several nodes alone before anything is registered. [default: "
            "unless --practice]",
        ),
    ] = None,
    exclude_slow: Annotated[
        bool,
        typer.Option(
            "--exclude-slow",
            help="Leave out nodes that the trial finds more than 10% slower than the median.",
        ),
    ] = False,
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
    import json
    from contextlib import closing

    from fourmin.campaign.describe import plan_json, plan_lines
    from fourmin.campaign.events import Note, Observers
    from fourmin.campaign.placement import Placement
    from fourmin.campaign.prepare import prepare
    from fourmin.campaign.request import Existing, Request, choose_campaign
    from fourmin.cli.display import choose_display
    from fourmin.cli.output import say, stdout
    from fourmin.launch.site import load_site
    from fourmin.launch.timeouts import Timeouts

    patience, collective = Timeouts.parse(timeouts or ())
    if collective is not None:
        settings = [*(settings or ()), f"collective_timeout_seconds={collective:g}"]
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
        results_dir=results_dir,
        submitter=submitter,
        system_name=system,
        tuning=tuning,
    )
    wanted = choose_campaign(
        request, resume=resume, registered=registered, base=base, campaign_file=campaign_file
    )
    counts_never = wanted.campaign.plan.practice if isinstance(wanted, Existing) else practice
    placement = Placement(
        data_dir=data_dir,
        stage=stage,
        launcher=launcher,
        site=load_site(site),
        site_file=site,
        job_options={
            "partition": partition,
            "account": account,
            "time_limit": time_limit,
            "directives": directives,
        },
        address=address,
        runs_per_job=runs_per_job,
        max_restarts=max_restarts,
        timeouts=patience,
        trial=exclude_slow or not counts_never if trial is None else trial,
        exclude_slow=exclude_slow,
    )
    display = choose_display(as_json=json_lines, quiet=quiet)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with closing(prepare(wanted, placement, lambda text: display.take(Note(text)))) as prepared:
        if dry_run:
            # As every other command: a reader may go away.
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)
            if json_lines:
                stdout().print(json.dumps(plan_json(prepared)))
            else:
                say(plan_lines(prepared))
        prepared.require()
        if dry_run:
            return
        watchers: list[Observer] = [display]
        if tensorboard is not None:
            from fourmin.cli.tensorboard import TensorBoard

            watchers.append(TensorBoard(tensorboard))
        if launcher == "auto":
            chosen = f"launcher {prepared.choice.name}: {prepared.choice.reason}"
            display.take(Note(chosen))
        if prepared.submission is None:
            display.take(Note(prepared.step))
        folder = _run(prepared, campaign_file, display, Observers(*watchers))
    if folder is not None:
        _close(folder, display)


def _run(
    prepared: Prepared, campaign_file: Path | None, display: Display, observer: Observer
) -> Path | None:
    """The folder of the campaign where it has ended."""
    from fourmin.campaign.events import Note
    from fourmin.campaign.execute import execute
    from fourmin.campaign.jobs import run_in_jobs
    from fourmin.campaign.registration import opened
    from fourmin.campaign.trial import try_nodes
    from fourmin.cli.output import stdout

    if prepared.submission is not None:
        with display:
            left = run_in_jobs(prepared.submission, observer)
        if isinstance(left, str):
            stdout().print(left)
            return None
        return left
    assert prepared.launcher is not None
    placement = prepared.placement
    if placement.trial and not prepared.under_way:
        try_nodes(
            prepared.launcher,
            prepared.configuration,
            lambda text: display.take(Note(text)),
            exclude_slow=placement.exclude_slow,
        )
    with opened(prepared, campaign_file) as (campaign, materials), display:
        summary = execute(
            campaign,
            materials,
            prepared.launcher,
            observer,
            placement.max_restarts,
            placement.runs_per_job,
        )
    if summary is None:
        display.take(Note(f"more runs remain: fourmin run --resume {campaign.folder}"))
        return None
    return campaign.folder


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
    if missed and not campaign.plan.practice:
        raise typer.Exit(NOT_CONVERGED)
