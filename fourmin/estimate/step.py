"""One step of a configuration on a system profile."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

from fourmin.estimate.collectives import Cost, Grouping, choose, native
from fourmin.estimate.compute import RECOMPUTE, PassTime, pass_time
from fourmin.estimate.fitted import Fitted, fitted
from fourmin.estimate.models import FP32_BYTES, WIRE_BYTES, BucketShape, fuse, load_shape
from fourmin.estimate.profile import Profile
from fourmin.estimate.timeline import Reduction, StepTime, overlap
from fourmin.recipe.compression import ENTRY_BYTES, sent_elements
from fourmin.recipe.configuration import Configuration

FORWARD_SHARE = 1 / 3


def spread(config: Configuration, nodes: int, per_node: int, images: int) -> Configuration:
    """`config` on so many nodes and workers of each, with `images` a worker and pass."""
    batch = nodes * per_node * images * config.gradient_accumulation_steps
    return replace(config, nodes=nodes, procs_per_node=per_node, global_batch_size=batch)


def grouping(config: Configuration) -> Grouping:
    node = config.procs_per_node
    itemsize = WIRE_BYTES[config.gradient_dtype]
    return Grouping(config.workers, node, config.group_size or node, itemsize)


@dataclass(frozen=True)
class Step:
    """A step on so many workers, and what its compute time rests on."""

    workers: int
    local_batch: int
    time: StepTime
    images_per_second: float
    """Of all workers."""
    reductions: tuple[Reduction, ...]
    compute: PassTime
    forward_seconds: float
    """Of its forward pass alone."""


def estimate_step(config: Configuration, profile: Profile, numbers: Fitted | None = None) -> Step:
    """The step of a configuration, whose device and precision are resolved, on a profile.

    Raises FourminError for a model or precision of which nothing is known.
    """
    numbers = numbers or fitted()
    measured = config.recompute and any(one.step == RECOMPUTE for one in profile.compute)
    compute = pass_time(
        profile,
        model=config.model,
        precision=config.precision,
        step=RECOMPUTE if measured else config.step,
        image_size=config.image_size,
        batch=config.local_batch_size,
        fixed_seconds=numbers.fixed_pass_seconds,
    )
    if config.recompute and not measured:
        source = f"{compute.source}, and a forward pass more"
        compute = replace(compute, seconds=compute.seconds * (1 + FORWARD_SHARE), source=source)
    forward = FORWARD_SHARE / (1 + FORWARD_SHARE) if config.recompute else FORWARD_SHARE
    reductions = reduce_buckets(config, profile)
    time = overlap(
        [compute.seconds] * config.gradient_accumulation_steps,
        reductions,
        numbers.overlap_cost,
        _statistics(config, profile),
    )
    rate = config.global_batch_size / time.seconds
    return Step(
        config.workers, config.local_batch_size, time, rate, reductions, compute,
        compute.seconds * forward,
    )  # fmt: skip


@cache
def reduce_buckets(config: Configuration, profile: Profile) -> tuple[Reduction, ...]:
    """The all-reduce of each bucket, in the order of launch; none with one worker."""
    if config.workers == 1:
        return ()
    reductions = []
    for bucket in fuse(load_shape(config.model), config.fusion_threshold, config.gradient_dtype):
        if config.gradient_density < 1:
            reductions.append(_compressed(bucket, config, profile))
            continue
        algorithm, cost = choose(config.allreduce, bucket.nbytes, grouping(config), profile, config)
        reductions.append(Reduction(bucket.nbytes, bucket.ready, algorithm, cost))
    return tuple(reductions)


def _compressed(bucket: BucketShape, config: Configuration, profile: Profile) -> Reduction:
    """What is sent of a bucket after the warm-up: the largest of its weights, gathered by all, and
    the rest summed. The time to find them is left out: it depends on processors, not on links.
    """
    sent = sum(sent_elements(elements, config.gradient_density) for elements in bucket.weights)
    rest = bucket.nbytes - FP32_BYTES * sum(bucket.weights)
    algorithm, whole = choose(config.allreduce, rest, grouping(config), profile, config)
    shared = config.workers * ENTRY_BYTES * sent
    parts = (native(shared, grouping(config), profile, "all_gather"), whole)
    cost = Cost(
        sum(part.seconds for part in parts),
        tuple(kind for part in parts for kind in part.collectives),
        sum(part.rounds for part in parts),
        ENTRY_BYTES * sent + whole.nbytes,
        sum(part.hops for part in parts),
        sum(part.moved for part in parts),
    )
    return Reduction(ENTRY_BYTES * sent + rest, bucket.ready, algorithm, cost)


def _statistics(config: Configuration, profile: Profile) -> float:
    """Seconds in which groups of `bn_span` workers share batch statistics, each pass twice a layer.

    Nothing hides it: the next layer waits for it.
    """
    span = config.bn_span
    if span == 1:
        return 0.0
    group = Grouping(span, min(span, config.procs_per_node), span)
    return config.gradient_accumulation_steps * sum(
        2 * native(2 * channels * FP32_BYTES, group, profile).seconds
        for channels in load_shape(config.model).batch_norm_channels
    )


def evaluation_seconds(step: Step, samples: int) -> float:
    """Forward passes over `samples` images, in the training batch, on all workers."""
    passes = -(-samples // (step.workers * step.local_batch))
    return passes * step.forward_seconds
