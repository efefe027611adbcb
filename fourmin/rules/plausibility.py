"""PHY: no result is faster than its hardware can be, and no energy is other than its meters'."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fourmin.base.text import how_many
from fourmin.base.values import listed, mapping, number
from fourmin.ledger.view import RunView
from fourmin.log import keys
from fourmin.log.timeline import Timeline
from fourmin.recipe.configuration import Configuration
from fourmin.rules.physics import Machine, Work, captured_limits, gpus, limits_of, peak_of
from fourmin.rules.rule import ERROR, NOTE, RUN, Problem, rule, unchecked

RESOLUTION = 0.001
"""Seconds: the log's times are whole milliseconds, so that a difference may be off by one."""
_COUNTS = (
    "nodes", "procs_per_node", "threads", "image_size", "global_batch_size",
    "gradient_accumulation_steps",
)  # fmt: skip
_RAPL_ZONE = re.compile(r"(package-[0-9]+)(-die-[0-9]+)?( dram)?\Z")


@dataclass(frozen=True)
class _Phase:
    """A part of a run, and how long it took by the log (s)."""

    name: str
    seconds: float
    trained: Mapping[int, float]
    """Images by epoch."""
    evaluated: Mapping[int, float]
    line: int | None = None

    def least(self, ruleset: str, config: Configuration, machine: Machine) -> float:
        """The least time that it can take (s)."""
        operations = layers = 0.0
        for epoch in sorted({*self.trained, *self.evaluated}):
            own, trained = config.at(epoch), self.trained.get(epoch, 0.0)
            work = Work.of(ruleset, own.model, own.image_size)
            assert work is not None
            operations += trained * work.training + self.evaluated.get(epoch, 0.0) * work.evaluation
            passes = trained / own.global_batch_size * own.gradient_accumulation_steps
            # Forward and backward, a layer after the other.
            layers += 2 * passes * work.layers
        return machine.seconds(operations, layers)


@rule("PHY001", "faster-than-peak", ERROR, RUN)
def faster_than_peak(
    run: RunView, configuration: Configuration, timeline: Timeline
) -> Iterator[Problem]:
    """No part of the run is faster than its hardware can be.

    What it checks
        Each epoch, by its events and by its throughput, each evaluation, and the whole run against
        the least time that they take: the operations that the model needs for its images at this
        size, over what the workers can do (the published peak of the chips; for others their
        cores, clock and capability; for processors cores, clock and vector width), and the time
        that a layer takes however small it is. docs/plausibility.md has every number.
    Why it is bad
        What the hardware cannot do did not happen, or happened on more hardware.
    Example
        50,000 images/s of ResNet-50 on one V100: 8e14 operations/s, peak 1.6e14.
    How to put it right
        Look at the clock, the number of chips and the sample counts in the log.
    """
    phases = list(_phases(timeline))
    if not phases:
        return
    if min(getattr(configuration, name) for name in _COUNTS) < 1:
        yield unchecked("a configuration that cannot run")
        return
    work = Work.of(run.ruleset, configuration.model, configuration.image_size)
    machine = Machine.of(run.ruleset, configuration, mapping(run.facts.system))
    if work is None:
        yield unchecked(f"the operations of {configuration.model} are not known")
    elif isinstance(machine, str):
        yield unchecked(machine)
    else:
        excess, worst = max(
            (
                (phase.least(run.ruleset, configuration, machine) - phase.seconds, phase)
                for phase in phases
            ),
            key=lambda pair: pair[0] / pair[1].seconds if pair[1].seconds > 0 else math.inf,
        )
        if excess > 0:
            yield Problem(
                f"{worst.name} took {worst.seconds:.3g} s; {machine.text} cannot do it in less "
                f"than {worst.seconds + excess:.3g} s",
                worst.line,
            )


def _phases(timeline: Timeline) -> Iterator[_Phase]:
    """Every part of a run that the log times: epochs that count, evaluations, all of it."""
    measured = {
        number(record.metadata.get(keys.EPOCH_NUM)): number(mapping(record.value).get("throughput"))
        for record in timeline.all(keys.TRACKED_STATS)
    }
    trained: Counter[int] = Counter()
    evaluated: Counter[int] = Counter()
    for epoch in timeline.epoch_intervals:
        count, stop = epoch.samples, epoch.stop
        if stop is None or count is None or epoch.duration_ms is None:
            continue
        own = {int(epoch.epoch or 1): count}
        trained.update(own)
        name = f"epoch {epoch.epoch:g}" if epoch.epoch is not None else "an epoch"
        seconds = epoch.duration_ms / 1000 + RESOLUTION
        yield _Phase(name, seconds, own, {}, stop.line)
        throughput = measured.get(epoch.epoch)
        if throughput:
            seconds = count / throughput
            yield _Phase(f"{name}, by its throughput,", seconds, own, {}, stop.line)
    for one in timeline.evaluations:
        count = number(one.samples)
        if count is None or one.start_ms is None or one.stop_ms is None:
            continue
        own = {int(number(one.epoch) or 1): count}
        evaluated.update(own)
        seconds = (one.stop_ms - one.start_ms) / 1000 + RESOLUTION
        yield _Phase("the evaluation", seconds, {}, own, one.line)
    if timeline.time_to_train_ms is not None:
        seconds = timeline.time_to_train_ms / 1000 + RESOLUTION
        yield _Phase("the run", seconds, trained, evaluated)


