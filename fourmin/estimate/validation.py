"""The cost model against what was measured: fitted to all systems but one, held against it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

from fourmin.base.toml import tomllib
from fourmin.estimate.collectives import best_hybrid_threshold
from fourmin.estimate.fitted import PROBABILITY, Fitted
from fourmin.estimate.models import fuse, load_shape
from fourmin.estimate.profile import Compute, Profile, load_profile
from fourmin.estimate.step import Step, estimate_step, evaluation_seconds, grouping, spread
from fourmin.recipe.configuration import Configuration
from fourmin.recipe.presets import load_preset

TRAIN_IMAGES, EVAL_IMAGES, EVAL_EPOCHS = 1_281_167, 50_000, 4
"""ImageNet's images, and MLPerf's epochs from one evaluation to the next: its images/s have the
evaluations in them."""
PAPER_PROFILE = "p40-100gbe"
PAPER_BATCH = 64
FUSED = 4 << 20
"""Bytes of a bucket where a source does not say it: this project's default."""
FIXED_RANGE = (0.0, 0.01)
OVERLAP_RANGE = (0.0, 1.0)
"""Where the fitted numbers are looked for: seconds, and a share."""
_STEPS, _ROUNDS = 10, 5


@dataclass(frozen=True)
class Observation:
    """One measured efficiency (percent), of one configuration relative to another."""

    system: str
    variant: str
    source: str
    fitted: bool
    profile: Profile
    here: Configuration
    base: Configuration | None
    """None: one worker alone, without communication."""
    efficiency: float
    own: bool = False
    """Whether this project measured it."""


@dataclass(frozen=True)
class Compared:
    """An observation with the model's efficiency (percent)."""

    observation: Observation
    estimated: float

    @property
    def error(self) -> float:
        """Estimated less measured, in points."""
        return self.estimated - self.observation.efficiency

    @property
    def relative(self) -> float:
        """The same as a share of what was measured."""
        return self.error / self.observation.efficiency

    @property
    def off(self) -> float:
        """How far the measured one lies from the estimate, as a share of the estimate."""
        return abs(self.error) / self.estimated


@dataclass(frozen=True)
class LeftOut:
    """A system that nothing was fitted to: the numbers fitted without it, what they give, and
    the mean efficiency of what it was fitted to, which a constant would give.
    """

    system: str
    numbers: Fitted
    compared: tuple[Compared, ...]
    constant: float


@dataclass(frozen=True)
class Statement:
    """What the paper says of itself, and what the models say."""

    text: str
    published: str
    estimated: str


@dataclass(frozen=True)
class Validation:
    """All comparisons: each system left out once, what was never fitted, and statements that
    cannot be fitted.
    """

    numbers: Fitted
    """Fitted to all systems."""
    left_out: tuple[LeftOut, ...]
    further: tuple[Compared, ...]
    statements: tuple[Statement, ...]

    @property
    def compared(self) -> tuple[Compared, ...]:
        """All left-out observations."""
        return tuple(one for out in self.left_out for one in out.compared)

    @property
    def mean_error(self) -> float:
        """Mean absolute error over all left-out observations, in points of efficiency."""
        return fmean(abs(one.error) for one in self.compared)

    @property
    def constant_error(self) -> float:
        """The same of a constant."""
        return fmean(
            abs(out.constant - one.observation.efficiency)
            for out in self.left_out
            for one in out.compared
        )

    @property
    def interval(self) -> float:
        """Half of the interval for another system, as a share of its estimated efficiency."""
        return quantile([one.off for one in self.compared])

    @property
    def own_intervals(self) -> tuple[tuple[Compared, float], ...]:
        """Each left-out observation with the half width, in points, that all others give it."""
        return tuple(
            (one, one.estimated * quantile([each.off for each in self.compared if each is not one]))
            for one in self.compared
        )

    @property
    def further_error(self) -> float:
        """The mean absolute error on other people's systems that it was never fitted to."""
        return fmean(abs(one.error) for one in self.others)

    @property
    def largest_error(self) -> float:
        """The largest error on any of these."""
        return max(abs(one.error) for one in (*self.compared, *self.others))

    @property
    def own_error(self) -> float:
        """The mean absolute error on this project's own measurements."""
        return fmean(abs(one.error) for one in self.further if one.observation.own)

    @property
    def others(self) -> list[Compared]:
        """Further systems that are not this project's."""
        return [one for one in self.further if not one.observation.own]


