"""An estimate of a whole run: step, scaling efficiency, time to train."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from fourmin.base.errors import FourminError
from fourmin.estimate.collectives import MODELLED
from fourmin.estimate.feed import Feed, feed
from fourmin.estimate.fitted import PROBABILITY, accuracy
from fourmin.estimate.hybrid import switching
from fourmin.estimate.profile import Profile
from fourmin.estimate.step import Step, estimate_step, evaluation_seconds, spread
from fourmin.estimate.update import updates
from fourmin.recipe.compression import density_in
from fourmin.recipe.configuration import Configuration
from fourmin.results.estimates import KIND
from fourmin.results.rcp import references
from fourmin.ruleset import CURRENT, Benchmark

COMPRESSED = 0.001
"""The density of Lin et al. 2018."""


@dataclass(frozen=True)
class Stretch:
    """Epochs that are trained alike: their number, configuration, steps and evaluations."""

    epochs: int
    configuration: Configuration
    step: Step
    steps_per_epoch: int
    evaluations: int
    evaluation_seconds: float
    """Of one evaluation."""
    feed: Feed

    def seconds(self, step_seconds: float) -> float:
        steps = self.epochs * self.steps_per_epoch
        return steps * step_seconds + self.evaluations * self.evaluation_seconds

    def to_json(self) -> dict[str, Any]:
        own = self.configuration
        return {
            "epochs": self.epochs,
            "image_size": own.image_size,
            "global_batch_size": own.global_batch_size,
            "steps_per_epoch": self.steps_per_epoch,
            **_step_json(self.step),
            "minutes": self.seconds(self.feed.seconds(self.step)) / 60,
        }


@dataclass(frozen=True)
class Estimate:
    """An estimate for a configuration on a profile.

    `step` is the first epoch's, of compressed gradients that after their warm-up; `curve` has the
    same on fewer nodes, `alternatives` seconds of it by all-reduce; `compressed` are those with
    COMPRESSED of the gradients sent.
    """

    configuration: Configuration
    profile: Profile
    step: Step
    curve: tuple[Step, ...]
    alternatives: dict[str, float]
    compressed: float
    epochs: int
    epochs_source: str
    stretches: tuple[Stretch, ...]

    @property
    def steps_per_epoch(self) -> int:
        """Of the first epoch."""
        return self.stretches[0].steps_per_epoch

    @property
    def feed(self) -> Feed:
        """Of the first epoch."""
        return self.stretches[0].feed

    @property
    def evaluations(self) -> int:
        return sum(one.evaluations for one in self.stretches)

    @property
    def train_seconds(self) -> float:
        """Time to train, evaluations included."""
        return sum(one.seconds(one.feed.seconds(one.step)) for one in self.stretches)

    @property
    def efficiency_interval(self) -> tuple[float, float]:
        """Where the scaling efficiency lies with a probability of 80%, after the errors on systems
        left out of the fit; with one worker there is nothing to err about.
        """
        efficiency, share = self.step.time.efficiency, accuracy().interval
        if efficiency == 1:
            return 1.0, 1.0
        return efficiency * (1 - share), min(1.0, efficiency * (1 + share))

    @property
    def train_interval(self) -> tuple[float, float]:
        """The same of the time to train, in seconds, if images come as fast as estimated."""
        share = accuracy().interval

        def seconds(one: Stretch, factor: float) -> float:
            time, fed = one.step.time, one.feed.seconds(one.step)
            waiting = fed if fed > time.seconds else 0.0
            efficiency = 1.0 if time.efficiency == 1 else min(1.0, time.efficiency * factor)
            return one.seconds(max(waiting, time.compute / efficiency))

        fast, slow = (sum(seconds(s, f) for s in self.stretches) for f in (1 + share, 1 - share))
        return fast, slow

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types; the kind comes first."""
        step = self.step
        return {
            "kind": KIND,
            "note": "an estimate by cost models, not a measurement and not a result",
            "system_profile": self.profile.name,
            "configuration": self.configuration.to_json(),
            "hybrid": switching(self.configuration),
            "step": {
                **_step_json(step),
                "compute_source": step.compute.source,
                "compute_derived": step.compute.derived,
                "calls": sum(one.cost.calls for one in step.reductions),
                "buckets": [
                    {
                        "bytes": one.nbytes,
                        "ready": round(one.ready, 4),
                        "algorithm": one.algorithm,
                        "milliseconds": round(1e3 * one.seconds, 4),
                        "collectives": dict(Counter(one.cost.collectives)),
                        "rounds": one.cost.rounds,
                    }
                    for one in step.reductions
                ],
            },
            "curve": [
                {"nodes": one.workers // self.configuration.procs_per_node, **_step_json(one)}
                for one in self.curve
            ],
            "milliseconds_by_allreduce": {
                name: 1e3 * seconds for name, seconds in self.alternatives.items()
            },
            "sent_bytes": sum(one.nbytes for one in step.reductions),
            "optimizers": {
                name: {
                    "state_bytes": one.state_bytes,
                    "least_milliseconds": one.seconds and 1e3 * one.seconds,
                }
                for name, one in updates(self.configuration.model, self.profile).items()
            },
            "compressed_milliseconds": 1e3 * self.compressed,
            "epochs": self.epochs,
            "epochs_source": self.epochs_source,
            "steps": sum(one.epochs * one.steps_per_epoch for one in self.stretches),
            "phases": [one.to_json() for one in self.stretches],
            "evaluations": self.evaluations,
            "evaluation_seconds": self.stretches[0].evaluation_seconds,
            "train_minutes": self.train_seconds / 60,
            "interval": {
                "probability": PROBABILITY,
                "scaling_efficiency": list(self.efficiency_interval),
                "train_minutes": [seconds / 60 for seconds in self.train_interval],
            },
            "feed": {
                "read_bytes_per_second": self.feed.bytes_per_second,
                "read_milliseconds": self.feed.reading and 1e3 * self.feed.reading,
                "decode_milliseconds": self.feed.decoding and 1e3 * self.feed.decoding,
                "limited_by": self.feed.limit(step),
            },
            "rests_on": dict(self.profile.sources),
        }


def _step_json(step: Step) -> dict[str, Any]:
    time = step.time
    return {
        "workers": step.workers,
        "images_per_worker": step.local_batch,
        "milliseconds": 1e3 * time.seconds,
        "compute_milliseconds": 1e3 * time.compute,
        "exposed_milliseconds": 1e3 * time.exposed,
        "contention_milliseconds": 1e3 * time.contention,
        "statistics_milliseconds": 1e3 * time.statistics,
        "communication_milliseconds": 1e3 * time.communication,
        "images_per_second": step.images_per_second,
        "scaling_efficiency": time.efficiency,
    }


def estimate(
    configuration: Configuration,
    profile: Profile,
    benchmark: Benchmark,
    *,
    epochs: int | None = None,
) -> Estimate:
    """The whole run. `epochs` states how many it takes; else the reference convergence point, or
    all that the configuration allows.

    Raises FourminError for what cannot be estimated.
    """
    until, source = _epochs(configuration, benchmark, epochs)
    stretches = tuple(_stretches(configuration, profile, benchmark, until))
    return Estimate(
        configuration=configuration,
        profile=profile,
        step=estimate_step(configuration, profile),
        curve=tuple(_curve(configuration, profile)),
        alternatives={
            name: estimate_step(
                replace(configuration, allreduce=name, tuning=()), profile
            ).time.seconds
            for name in MODELLED
        },
        compressed=estimate_step(_compressed(configuration), profile).time.seconds,
        epochs=until,
        epochs_source=source,
        stretches=stretches,
    )


def _compressed(config: Configuration) -> Configuration:
    return replace(config, gradient_density=COMPRESSED, gradient_dtype="fp32")


def _stretches(
    configuration: Configuration, profile: Profile, benchmark: Benchmark, until: int
) -> Iterator[Stretch]:
    """The phases of the first `until` epochs, and the epochs in which gradients grow sparser."""
    firsts = {first for first, _ in configuration.stretches()}
    firsts |= set(range(2, configuration.density_warmup_epochs + 2))
    begun = [(first, _in_epoch(configuration, first)) for first in sorted(firsts) if first <= until]
    ends = [*(first for first, _ in begun[1:]), until + 1]
    offset = configuration.eval_offset
    for (first, own), end in zip(begun, ends, strict=True):
        steps = own.steps_per_epoch(benchmark.train_samples)
        if steps == 0:
            raise FourminError(
                f"a global batch of {own.global_batch_size} is larger than the "
                f"{benchmark.train_samples} training images of {benchmark.name}"
            )
        step = estimate_step(own, profile)
        yield Stretch(
            epochs=end - first,
            configuration=own,
            step=step,
            steps_per_epoch=steps,
            evaluations=len(benchmark.scheduled(end - 1, offset))
            - len(benchmark.scheduled(first - 1, offset)),
            evaluation_seconds=evaluation_seconds(step, benchmark.eval_samples),
            feed=feed(step, own.nodes, str(benchmark.dataset["name"]), profile),
        )


def _in_epoch(configuration: Configuration, epoch: int) -> Configuration:
    density = density_in(configuration, epoch)
    return replace(configuration.at(epoch), gradient_density=density, density_warmup_epochs=0)


def _epochs(
    configuration: Configuration, benchmark: Benchmark, stated: int | None
) -> tuple[int, str]:
    if stated is not None:
        return stated, "as stated"
    alike = len(configuration.stretches()) == 1
    known = references(CURRENT, benchmark.name) if alike else None
    point = known.at(configuration.global_batch_size) if known else None
    if point is None:
        return configuration.max_epochs, "all epochs of the preset: no reference convergence point"
    scheduled = benchmark.scheduled(configuration.max_epochs, configuration.eval_offset)
    until = next((e for e in scheduled if e >= point.mean), configuration.max_epochs)
    return until, (
        f"the first evaluation after {point.mean:.1f} epochs, the reference convergence point at "
        f"batch {configuration.global_batch_size}"
    )


def _curve(config: Configuration, profile: Profile) -> list[Step]:
    """The step on 1, 2, 4, ... nodes up to the configuration's, with as many images a worker."""
    nodes, node = config.nodes, config.procs_per_node
    counts = sorted({1 << n for n in range(nodes.bit_length())} | {nodes})
    steps = []
    for count in counts:
        workers = count * node
        fewer = replace(
            spread(config, count, node, config.local_batch_size),
            group_size=min(config.group_size, workers),
            bn_span=next(span for span in range(config.bn_span, 0, -1) if workers % span == 0),
        )
        steps.append(estimate_step(fewer, profile))
    return steps
