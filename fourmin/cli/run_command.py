"""`fourmin run`: registers a campaign, runs it, and says what it left."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fourmin.base.errors import NOT_CONVERGED, USAGE, FourminError
from fourmin.base.text import command
from fourmin.cli import options
from fourmin.cli.config_file import (
    field_options,
    over_options,
    toml_lines,
    user_options,
    with_fields,
)
from fourmin.launch.registry import LAUNCHERS

if TYPE_CHECKING:
    from fourmin.campaign.events import Observer
    from fourmin.campaign.prepare import Prepared
    from fourmin.cli.display import Display

JOB_OPTIONS = ("partition", "account", "time_limit", "directives")


def run(
    ctx: typer.Context,
    preset: options.AnyPreset = None,
    nodes: options.Nodes = None,
    procs_per_node: options.ProcsPerNode = None,
    precision: options.Precision = None,
    loader: options.Loader = None,
    allreduce: options.Allreduce = None,
    group_size: options.GroupSize = None,
    fusion_threshold: options.FusionThreshold = None,
    hybrid_threshold: options.HybridThreshold = None,
    tuning: options.Tuning = None,
    max_steps: options.MaxSteps = None,
    settings: options.Settings = None,
    config: Annotated[
        Path | None,
        options.training(
            metavar="FILE",
            is_eager=True,
            callback=over_options,
            help="Options from a TOML file; those given here go over it. `--dry-run --format "
            "toml` writes one.",
        ),
    ] = None,
    data_dir: options.DataDir = None,
    stage: Annotated[
        Path | None,
        options.places(
            metavar="DIR", help="Each run first copies the images to DIR on its node, on the clock."
        ),
    ] = None,
    keep_states: Annotated[
        Path | None,
        options.places(
            metavar="DIR", help="Keep the state after each epoch of a deterministic run there."
        ),
    ] = None,
    launcher: Annotated[
        str,
        options.one_of(
            "auto", *LAUNCHERS, help="What starts workers.", rich_help_panel="Where it runs"
        ),
    ] = "auto",
    results_dir: Annotated[
        Path | None,
        options.places(metavar="DIR", help="Where campaigns are written. [default: results]"),
    ] = None,
    address: options.Address = "",
    site: options.Site = None,
    partition: Annotated[str | None, options.cluster(help="Slurm's partition.")] = None,
    account: Annotated[str | None, options.cluster(help="Slurm's account.")] = None,
    time_limit: Annotated[
        str | None,
        options.cluster(metavar="TIME", help="Time limit of a job, as sbatch takes it."),
    ] = None,
    directives: Annotated[
        list[str] | None,
        options.cluster("--directive", metavar="OPTION", help="A further option of sbatch."),
    ] = None,
    runs_per_job: Annotated[
        int | None,
        options.cluster(min=1, metavar="N", help="Runs in one job; default: all of them."),
    ] = None,
    timeouts: options.TimeoutOptions = None,
    trial: Annotated[
        bool | None,
        options.cluster(
            "--trial/--no-trial",
            help="Try each of several nodes alone before anything is registered. [default: "
            "unless --practice]",
        ),
    ] = None,
    exclude_slow: Annotated[
        bool,
        options.cluster(
            "--exclude-slow",
            help="Leave out nodes that the trial finds more than 10% slower than the median.",
        ),
    ] = False,
    submitter: options.Submitter = None,
    system: options.System = None,
    practice: Annotated[
        bool,
        options.campaign("--practice", help="A campaign that never counts."),
    ] = False,
    runs: Annotated[
        int | None,
        options.campaign(metavar="N", help="Number of runs; only with --practice."),
    ] = None,
    seed: Annotated[
        int | None,
        options.campaign(
            min=0, max=2**32 - 1, metavar="N", help="Seed of the first run; only with --practice."
        ),
    ] = None,
    profile: Annotated[
        int | None,
        options.campaign(
            min=1, metavar="N", help="Trace N steps of each run for Perfetto; needs --practice."
        ),
    ] = None,
    resume: Annotated[
        Path | None,
        options.campaign(metavar="CAMPAIGN", help="Go on with an interrupted campaign."),
    ] = None,
    registered: Annotated[
        Path | None,
        options.campaign(
            "--campaign", metavar="CAMPAIGN", help="Run a registered, merged campaign."
        ),
    ] = None,
    base: Annotated[
        str | None,
        options.campaign(metavar="REF", help="The branch that --campaign was merged into."),
    ] = None,
    campaign_file: Annotated[
        Path | None,
        options.campaign(
            metavar="FILE",
            help="Names the campaign: written when it is registered, and gone on with if there.",
        ),
    ] = None,
    max_restarts: Annotated[
        int,
        options.campaign(min=0, metavar="N", help="How often a run whose workers failed goes on."),
    ] = 3,
    tensorboard: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write scalars for TensorBoard there.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")
    ] = False,
    plan_format: Annotated[
        str,
        options.one_of(
            "text",
            "json",
            "toml",
            names=["--format"],
            help="How --dry-run says it; toml: for --config.",
        ),
    ] = "text",
    json_lines: Annotated[
        bool, typer.Option("--json", help="One JSON object a line on standard output.")
    ] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print only the closing result.")
    ] = False,
) -> None:
    """Train to the target accuracy, as often as the benchmark asks, and leave the result.

    Without options it runs the preset `digits`, which needs nothing but this machine.
    """
    from contextlib import closing

    from fourmin.campaign.describe import plan_json, plan_lines
    from fourmin.campaign.events import Observers
    from fourmin.campaign.load import LoadWatch
    from fourmin.campaign.prepare import prepare
    from fourmin.campaign.request import Existing, Placement, Request, choose_campaign
    from fourmin.cli.display import choose_display
    from fourmin.cli.output import print_json, say, stdout
    from fourmin.launch.site import load_site
    from fourmin.launch.timeouts import Timeouts

    patience, collective = Timeouts.parse(timeouts or ())
    if plan_format != "text" and not dry_run:
        raise FourminError("--format is for --dry-run", next_step="--json follows a campaign")
    if collective is not None:
        settings = [*(settings or ()), f"collective_timeout_seconds={collective:g}"]
    if None in (submitter, system) and resume is None and registered is None:
        own = user_options()
        submitter, system = submitter or own.get("submitter"), system or own.get("system")
    request = Request(
        preset=preset,
        options=field_options(ctx),
        settings=with_fields(ctx, settings or ()),
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
    if profile and not counts_never:
        raise FourminError("--profile needs --practice", "a trace slows a run, whose time counts")
    placement = Placement(
        data_dir=data_dir,
        stage=stage,
        keep_states=keep_states,
        launcher=launcher,
        site=load_site(site),
        site_file=site,
        job_options={name: ctx.params[name] or None for name in JOB_OPTIONS},
        address=address,
        runs_per_job=runs_per_job,
        max_restarts=max_restarts,
        timeouts=patience,
        trial=exclude_slow or not counts_never if trial is None else trial,
        exclude_slow=exclude_slow,
        profile=profile,
    )
    display = choose_display(as_json=json_lines, quiet=quiet)
    load = LoadWatch(display.say)
    with closing(prepare(wanted, placement, display.say)) as prepared:
        if dry_run:
            if json_lines or plan_format == "json":
                print_json("plan", plan_json(prepared), indent=None)
            elif plan_format == "toml":
                for line in toml_lines(ctx, prepared.configuration.to_json()):
                    stdout().print(line)
            else:
                say(plan_lines(prepared))
        prepared.require()
        if dry_run:
            return
        watchers: list[Observer] = [display]
        if prepared.launcher is not None and prepared.configuration.nodes == 1:
            load.look("before the campaign")
            watchers.append(load)
        if tensorboard is not None:
            from fourmin.cli.tensorboard import TensorBoard

            watchers.append(TensorBoard(tensorboard))
        for text in prepared.warnings():
            display.say(text)
        if launcher == "auto":
            display.say(f"launcher {prepared.choice.name}: {prepared.choice.reason}")
        if prepared.submission is None:
            display.say(prepared.step)
        folder = _run(prepared, campaign_file, display, Observers(*watchers))
    if folder is not None:
        _close(folder, display)


def _run(
    prepared: Prepared, campaign_file: Path | None, display: Display, observer: Observer
) -> Path | None:
    """The folder of the campaign where it has ended."""
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
        slow = placement.exclude_slow
        try_nodes(prepared.launcher, prepared.configuration, display.say, exclude_slow=slow)
    with opened(prepared, campaign_file) as (campaign, materials), display:
        summary = execute(campaign, materials, prepared.launcher, observer)
    if summary is None:
        display.say(f"more runs remain: {command('run', '--resume', campaign.folder)}")
        return None
    return campaign.folder


def _close(folder: Path, display: Display) -> None:
    """Check what a closed campaign left, show it, and end as its runs did."""
    import json

    from fourmin.campaign.events import CampaignClosed
    from fourmin.cli.start import require_output
    from fourmin.ledger.campaign import SUMMARY_FILE, Campaign
    from fourmin.results.run_result import CONVERGED
    from fourmin.rules.engine import check

    campaign = Campaign(folder)
    summary = json.loads((folder / SUMMARY_FILE).read_bytes())
    display.take(CampaignClosed.of(folder, summary, check([folder])))
    missed = [run["run"] for run in summary["runs"] if run["status"] != CONVERGED]
    code = NOT_CONVERGED if missed and not campaign.plan.practice else 0
    require_output(f"{command('report', folder)} shows the result", code or USAGE)
    if code:
        raise typer.Exit(code)