def quantile(errors: Sequence[float]) -> float:
    """What one more error of their kind stays below with `PROBABILITY` (split conformal prediction:
    of n errors the one in place ceil((n + 1) PROBABILITY)).
    """
    return sorted(errors)[min(len(errors), math.ceil((len(errors) + 1) * PROBABILITY)) - 1]


def validate() -> Validation:
    """Leave each system out once, and estimate what was never fitted."""
    known = [one for one in observations() if one.fitted]
    systems = list(dict.fromkeys(one.system for one in known))
    left_out = []
    for system in systems:
        others = [one for one in known if one.system != system]
        numbers = fit(others)
        compared = tuple(compare(one, numbers) for one in known if one.system == system)
        left_out.append(LeftOut(system, numbers, compared, fmean(one.efficiency for one in others)))
    numbers = fit(known)
    further = tuple(compare(one, numbers) for one in observations() if not one.fitted)
    return Validation(numbers, tuple(left_out), further, _statements(numbers))


def fit(known: Sequence[Observation]) -> Fitted:
    """The two numbers with the least squared error. A grid that closes in: the error is smooth."""

    def error(numbers: Fitted) -> float:
        return sum(compare(one, numbers).error ** 2 for one in known)

    fixed, cost = FIXED_RANGE, OVERLAP_RANGE
    best = Fitted(*FIXED_RANGE)
    for _ in range(_ROUNDS):
        grid = product(_grid(fixed), _grid(cost))
        best = min((Fitted(*point) for point in grid), key=error)
        fixed = _around(best.fixed_pass_seconds, fixed, FIXED_RANGE)
        cost = _around(best.overlap_cost, cost, OVERLAP_RANGE)
    return best


def compare(observation: Observation, numbers: Fitted) -> Compared:
    """The model's efficiency for an observation."""
    here = estimate_step(observation.here, observation.profile, numbers)
    if observation.base is None:
        return Compared(observation, 100 * here.time.efficiency)
    base = estimate_step(observation.base, observation.profile, numbers)
    return Compared(observation, 100 * _rate(here) / _rate(base))


def _rate(step: Step) -> float:
    """Images/s of a worker with the evaluations in it."""
    steps = EVAL_EPOCHS * TRAIN_IMAGES / (step.workers * step.local_batch)
    seconds = steps * step.time.seconds + evaluation_seconds(step, EVAL_IMAGES)
    return EVAL_EPOCHS * TRAIN_IMAGES / seconds / step.workers


@cache
def observations() -> tuple[Observation, ...]:
    content = tomllib.loads(Path(__file__).with_name("observations.toml").read_text())
    return tuple(one for system in content["system"] for one in _of_system(system))


def _of_system(system: dict[str, Any]) -> Iterator[Observation]:
    profile = load_profile(system["profile"])
    profile = replace(profile, **system.get("machine", {}))
    if not system.get("launched_by_fourmin"):
        profile = replace(profile, call_seconds=0.0, round_seconds=None)
    for workers, efficiencies in system.get("figure", {}).items():
        for (variant, here), efficiency in zip(
            paper_variants(int(workers), profile).items(), efficiencies, strict=True
        ):
            assert variant in system["variants"]
            yield Observation(
                system["name"],
                f"{variant}, {workers} workers",
                system["source"],
                system["fitted"],
                profile,
                here,
                None,
                float(efficiency),
            )
    for pair in system.get("pairs", ()):
        yield _pair(system, pair, profile)


