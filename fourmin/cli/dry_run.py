"""`fourmin run --dry-run`: the whole resolved configuration and what would be started."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fourmin.campaign.placement import Placement, campaign_configuration
from fourmin.campaign.prepare import ONE_NODE_LAUNCHERS, Request
from fourmin.cli.output import stdout
from fourmin.cli.trainjob import trainjob_text
from fourmin.launch import KUBERNETES, Choice, choose_launcher
from fourmin.launch.submit import JOBS_FOLDER
from fourmin.recipe.configuration import Configuration
from fourmin.ruleset import Benchmark, load_ruleset


def batch_arithmetic(configuration: Configuration, benchmark: Benchmark) -> dict[str, Any]:
    """How the global batch is shared, and what an epoch and a run come to."""
    steps = configuration.steps_per_epoch(benchmark.train_samples)
    return {
        "workers": configuration.workers,
        "images_per_worker_and_pass": configuration.local_batch_size,
        "accumulation_steps": configuration.gradient_accumulation_steps,
        "global_batch_size": configuration.global_batch_size,
        "images_per_batch_normalization": configuration.bn_span * configuration.local_batch_size,
        "steps_per_epoch": steps,
        "images_dropped_per_epoch": benchmark.train_samples
        - steps * configuration.global_batch_size,
        "max_epochs": configuration.max_epochs,
        "max_steps": steps * configuration.max_epochs,
        "evaluations_after_epochs": benchmark.scheduled(
            configuration.max_epochs, configuration.eval_offset
        ),
    }


def describe(
    request: Request, existing: Path | None, placement: Placement, *, as_json: bool
) -> None:
    """Print it. Raises FourminError for what `run` would refuse in its configuration."""
    configuration = campaign_configuration(request, existing, placement)
    choice = choose_launcher(placement.launcher, configuration.nodes)
    benchmark = load_ruleset().benchmark(configuration.benchmark)
    arithmetic = batch_arithmetic(configuration, benchmark)
    runs = request.runs or benchmark.runs
    started = _started(request, existing, placement, configuration, choice)
    console = stdout()
    if as_json:
        console.print(
            json.dumps(
                {
                    "configuration": configuration.to_json(),
                    "configuration_digest": configuration.digest(),
                    "batch": arithmetic,
                    "runs": runs,
                    "launcher": choice.name,
                    **started,
                }
            )
        )
        return
    console.print(f"preset {configuration.preset}, benchmark {benchmark.name}: {benchmark.title}")
    console.print(f"{runs} runs to {benchmark.quality_target:g}, in {request.results_dir}\n")
    console.print("configuration")
    for name, value in configuration.to_json().items():
        console.print(f"  {name} = {value}")
    console.print(f"  (digest {configuration.digest()})\n\nbatch")
    for name, value in arithmetic.items():
        console.print(f"  {name} = {value}")
    console.print(f"\nlauncher {choice.name}: {choice.reason}")
    if "submits" in started:
        console.print(f"\nwould be submitted\n{started['submits']}")
    where = f" for {configuration.nodes} nodes" if configuration.nodes > 1 else ""
    if "command" in started:
        console.print(f"\neach run starts{where}\n{started['command']}")


def _started(
    request: Request,
    existing: Path | None,
    placement: Placement,
    configuration: Configuration,
    choice: Choice,
) -> dict[str, str]:
    """What would be submitted, if anything, and what each run would start."""
    if choice.name == KUBERNETES:
        return {"submits": trainjob_text(placement, request, existing, None, configuration)}
    if configuration.nodes > 1 and choice.name in ONE_NODE_LAUNCHERS:
        return {"command": f"(nothing: launcher {choice.name} reaches this machine only)"}
    started = {"command": placement.load(choice.name).describe(configuration)}
    if choice.submits:
        submission = placement.submission(request, existing, None, configuration)
        started["submits"] = submission.script(
            submission.results_dir.absolute() / JOBS_FOLDER / "JOB"
        )
    return started
