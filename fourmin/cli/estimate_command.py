"""`fourmin estimate`: what a run would take on a machine that is not here."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fourmin.base.errors import FourminError
from fourmin.cli import options
from fourmin.cli.config_file import field_options
from fourmin.estimate.profile import DEFAULT_PROFILE
from fourmin.recipe.phases import MOST_EPOCHS

if TYPE_CHECKING:
    from fourmin.estimate.profile import Profile
    from fourmin.recipe.configuration import Configuration


def estimate(
    ctx: typer.Context,
    preset: options.AnyPreset = None,
    nodes: options.Nodes = None,
    procs_per_node: options.ProcsPerNode = None,
    system_profile: Annotated[
        str,
        typer.Option(
            metavar="NAME|FILE.toml",
            help="dgx-h100, dgx-a100, xe8545-a100, l40s, p40-100gbe, or a file of your own.",
        ),
    ] = DEFAULT_PROFILE,
    precision: options.Precision = None,
    allreduce: options.Allreduce = None,
    group_size: options.GroupSize = None,
    fusion_threshold: options.FusionThreshold = None,
    hybrid_threshold: options.HybridThreshold = None,
    tuning: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A table of `fourmin bench allreduce --output FILE`; without it, tuned takes the "
            "fastest by these models for each size.",
        ),
    ] = None,
    settings: options.Settings = None,
    images_per_second: Annotated[
        float | None,
        typer.Option(
            min=0.001,
            callback=options.finite,
            help="What one worker does alone, at this run's images a pass.",
        ),
    ] = None,
    step_report: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="What `fourmin bench step --json` measured instead."),
    ] = None,
    data_report: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="How fast images come: `fourmin bench data --json`."),
    ] = None,
    epochs: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=MOST_EPOCHS,
            help="Epochs to train; default: the reference convergence point's.",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        options.output(
            metavar="FILE.svg", help="Write a chart of images/s against the ideal line."
        ),
    ] = None,
    validation: Annotated[
        bool,
        typer.Option("--validation", help="Instead: the models against measured systems."),
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Estimate step time, scaling efficiency and time to train from cost models.

    For any preset, number of nodes, machine and all-reduce. Never a result: `fourmin validate`
    refuses it.
    """
    from rich.markdown import Markdown

    from fourmin.base.files import write_output
    from fourmin.cli.output import print_json, say, stdout
    from fourmin.estimate.profile import load_profile
    from fourmin.estimate.render import text_lines, validation_lines
    from fourmin.estimate.run import estimate as make
    from fourmin.report.charts.lines import estimate_chart
    from fourmin.ruleset import load_ruleset

    console = stdout()
    if validation:
        from fourmin.estimate.validation import validate

        console.print(Markdown("\n".join(validation_lines(validate()))), soft_wrap=False)
        return
    if preset is None:
        raise FourminError("which preset?", next_step="--preset NAME: `fourmin presets` lists them")
    options.require_output_file(output)
    profile = load_profile(system_profile)
    configuration = _configuration(preset, field_options(ctx), settings or [], tuning, profile)
    profile = _with_measured(profile, configuration, images_per_second, step_report, data_report)
    benchmark = load_ruleset().benchmark(configuration.benchmark)
    made = make(configuration, profile, benchmark, epochs=epochs)
    if output is not None:
        write_output(output, estimate_chart(made).encode())
    if as_json:
        print_json("estimate", made.to_json())
        return
    say(text_lines(made))
    if output is not None:
        console.print(f"\nwritten: {output}")


def _configuration(
    preset: str,
    given: dict[str, Any],
    settings: list[str],
    tuning: Path | None,
    profile: Profile,
) -> Configuration:
    """The whole configuration on the profile's machine. Raises FourminError for what cannot be."""
    from dataclasses import replace

    from fourmin.estimate.hybrid import with_threshold
    from fourmin.recipe.allreduces import needs
    from fourmin.recipe.presets import load_preset
    from fourmin.recipe.settings import keep_statistics, requested_changes
    from fourmin.recipe.steps import against_machine, with_step
    from fourmin.recipe.tuning import load_tuning

    changes = requested_changes(given, settings)
    if tuning is not None:
        changes = load_tuning(tuning).changes(changes)
    most = profile.workers_per_node
    base = load_preset(preset)
    changes.setdefault("procs_per_node", min(base.procs_per_node, most))
    config = base.with_overrides(changes)
    if config.procs_per_node > most:
        raise FourminError(
            f"{config.procs_per_node} workers a node do not fit system profile {profile.name}",
            "each worker needs a GPU of its own",
            f"--procs-per-node {most}, or another --system-profile",
        )
    # The profile's machine decides what the preset leaves open.
    config = keep_statistics(base, config.resolved(most, keep_workers=True), changes)
    config = with_threshold(config, profile)
    config = with_step(config, against_machine(profile.capabilities, triton=True))
    if config.device != "cuda":
        raise FourminError(
            "there are estimates for GPUs only", f"device is {config.device}", "--set device=cuda"
        )
    # `tuned` without a table takes what the models find fastest; a run would need the table.
    modelled = needs(config.allreduce, "tuning") and not config.tuning
    (replace(config, allreduce="native") if modelled else config).check()
    return config


def _with_measured(
    profile: Profile,
    configuration: Configuration,
    images_per_second: float | None,
    step_report: Path | None,
    data_report: Path | None,
) -> Profile:
    from fourmin.estimate.measured import with_data_report, with_stated_rate, with_step_report

    if data_report is not None:
        profile = with_data_report(profile, configuration, data_report)

    if images_per_second is not None and step_report is not None:
        raise FourminError("--images-per-second and --step-report both say how fast a worker is")
    if images_per_second is not None:
        return with_stated_rate(profile, configuration, images_per_second)
    if step_report is not None:
        return with_step_report(profile, configuration, step_report)
    return profile