def _trained(
    model: str, profile: Profile, workers: int, images: int, **changes: Any
) -> Configuration:
    """A model on so many workers of a profile; what nobody states is a preset's."""
    node = min(workers, profile.workers_per_node)
    base = replace(
        load_preset("resnet50-256"),
        model=model,
        image_size=load_shape(model).image_size,
        **changes,
    )
    return spread(base, workers // node, node, images)


def paper_variants(
    workers: int, profile: Profile, model: str = "resnet50", images: int = PAPER_BATCH
) -> dict[str, Configuration]:
    """The variants of the paper's scaling figure, each with all before it.

    The hybrid's threshold, which the paper does not publish, is the one that suits the links.
    """
    unfused = _trained(
        model, profile, workers, images, precision="fp32", allreduce="ring", fusion_threshold=0
    )
    fused = replace(unfused, fusion_threshold=FUSED)
    half = replace(fused, precision="fp16", gradient_dtype="fp16")
    sizes = [bucket.nbytes for bucket in fuse(load_shape(model), FUSED, "fp16")]
    threshold = best_hybrid_threshold(sizes, "ring", grouping(half), profile)
    hybrid = replace(half, allreduce="hybrid", hybrid_large="ring", hybrid_threshold=threshold)
    return {"FP32 all-reduce": unfused, "+ fusion": fused, "+ FP16": half, "+ hybrid": hybrid}


def _pair(system: dict[str, Any], pair: dict[str, Any], profile: Profile) -> Observation:
    (workers, batch, rate), (more, smaller, faster) = pair["base"], pair["here"]
    changes = {
        "precision": system.get("precision", "fp16"),
        "gradient_dtype": system.get("gradient_dtype", "fp16"),
        "fusion_threshold": pair.get("fusion_threshold", FUSED),
    }
    base = _trained("resnet50", profile, workers, batch, **changes)
    here = _trained("resnet50", profile, more, smaller, **changes)
    # What the base did stands for the compute time of both.
    measured = Compute("resnet50", changes["precision"], batch, rate / workers, system["source"])
    return Observation(
        system["name"],
        f"{workers} to {more} workers, {batch} to {smaller} images each"
        + (f" ({pair['note']})" if "note" in pair else ""),
        system["source"],
        system["fitted"],
        replace(profile, compute=(measured,)),
        here,
        base,
        100 * (faster / more) / (rate / workers),
        own=bool(system.get("launched_by_fourmin")),
    )


def _statements(numbers: Fitted) -> tuple[Statement, ...]:
    """What Jia et al. 2018 report of whole runs and of NCCL, and what the models give for it."""
    profile = replace(load_profile(PAPER_PROFILE), call_seconds=0.0, round_seconds=None)

    def best(model: str, workers: int, images: int) -> Configuration:
        return paper_variants(workers, profile, model, images)["+ hybrid"]

    def minutes(model: str, workers: int, batch: int, epochs: int) -> str:
        step = estimate_step(best(model, workers, batch), profile, numbers)
        steps = TRAIN_IMAGES // (workers * batch)
        evaluations = epochs // EVAL_EPOCHS * evaluation_seconds(step, EVAL_IMAGES)
        return f"{(epochs * steps * step.time.seconds + evaluations) / 60:.1f} min"

    def gain(model: str) -> str:
        here = best(model, 1024, PAPER_BATCH)
        plain = replace(here, allreduce="native", fusion_threshold=0, gradient_dtype="fp32")
        times = [estimate_step(one, profile, numbers).time.seconds for one in (plain, here)]
        return f"{times[0] / times[1]:.1f} times"

    return (
        Statement("ResNet-50, 1,024 P40, 64 images each, 90 epochs", "8.7 min",
                  minutes("resnet50", 1024, 64, 90)),
        Statement("ResNet-50, 2,048 P40, 32 images each, 90 epochs", "6.6 min",
                  minutes("resnet50", 2048, 32, 90)),
        Statement("AlexNet, 1,024 P40, 64 images each, 95 epochs", "within 4 min",
                  minutes("alexnet", 1024, 64, 95)),
        Statement("ResNet-50 on 1,024 P40 against NCCL, unfused", "up to 11 times",
                  gain("resnet50")),
        Statement("AlexNet on 1,024 P40 against NCCL, unfused", "up to 3 times",
                  gain("alexnet")),
    )  # fmt: skip


def _grid(bounds: tuple[float, float]) -> list[float]:
    low, high = bounds
    return [low + (high - low) * i / _STEPS for i in range(_STEPS + 1)]


def _around(
    value: float, bounds: tuple[float, float], limits: tuple[float, float]
) -> tuple[float, float]:
    width = 1.5 * (bounds[1] - bounds[0]) / _STEPS
    return max(limits[0], value - width), min(limits[1], value + width)
