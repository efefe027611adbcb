"""`fourmin run --dry-run`: the whole resolved configuration and what would be started."""

from __future__ import annotations

import json
import shlex
from typing import Any

from fourmin.cli.output import stdout
from fourmin.config import Configuration
from fourmin.launch import load_launcher
from fourmin.plan import Request, resolve_configuration
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


def describe(request: Request, launcher: str, *, as_json: bool) -> None:
    """Print it. Raises FourminError for what `run` would refuse in its configuration."""
    configuration = resolve_configuration(request)
    benchmark = load_ruleset().benchmark(configuration.benchmark)
    arithmetic = batch_arithmetic(configuration, benchmark)
    runs = request.runs or benchmark.runs
    command = load_launcher(launcher).command(configuration)
    console = stdout()
    if as_json:
        console.print(
            json.dumps(
                {
                    "configuration": configuration.to_json(),
                    "configuration_digest": configuration.digest(),
                    "batch": arithmetic,
                    "runs": runs,
                    "command": command,
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
    where = f" on each of {configuration.nodes} nodes" if configuration.nodes > 1 else ""
    console.print(f"\neach run starts{where}\n  {shlex.join(command)}")
