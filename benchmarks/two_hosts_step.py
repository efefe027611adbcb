"""A training step of the preset `digits` on the two hosts; started by two_hosts.py in each.

Takes turns in blocks of steps between fourmin's step with the tuned all-reduce and torch's
DistributedDataParallel with its defaults (same model, images, precision and optimizer), and then
between reduction during the backward pass and the same buckets reduced after it, by torus.
"""

from __future__ import annotations

import dataclasses
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from fourmin.recipe.configuration import Configuration
from fourmin.recipe.presets import load_preset
from fourmin.recipe.schedule import LearningRateSchedule
from fourmin.training.comm import process_group
from fourmin.training.comm.build import build_reducer
from fourmin.training.comm.process_group import WorkerPlace
from fourmin.training.models import build_model
from fourmin.training.models.init import initialize
from fourmin.training.optim.build import build_optimizer, set_learning_rate
from fourmin.training.precision import Precision
from fourmin.training.step import EagerStep, HostUpdate

TRAIN_SAMPLES = 1437
SEED = 3
BLOCK = 5
"""Steps that are timed together."""
OVERLAP_BLOCK = 2
OVERLAP_THRESHOLD = 48 << 10
"""Bytes: buckets that end with the stages of ResNet-8, so that only the first layers' gradients
(22 KB of 312) are left when the backward pass ends."""
OVERLAP_BATCH = 128
"""Images of a rank there: the backward pass of 8 images on a quarter of a core is shorter than
the messages, and cannot hide them."""


def main() -> None:
    """Arguments: a JSON file with `tuning` and `blocks`, and where to write the result."""
    plan = json.loads(Path(sys.argv[1]).read_text())
    place = process_group.init_process_group("cpu", 120.0)
    torch.set_num_threads(1)
    config = dataclasses.replace(
        load_preset("digits"),
        nodes=place.world_size // place.ranks_per_node,
        procs_per_node=place.ranks_per_node,
        allreduce="tuned",
        tuning=tuple(plan["tuning"]),
    ).resolved(0, keep_workers=True)
    torch.manual_seed(place.rank)
    shape = (config.local_batch_size, 3, config.image_size, config.image_size)
    images = torch.randn(shape).to(memory_format=torch.channels_last)
    labels = torch.randint(0, 10, (config.local_batch_size,))
    whole, close_whole = reduced_step(config, place, overlap=True)
    steps = {"tuned": lambda: whole(images, labels), "ddp": ddp_step(config, images, labels)}
    seconds = take_turns(steps, plan["blocks"])
    rates = {name: config.global_batch_size / value for name, value in seconds.items()}
    close_whole()

    more_images = images.repeat(OVERLAP_BATCH // len(images) or 1, 1, 1, 1)
    more_images = more_images.to(memory_format=torch.channels_last)
    more_labels = labels.repeat(OVERLAP_BATCH // len(labels) or 1)
    exposed: dict[str, list[float]] = {"overlapped": [], "after_backward": []}
    # Three rounds a bucket: each needs all ranks to get a turn beside the backward passes.
    torus = dataclasses.replace(config, allreduce="torus", fusion_threshold=OVERLAP_THRESHOLD)
    made = {name: reduced_step(torus, place, overlap=name == "overlapped") for name in exposed}
    for turn in range(plan["blocks"] // 2 + 1):
        for name, (step, _) in made.items():
            dist.barrier()
            waits = [step(more_images, more_labels) for _ in range(OVERLAP_BLOCK)]
            if turn:  # the first block warms up
                exposed[name].extend(least_over_ranks(waits))
    for _, close in made.values():
        close()
    if place.rank == 0:
        medians = {name: statistics.median(waits) * 1000 for name, waits in exposed.items()}
        Path(sys.argv[2]).write_text(json.dumps({"step": rates, "exposed_ms": medians}))
    dist.barrier()
    process_group.destroy()


def model_of(config: Configuration) -> nn.Module:
    """The preset's model with the same weights on every rank."""
    model = build_model(
        config.model, num_classes=10, bn_momentum=config.bn_momentum, bn_epsilon=config.bn_epsilon
    ).to(memory_format=torch.channels_last)
    initialize(model, SEED, config.initialization, config.zero_last_gamma)
    return model.train()


def reduced_step(
    config: Configuration, place: WorkerPlace, *, overlap: bool
) -> tuple[Callable[[Tensor, Tensor], float], Callable[[], None]]:
    """fourmin's own step; it returns the exposed seconds. And what ends it."""
    model = model_of(config)
    reducer = build_reducer(config, model.named_parameters(), place, overlap=overlap)
    precision = Precision(config.precision, place.device, config.loss_scale, 2000)
    schedule = LearningRateSchedule(config, config.steps_per_epoch(TRAIN_SAMPLES))
    update = HostUpdate(build_optimizer(model, config), reducer.flat_buffers, precision, schedule)
    step = EagerStep(model, update, reducer, precision, config.label_smoothing)

    def once(images: Tensor, labels: Tensor) -> float:
        return step([(images, labels)])[1].seconds()

    return once, reducer.close


def ddp_step(config: Configuration, images: Tensor, labels: Tensor) -> Callable[[], None]:
    """The same step with DistributedDataParallel as it comes."""
    model = model_of(config)
    parallel = DistributedDataParallel(model)
    optimizer = build_optimizer(model, config)
    schedule = LearningRateSchedule(config, config.steps_per_epoch(TRAIN_SAMPLES))
    precision = Precision(config.precision, torch.device("cpu"), config.loss_scale, 2000)
    done = 0

    def step() -> None:
        nonlocal done
        optimizer.zero_grad()
        with precision.autocast():
            logits = parallel(images)
        functional.cross_entropy(
            logits.float(), labels, label_smoothing=config.label_smoothing
        ).backward()
        set_learning_rate(optimizer, schedule(done))
        optimizer.step()
        done += 1

    return step


def take_turns(steps: dict[str, Callable[[], object]], blocks: int) -> dict[str, float]:
    """Median seconds of a step of each, from blocks timed by the slowest rank."""
    times: dict[str, list[float]] = {name: [] for name in steps}
    for turn in range(blocks + 1):
        for name, step in steps.items():
            dist.barrier()
            start = time.perf_counter()
            for _ in range(BLOCK):
                step()
            taken = torch.tensor(time.perf_counter() - start, dtype=torch.float64)
            dist.all_reduce(taken, op=dist.ReduceOp.MAX)
            if turn:  # the first block warms up
                times[name].append(float(taken) / BLOCK)
    return {name: statistics.median(values) for name, values in times.items()}


def least_over_ranks(waits: Sequence[float]) -> list[float]:
    """The wait of the rank that came last to each step's end: the others also wait for it."""
    least = torch.tensor(waits, dtype=torch.float64)
    dist.all_reduce(least, op=dist.ReduceOp.MIN)
    values: list[float] = least.tolist()
    return values


if __name__ == "__main__":
    main()
    # Without finalizers: threads of torch can still be there, and abort the process.
    os._exit(0)
