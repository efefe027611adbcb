"""`fourmin bench step`: settles what to measure and has it measured.

The measuring itself is `fourmin.training.measure`.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from fourmin.base.errors import FourminError, list_names
from fourmin.bench.stack import load_measurer
from fourmin.bench.step_report import PEERS, StepOptions, StepReport
from fourmin.recipe.configuration import AUTO, FIELDS
from fourmin.recipe.presets import load_preset
from fourmin.ruleset import load_ruleset


def check_peers(names: tuple[str, ...]) -> None:
    """Raise FourminError for a peer that does not exist."""
    for name in names:
        if name not in PEERS:
            raise FourminError(f"no peer {name!r}", next_step=f"known: {list_names([*PEERS])}")


def measure_and_report(
    *,
    preset: str | None,
    batch_sizes: tuple[int, ...],
    peers: tuple[str, ...],
    device: str,
    precision: str,
    image_size: int | None,
    repeats: int,
    warmup: int,
    threads: int | None,
    say: Callable[[str], None],
) -> StepReport:
    """Settle what was left open by what this machine has, and measure.

    Raises FourminError for an unknown preset, peer, device or precision, for a GPU that is not
    there, and without the training stack.
    """
    check_peers(peers)
    for name, value in (("device", device), ("precision", precision)):
        if value != AUTO and value not in FIELDS[name].choices:
            raise FourminError(
                f"unknown {name} {value!r}",
                next_step=f"known: {list_names([AUTO, *FIELDS[name].choices])}",
            )
    measurer, gpus = load_measurer("measure", device)
    if device == AUTO:
        device = "cuda" if gpus else "cpu"
    on_gpu = device == "cuda"
    config = load_preset(preset or ("resnet50-64k" if on_gpu else "digits"))
    if precision == AUTO:
        precision = "fp16" if on_gpu else "bf16"
    options = StepOptions(
        model=config.model,
        device=device,
        precision=precision,
        batch_sizes=batch_sizes or ((256,) if on_gpu else (128,)),
        image_size=image_size or config.image_size,
        classes=int(load_ruleset().benchmark(config.benchmark).dataset["classes"]),
        peers=peers or (tuple(PEERS) if on_gpu else ("eager-nchw", "eager")),
        warmup=warmup,
        repeats=repeats,
        threads=threads or len(os.sched_getaffinity(0)),
    )
    report: StepReport = measurer.measure_steps(options, config, say)
    return report
