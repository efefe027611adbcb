"""A plan in words and as JSON: the whole configuration, its arithmetic, and what would start."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any

from fourmin.base.errors import FourminError
from fourmin.campaign.prepare import Prepared
from fourmin.campaign.request import Existing
from fourmin.estimate.hybrid import switching
from fourmin.launch.registry import kind_of


def batch_arithmetic(prepared: Prepared) -> dict[str, Any]:
    """How the global batch is shared, and what an epoch and a run come to."""
    configuration, samples = prepared.configuration, prepared.train_samples
    steps = configuration.steps_per_epoch(samples)
    stretches = configuration.stretches()
    ends = [*(first for first, _ in stretches[1:]), configuration.max_epochs + 1]
    phases = [
        {
            "epochs": end - first,
            "image_size": own.image_size,
            "images_per_worker_and_pass": own.local_batch_size,
            "global_batch_size": own.global_batch_size,
            "steps_per_epoch": own.steps_per_epoch(samples),
        }
        for (first, own), end in zip(stretches, ends, strict=True)
    ]
    return {
        "workers": configuration.workers,
        "images_per_worker_and_pass": configuration.local_batch_size,
        "accumulation_steps": configuration.gradient_accumulation_steps,
        "global_batch_size": configuration.global_batch_size,
        "images_per_batch_normalization": configuration.bn_span * configuration.local_batch_size,
        "steps_per_epoch": steps,
        "images_dropped_per_epoch": samples - steps * configuration.global_batch_size,
        "max_epochs": configuration.max_epochs,
        "max_steps": sum(phase["epochs"] * phase["steps_per_epoch"] for phase in phases),
        "evaluations_after_epochs": [
            *prepared.benchmark.scheduled(configuration.max_epochs, configuration.eval_offset)
        ],
        **({"phases": phases} if len(phases) > 1 else {}),
    }


def plan_json(prepared: Prepared) -> dict[str, Any]:
    return {
        "configuration": prepared.configuration.to_json(),
        "configuration_digest": prepared.configuration.digest(),
        "batch": batch_arithmetic(prepared),
        "step": prepared.step,
        "hybrid": switching(prepared.configuration),
        "runs": prepared.runs,
        "launcher": prepared.choice.name,
        **_started(prepared),
        "refused": [error.to_json() for error in prepared.refused],
    }


def plan_lines(prepared: Prepared) -> Iterator[str]:
    """For people; what is refused is not among it."""
    wanted, configuration, benchmark = prepared.wanted, prepared.configuration, prepared.benchmark
    place = f"of {wanted.folder}" if isinstance(wanted, Existing) else f"in {wanted.results}"
    yield f"preset {configuration.preset}, benchmark {benchmark.name}: {benchmark.title}"
    yield f"{prepared.runs} runs to {benchmark.quality_target:g}, {place}"
    yield ""
    yield "configuration"
    yield from (f"  {name} = {value}" for name, value in configuration.to_json().items())
    yield f"  (digest {configuration.digest()})"
    yield ""
    yield "batch"
    yield from (f"  {name} = {value}" for name, value in batch_arithmetic(prepared).items())
    for said in filter(None, (prepared.step, switching(configuration), *prepared.warnings())):
        yield from ("", said)
    yield ""
    yield f"launcher {prepared.choice.name}: {prepared.choice.reason}"
    started = _started(prepared)
    if "submits" in started:
        yield f"\nwould be submitted\n{started['submits']}"
    if "command" in started:
        where = f" for {configuration.nodes} nodes" if configuration.nodes > 1 else ""
        yield f"\neach run starts{where}\n{started['command']}"


def _started(prepared: Prepared) -> dict[str, Any]:
    """What would be submitted, if anything, and what each run would start."""
    started: dict[str, Any] = {}
    name = prepared.choice.name
    if kind_of(name).one_node and prepared.configuration.nodes > 1:
        started["command"] = f"(nothing: launcher {name} reaches this machine only)"
    elif prepared.launcher is not None:
        started["command"] = prepared.launcher.describe(prepared.configuration)
        if "\n" not in started["command"]:
            started["argv"] = shlex.split(started["command"])
    if prepared.submission is not None:
        try:
            started["submits"] = prepared.submission.describe()
        except FourminError as error:
            started["submits"] = f"(nothing: {error.what})"
    return started
