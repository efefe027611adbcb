"""What a machine decides of a configuration: device, precision, workers, decoder."""

from __future__ import annotations

import dataclasses
import math
import os
from typing import TYPE_CHECKING

from fourmin.recipe.fields import AUTO
from fourmin.system.hardware import computes_bf16

if TYPE_CHECKING:
    from fourmin.recipe.configuration import Configuration


def resolved(
    config: Configuration,
    gpus: int,
    *,
    keep_workers: bool,
    cpus: int | None = None,
    cpu_precision: str | None = None,
) -> Configuration:
    """What this machine decides: device, precision, and workers a node unless kept.

    The step is decided for the CPU; for GPUs `steps.with_step` does, from those of the nodes.

    `gpus` and `cpus` are how many this process may use (cpus None: those of its affinity).
    The preset's number of workers is the most that are started. On one node each worker has
    a GPU of its own or, on the CPU, a core of its own, and there the number is lowered to one
    that shares the batch equally. `cpu_precision` is what a CPU takes where nothing is said
    (None: what this one is made for). A machine without GPUs does not decide for `device=cuda`,
    nor does this node for several.
    """
    workers = config.procs_per_node
    device = config.device
    if device == AUTO:
        device = "cuda" if gpus > 0 else "cpu"
    if config.nodes == 1 and not keep_workers:
        if device == "cpu":
            workers = _workers_for(config, cpus or len(os.sched_getaffinity(0)))
        elif gpus > 0:
            workers = min(workers, gpus)
    precision = config.precision
    if precision == AUTO:
        precision = "fp16" if device == "cuda" else cpu_precision or usual_cpu_precision()
    step = "eager" if config.step == AUTO and device == "cpu" else config.step
    decoder = config.decoder
    if decoder == AUTO:
        decoder = usual_decoder(device, config.loader, cached=config.decoded_cache > 0)
    return dataclasses.replace(
        config,
        device=device,
        precision=precision,
        decoder=decoder,
        step=step,
        procs_per_node=workers,
    )


def _workers_for(config: Configuration, cpus: int) -> int:
    """The largest number of workers for `cpus` cores that shares the batch equally."""
    most = max(1, min(config.procs_per_node, cpus))
    images = math.gcd(
        *(c.global_batch_size // c.gradient_accumulation_steps for _, c in config.stretches())
    )
    return next((n for n in range(most, 0, -1) if images > 0 and images % n == 0), most)


def usual_cpu_precision() -> str:
    """BF16 where the processor has instructions for it; emulated it is far slower than FP32."""
    return "bf16" if computes_bf16() else "fp32"


def usual_decoder(device: str, loader: str, *, cached: bool = False) -> str:
    """The GPU's where there is one, unless the pixels are to be kept in the host's memory."""
    return "mixed" if device == "cuda" and loader == "dali" and not cached else "cpu"