@rule("PHY002", "unknown-chip", NOTE, RUN)
def unknown_chip(run: RunView) -> Iterator[Problem]:
    """The peak of an accelerator is not known here.

    What it checks
        The models of the accelerators in the log against the list in
        `rules/<version>/plausibility.json`.
    Why it is bad
        It is not. But only a generous limit, by its cores and clock, can be held against this run.
    Example
        A chip that is newer than this ruleset.
    How to put it right
        Add the chip with its published peak to a new version of the ruleset.
    """
    if run.configuration is None or run.configuration.device != "cuda":
        return
    for model in gpus(mapping(run.facts.system)):
        if peak_of(run.ruleset, model) is None:
            yield Problem(f"no peak is known for {model[:100]}")


@rule("PHY003", "more-workers-than-gpus", ERROR, RUN)
def more_workers_than_gpus(run: RunView, configuration: Configuration) -> Iterator[Problem]:
    """Each worker on a GPU has one of its own.

    What it checks
        `procs_per_node` in the configuration against the GPUs that a node has by the captured
        system, where `device` is `cuda`.
    Why it is bad
        GPUs that the system does not have are hardware that is not told.
    Example
        8 workers on each node; 4 GPUs were captured.
    How to put it right
        Let `fourmin run` capture the system on a node that trains.
    """
    if configuration.device != "cuda":
        return
    present = sum(gpus(mapping(run.facts.system)).values())
    if not present:
        yield unchecked("no GPU was captured")
    elif configuration.procs_per_node > present:
        yield Problem(
            f"{how_many(configuration.procs_per_node, 'worker')} on a node with "
            f"{how_many(present, 'GPU')}"
        )


@rule("PHY004", "energy-meter", ERROR, RUN)
def energy_meter(run: RunView, configuration: Configuration) -> Iterator[Problem]:
    """Energy is what the meters of the chips that trained have counted.

    What it checks
        Where there is energy: NVML's counters for a run on GPUs, one for each worker of a node;
        RAPL's packages for one on x86 processors. A value for each node, and their sum.
    Why it is bad
        Energy of other chips, or of a part of them, compares with nothing.
    Example
        `nvml`, in a run on processors.
    How to put it right
        Restore events.log from where the run was made; energy that no meter counted has no record.
    """
    config, energy = configuration, mapping(run.facts.energy)
    if not energy:
        return
    on_gpus = config.device == "cuda"
    method, scope = energy.get("method"), energy.get("scope")
    if method != ("nvml" if on_gpus else "rapl"):
        yield Problem(f"{method} is no meter of a run on {config.device}")
    elif on_gpus and scope != f"{how_many(config.procs_per_node, 'GPU')} a node":
        yield Problem(f"{config.procs_per_node} workers a node; counted: {scope}")
    elif not on_gpus and not (_x86(run) and _packages(scope)):
        yield Problem(f"this processor has no RAPL packages {scope}")
    nodes = [number(joules) for joules in listed(energy.get("nodes"))]
    if len(nodes) != config.nodes:
        yield Problem(f"energy of {how_many(len(nodes), 'node')} of {config.nodes}")
    elif not math.isclose(math.fsum(n or 0 for n in nodes), number(energy.get("joules")) or 0):
        yield Problem("the energy is not the sum of its nodes'")


@rule("PHY005", "energy-bounds", ERROR, RUN)
def energy_bounds(run: RunView, configuration: Configuration) -> Iterator[Problem]:
    """The power of each node is one that its chips can have.

    What it checks
        Where there is energy: that of each node over the time from run_start to run_stop, a second
        more or less, against the least that a chip takes while it idles and 1.5 times the most
        that it may take: the power limit that was captured, otherwise more than any chip has.
    Why it is bad
        Energy that was not counted over this run is another run's, or nobody's.
    Example
        200 J for a minute on 8 GPUs: 0.4 W each.
    How to put it right
        Restore events.log from where the run was made.
    """
    minutes = run.facts.minutes
    energy = mapping(run.facts.energy)
    limits = limits_of(run.ruleset)["energy"]
    bounds = mapping(limits.get(str(energy.get("method"))))
    if minutes is None or not bounds:
        return
    seconds, slack = 60 * minutes, limits["seconds"]
    each = bounds["most_watts"]
    chips = configuration.procs_per_node
    if energy["method"] == "nvml":
        captured = mapping(mapping(run.facts.system).get("limits"))
        models = gpus(mapping(run.facts.system))
        told = [number(captured_limits(captured, model).get("power_watts")) for model in models]
        each = max((watts or each for watts in told), default=each)
    else:
        chips = max(1, len(_packages(energy.get("scope"))))
    least = chips * bounds["least_watts"] * (seconds - slack)
    most = chips * each * limits["over_limit"] * (seconds + slack)
    for joules in map(number, listed(energy.get("nodes"))):
        if joules is not None and not least <= joules <= most:
            yield Problem(
                f"{joules:.4g} J on a node in {seconds:.3g} s; {how_many(chips, 'chip')} of its "
                f"kind would take {max(0, least):.3g} to {most:.3g} J"
            )
            return


def _packages(scope: Any) -> set[str]:
    """The processors that RAPL's zones in `scope` belong to; empty where it names others."""
    zones = [_RAPL_ZONE.match(part) for part in str(scope).split(", ")]
    return {zone[1] for zone in zones if zone} if all(zones) else set()


def _x86(run: RunView) -> bool:
    processor = mapping(run.facts.hardware.get("processor"))
    return processor.get("architecture") in ("x86_64", "AMD64", "i686")
