"""One step of a configuration on a system profile."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from fourmin.estimate.collectives import Grouping, choose, native
from fourmin.estimate.compute import PassTime, pass_time
from fourmin.estimate.fitted import Fitted, fitted
from fourmin.estimate.models import fuse, load_shape
from fourmin.estimate.profile import Profile
from fourmin.estimate.timeline import Reduction, StepTime, overlap
from fourmin.recipe.configuration import Configuration

FORWARD_SHARE = 1 / 3
_FP32_BYTES = 4


@dataclass(frozen=True, kw_only=True)
class Work:
    """What of a configuration decides a step's time. Batches are images, thresholds bytes."""

    model: str
    precision: str
    image_size: int
    local_batch: int
    workers: int
    per_node: int
    step: str = "eager"
    accumulation: int = 1
    allreduce: str = "native"
    group_size: int = 0
    fusion_threshold: int = 4 << 20
    gradient_dtype: str = "fp32"
    hybrid_threshold: int = 0
    tuning: tuple[str, ...] = ()
    bn_span: int = 1

    @classmethod
    def of(cls, config: Configuration) -> Work:
        """The work of a configuration whose device and precision are resolved."""
        return cls(
            model=config.model,
            precision=config.precision,
            image_size=config.image_size,
            local_batch=config.local_batch_size,
            workers=config.workers,
            per_node=config.procs_per_node,
            step=config.step,
            accumulation=config.gradient_accumulation_steps,
            allreduce=config.allreduce,
            group_size=config.group_size,
            fusion_threshold=config.fusion_threshold,
            gradient_dtype=config.gradient_dtype,
            hybrid_threshold=config.hybrid_threshold,
            tuning=config.tuning,
            bn_span=config.bn_span,
        )

    @property
    def grouping(self) -> Grouping:
        """How the workers are grouped."""
        return Grouping(self.workers, self.per_node, self.group_size or self.per_node)

    @property
    def images(self) -> int:
        """Images of a step, all workers together."""
        return self.workers * self.local_batch * self.accumulation


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


def estimate_step(work: Work, profile: Profile, numbers: Fitted | None = None) -> Step:
    """The step of `work` on a profile.

    Raises FourminError for a model or precision of which nothing is known.
    """
    numbers = numbers or fitted()
    compute = pass_time(
        profile,
        model=work.model,
        precision=work.precision,
        step=work.step,
        image_size=work.image_size,
        batch=work.local_batch,
        fixed_seconds=numbers.fixed_pass_seconds,
    )
    reductions = reduce_buckets(work, profile)
    time = overlap(
        [compute.seconds] * work.accumulation,
        reductions,
        numbers.overlap_cost,
        _statistics(work, profile),
    )
    rate = work.images / time.seconds
    return Step(work.workers, work.local_batch, time, rate, reductions, compute)


@cache
def reduce_buckets(work: Work, profile: Profile) -> tuple[Reduction, ...]:
    """The all-reduce of each bucket, in the order of launch; none with one worker."""
    if work.workers == 1:
        return ()
    reductions = []
    for bucket in fuse(load_shape(work.model), work.fusion_threshold, work.gradient_dtype):
        algorithm, seconds = choose(
            work.allreduce,
            bucket.nbytes,
            work.grouping,
            profile,
            hybrid_threshold=work.hybrid_threshold,
            tuning=work.tuning,
        )
        reductions.append(Reduction(bucket.nbytes, bucket.ready, algorithm, seconds))
    return tuple(reductions)


def _statistics(work: Work, profile: Profile) -> float:
    """Seconds in which groups of `bn_span` workers share batch statistics, each pass twice a layer.

    Nothing hides it: the next layer waits for it.
    """
    if work.bn_span == 1:
        return 0.0
    group = Grouping(work.bn_span, min(work.bn_span, work.per_node), work.bn_span)
    return work.accumulation * sum(
        2 * native(2 * channels * _FP32_BYTES, group, profile)
        for channels in load_shape(work.model).batch_norm_channels
    )


def evaluation_seconds(step: Step, samples: int) -> float:
    """Forward passes over `samples` images, in the training batch, on all workers."""
    passes = -(-samples // (step.workers * step.local_batch))
    return passes * step.compute.seconds * FORWARD_SHARE
