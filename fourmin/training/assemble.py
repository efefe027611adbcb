"""All that one worker trains with, built, warmed up and set to its initial weights."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, cast

import torch
from torch import nn
from torch.optim import Optimizer

from fourmin.datasets.manifest import Manifest
from fourmin.launch.job import Job
from fourmin.log.writer import RunLog
from fourmin.recipe.algorithms import PIPELINE, is_asynchronous
from fourmin.recipe.schedule import LearningRateSchedule
from fourmin.ruleset import Benchmark
from fourmin.training.backends import keep_freed_memory
from fourmin.training.comm.build import build_reducer
from fourmin.training.comm.fusion import GradientReducer
from fourmin.training.comm.process_group import WorkerPlace
from fourmin.training.data.geometry import evaluation_order, evaluation_window
from fourmin.training.data.loader import split_arrays
from fourmin.training.data.order import OrderDigest, evaluation_batches
from fourmin.training.energy import RunEnergy
from fourmin.training.evaluate import count, synthetic_batch
from fourmin.training.fast.choose import Step, build_step, refuse_another_step
from fourmin.training.heartbeat import Heartbeat
from fourmin.training.kept_state import States
from fourmin.training.models import build_model
from fourmin.training.models.batchnorm import apply_bn_span
from fourmin.training.models.init import initialize
from fourmin.training.models.resnet import ResNet, recompute_blocks
from fourmin.training.optim.build import build_optimizer
from fourmin.training.precision import Precision
from fourmin.training.resume import Checkpoints
from fourmin.training.step import EagerStep, HostUpdate

if TYPE_CHECKING:
    from fourmin.training.algorithms.pipeline import PipelineStep

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
    pipeline: PipelineStep | None
    """The step, where ranks have layers of their own."""
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
    precision = precision_of(job, place)
    model = model_of(job, place)
    reducer = build_reducer(config, model.named_parameters(), place)
    if reducer.compression:
        reducer.compression.begin(config, 1)
    energy = RunEnergy(place)
    optimizer, step = _optimizer_and_step(job, schedule, place, precision, model, reducer)
    # On a CPU a warm-up buys time alone, and a replay is not timed; elsewhere than here workers do
    # the work of an asynchronous algorithm.
    if not (config.device == "cpu" and (job.replay or is_asynchronous(config))):
        heartbeat.took(_warm_up(job, place, step))
        if place.device.type == "cuda" and not job.replay:
            _warm_up_evaluation(job, place, manifest, model, precision)
        precision = precision_of(job, place)
        if reducer.compression:
            reducer.compression.reset()
        if isinstance(step, EagerStep):
            optimizer, step = _optimizer_and_step(job, schedule, place, precision, model, reducer)
        else:
            # Its kernels and graphs are what the warm-up was for: they stay.
            step.reset(precision)
        keep_freed_memory(config.device, config.procs_per_node)
    initialize(model, job.seed, config.initialization, config.zero_last_gamma)
    writes = _is_saved(job, benchmark, schedule)
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
        pipeline=cast("PipelineStep", step) if config.algorithm == PIPELINE else None,
        energy=energy,
        checkpoints=Checkpoints(job.checkpoints, place, log, writes=writes),
        states=States(job, place, log) if config.deterministic else None,
        order=OrderDigest(),
    )


def precision_of(job: Job, place: WorkerPlace) -> Precision:
    """The precision of a run, without history."""
    config = job.configuration
    return Precision(
        config.precision, place.device, config.loss_scale, config.loss_scale_growth_interval
    )


def model_of(job: Job, place: WorkerPlace) -> nn.Module:
    """The model of a run, on its device and to be trained; its weights are any."""
    config = job.configuration
    model = build_model(
        config.model,
        num_classes=int(job.dataset["classes"]),
        bn_momentum=config.bn_momentum,
        bn_epsilon=config.bn_epsilon,
    )
    if config.recompute:
        recompute_blocks(model)
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
    if config.algorithm == PIPELINE:
        return optimizer, _pipeline_step(job, schedule, precision, model, optimizer, reducer)
    step = build_step(
        config.step,
        model,
        optimizer,
        reducer,
        precision,
        schedule,
        config.label_smoothing,
        total_steps=schedule.steps_before(config.max_epochs + 1),
        growth_interval=config.loss_scale_growth_interval,
        world_size=place.world_size,
        say=refuse_another_step,
    )
    return optimizer, step


def _pipeline_step(
    job: Job,
    schedule: LearningRateSchedule,
    precision: Precision,
    model: nn.Module,
    optimizer: Optimizer,
    reducer: GradientReducer,
) -> PipelineStep:
    # Imported for those runs alone: it takes a while.
    from fourmin.training.algorithms.pipeline import Pipeline, PipelineStep

    config = job.configuration
    assert isinstance(model, ResNet)
    pipeline = Pipeline(
        model,
        synthetic_batch(config.local_batch_size, config.image_size, precision.device)[0],
        config.workers * config.gradient_accumulation_steps,
        precision,
        config.label_smoothing,
    )
    update = HostUpdate(optimizer, (), precision, schedule)
    return PipelineStep(pipeline, optimizer, update, reducer, precision)


def _warm_up(job: Job, place: WorkerPlace, step: Step) -> float:
    """Train on synthetic images of every size and number that comes, so that no kernel is chosen,
    compiled or captured on the clock.

    Returns the seconds that a warm step took, of the slowest kind.
    """
    kinds = {
        (own.local_batch_size, own.image_size, own.gradient_accumulation_steps)
        for _, own in job.configuration.stretches()
    }
    slowest = 0.0
    for images, size, passes in sorted(kinds):
        batch = synthetic_batch(images, size, place.device)
        for _ in range(WARMUP_STEPS):
            began = time.perf_counter()
            step([batch] * passes)
        slowest = max(slowest, time.perf_counter() - began)
    return slowest


def _warm_up_evaluation(
    job: Job, place: WorkerPlace, manifest: Manifest, model: nn.Module, precision: Precision
) -> None:
    """The same for this rank's batches of an evaluation: cuDNN chooses by their size."""
    _, widths, heights = split_arrays(manifest.split("val"))
    kinds = set()
    for _, own in job.configuration.stretches():
        order = evaluation_order(widths, heights, own.eval_rectangles)
        share = evaluation_batches(len(order), place.rank, place.world_size, own.local_batch_size)
        for part in (order[batch] for batch in share):
            window = evaluation_window(
                widths[part], heights[part], own.image_size, own.eval_rectangles
            )
            kinds.add((len(part), *window))
    batches = [
        synthetic_batch(size, height, place.device, width) for size, height, width in sorted(kinds)
    ]
    count(model, batches, precision)


def _is_saved(job: Job, benchmark: Benchmark, schedule: LearningRateSchedule) -> bool:
    """Whether the run can come to an epoch after which it is evaluated and goes on."""
    config = job.configuration
    evaluated = benchmark.scheduled(config.max_epochs - 1, config.eval_offset)
    limit = config.max_steps
    return config.checkpoints and any(
        limit is None or schedule.steps_before(epoch + 1) < limit for epoch in evaluated
    )
