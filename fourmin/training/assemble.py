"""All that one worker trains with, built, warmed up and set to its initial weights."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import timedelta

import torch
from torch import nn
from torch.optim import Optimizer

from fourmin.datasets.manifest import Manifest
from fourmin.launch.job import Job
from fourmin.log.writer import RunLog
from fourmin.recipe.schedule import LearningRateSchedule
from fourmin.ruleset import Benchmark
from fourmin.training.backends import keep_freed_memory
from fourmin.training.comm.build import build_reducer
from fourmin.training.comm.fusion import GradientReducer
from fourmin.training.comm.process_group import WorkerPlace
from fourmin.training.data.order import OrderDigest, evaluation_batches
from fourmin.training.energy import RunEnergy
from fourmin.training.evaluate import count, synthetic_batch
from fourmin.training.fast.choose import Step, build_step, refuse_another_step
from fourmin.training.heartbeat import Heartbeat
from fourmin.training.kept_state import States
from fourmin.training.models import build_model
from fourmin.training.models.batchnorm import apply_bn_span
from fourmin.training.models.init import initialize
from fourmin.training.optim.build import build_optimizer
from fourmin.training.precision import Precision
from fourmin.training.resume import Checkpoints
from fourmin.training.step import EagerStep

WARMUP_STEPS = 2


@dataclass(frozen=True)
class Assembly:
    """One worker's model and everything around it; only what these hold changes in training."""

    job: Job
    benchmark: Benchmark
    manifest: Manifest
    place: WorkerPlace
    log: RunLog
    heartbeat: Heartbeat
    schedule: LearningRateSchedule
    precision: Precision
    model: nn.Module
    reducer: GradientReducer
    optimizer: Optimizer
    step: Step
    energy: RunEnergy
    checkpoints: Checkpoints
    states: States | None
    """Of a deterministic run."""
    order: OrderDigest


def assemble(
    job: Job,
    benchmark: Benchmark,
    manifest: Manifest,
    schedule: LearningRateSchedule,
    place: WorkerPlace,
    log: RunLog,
    heartbeat: Heartbeat,
) -> Assembly:
    """Build all of it; nothing is compiled after this. All ranks call it at the same point.

    What the warm-up changes is made anew after it: optimizer, schedule and loss scale, then weights
    and statistics; random state follows from the seed. Raises FourminError for what does not fit.
    """
    config = job.configuration
    precision = _precision(job, place)
    model = _model(job, place)
    reducer = build_reducer(config, model.named_parameters(), place)
    energy = RunEnergy(place)
    optimizer, step = _optimizer_and_step(job, schedule, place, precision, model, reducer)
    # On a CPU a warm-up buys time alone, and a replay is not timed.
    if not (job.replay and config.device == "cpu"):
        heartbeat.took(_warm_up(job, place, step))
        if place.device.type == "cuda" and not job.replay:
            _warm_up_evaluation(job, place, model, precision)
        precision = _precision(job, place)
        if isinstance(step, EagerStep):
            optimizer, step = _optimizer_and_step(job, schedule, place, precision, model, reducer)
        else:
            # Its kernels and graphs are what the warm-up was for: they stay.
            step.reset(precision)
        keep_freed_memory(config.device, config.procs_per_node)
    initialize(model, job.seed, config.initialization, config.zero_last_gamma)
    writes = _is_saved(job, benchmark, schedule.steps_per_epoch)
    return Assembly(
        job=job,
        benchmark=benchmark,
        manifest=manifest,
        place=place,
        log=log,
        heartbeat=heartbeat,
        schedule=schedule,
        precision=precision,
        model=model,
        reducer=reducer,
        optimizer=optimizer,
        step=step,
        energy=energy,
        checkpoints=Checkpoints(job.checkpoints, place, log, writes=writes),
        states=States(job, place, log) if config.deterministic else None,
        order=OrderDigest(),
    )


def _precision(job: Job, place: WorkerPlace) -> Precision:
    config = job.configuration
    return Precision(
        config.precision, place.device, config.loss_scale, config.loss_scale_growth_interval
    )


def _model(job: Job, place: WorkerPlace) -> nn.Module:
    config = job.configuration
    model = build_model(
        config.model,
        num_classes=int(job.dataset["classes"]),
        bn_momentum=config.bn_momentum,
        bn_epsilon=config.bn_epsilon,
    )
    model.to(place.device).to(memory_format=torch.channels_last)
    apply_bn_span(
        model,
        config.bn_span,
        place.world_size,
        timeout=timedelta(seconds=config.collective_timeout_seconds),
    )
    return model.train()


def _optimizer_and_step(
    job: Job,
    schedule: LearningRateSchedule,
    place: WorkerPlace,
    precision: Precision,
    model: nn.Module,
    reducer: GradientReducer,
) -> tuple[Optimizer, Step]:
    """Both without history."""
    config = job.configuration
    optimizer = build_optimizer(model, config)
    step = build_step(
        config.step,
        model,
        optimizer,
        reducer,
        precision,
        schedule,
        config.label_smoothing,
        total_steps=config.max_epochs * schedule.steps_per_epoch,
        growth_interval=config.loss_scale_growth_interval,
        world_size=place.world_size,
        say=refuse_another_step,
    )
    return optimizer, step


def _warm_up(job: Job, place: WorkerPlace, step: Step) -> float:
    """Train on synthetic images, so that no kernel is chosen or compiled on the clock.

    Returns the seconds that a warm step took.
    """
    config = job.configuration
    batch = synthetic_batch(config.local_batch_size, config.image_size, place.device)
    for _ in range(WARMUP_STEPS):
        began = time.perf_counter()
        step([batch] * config.gradient_accumulation_steps)
    return time.perf_counter() - began


def _warm_up_evaluation(
    job: Job, place: WorkerPlace, model: nn.Module, precision: Precision
) -> None:
    """The same for this rank's batches of an evaluation: cuDNN chooses by their size."""
    config = job.configuration
    images, size = int(job.dataset["eval_samples"]), config.local_batch_size
    sizes = set(map(len, evaluation_batches(images, place.rank, place.world_size, size)))
    batches = [synthetic_batch(size, config.image_size, place.device) for size in sizes]
    count(model, batches, precision)


def _is_saved(job: Job, benchmark: Benchmark, steps_per_epoch: int) -> bool:
    """Whether the run can come to an epoch after which it is evaluated and goes on."""
    config = job.configuration
    evaluated = benchmark.scheduled(config.max_epochs - 1, config.eval_offset)
    whole = None if config.max_steps is None else config.max_steps / steps_per_epoch
    return config.checkpoints and any(whole is None or epoch < whole for epoch in evaluated)
