"""Estimates and their validation as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from statistics import fmean, median

from fourmin.base.text import how_many
from fourmin.estimate.fitted import PROBABILITY, accuracy
from fourmin.estimate.hybrid import switching
from fourmin.estimate.run import COMPRESSED, Estimate
from fourmin.estimate.timeline import StepTime
from fourmin.estimate.update import updates
from fourmin.estimate.validation import Compared, Validation
from fourmin.recipe.allreduces import needs

WORTH_A_HINT = 1.1
"""How many times longer than with another all-reduce a step may take before that is named."""
_EVEN = f"{PROBABILITY:.0%} interval"
BANNER = "ESTIMATE by cost models: not a measurement, not a result"


def text_lines(estimate: Estimate) -> Iterator[str]:
    config, profile, step = estimate.configuration, estimate.profile, estimate.step
    error = accuracy()
    yield BANNER
    yield (
        f"  off by {error.mean_error:g} points of scaling efficiency in the mean on systems left "
        f"out of its fit, by {error.further_error:g} on others (at most {error.largest_error:g})"
    )
    yield ""
    nodes = how_many(config.nodes, "node")
    yield f"preset {config.preset}: {nodes} of {config.procs_per_node} workers"
    yield f"  on {profile.name}: {profile.title}"
    yield (
        f"  {step.local_batch} images a worker and pass, {config.global_batch_size:,} a step, "
        f"{config.precision}, {config.step} step"
    )
    yield (
        f"  all-reduce {config.allreduce}, {how_many(len(step.reductions), 'bucket')} in "
        f"{config.gradient_dtype}: {_algorithms(estimate)}"
    )
    if said := switching(config):
        yield f"  {said}"
    yield f"  compute: {step.compute.source}"
    if step.compute.derived:
        yield f"  CAREFUL: nobody measured {config.model} there; it was scaled by operations"
    yield ""
    fast, slow = estimate.train_interval
    yield (
        f"time to train        {_duration(estimate.train_seconds)} ({_EVEN}: {_duration(fast)} to "
        f"{_duration(slow)})"
    )
    yield (
        f"                     {estimate.epochs} epochs of "
        f"{', then '.join(str(phase.steps_per_epoch) for phase in estimate.stretches)} steps: "
        f"{estimate.epochs_source}"
    )
    if len(estimate.stretches) > 1:
        for phase in estimate.stretches:
            own = phase.configuration
            yield (
                f"  {how_many(phase.epochs, 'epoch'):<12} {own.image_size} pixels, batch "
                f"{own.global_batch_size:,}: {phase.steps_per_epoch} steps of "
                f"{1e3 * phase.step.time.seconds:.1f} ms"
            )
        yield "the first epochs:"
    yield f"step                 {_parts(step.time)}"
    yield f"images/s             {step.images_per_second:,.0f}"
    low, high = estimate.efficiency_interval
    yield (
        f"scaling efficiency   {step.time.efficiency:.1%} of one worker with the same images "
        f"({_EVEN}: {low:.0%} to {high:.0%})"
    )
    yield f"calls a step         {_calls(estimate)}"
    yield f"images               {_feed(estimate)}"
    yield f"limited by           {estimate.feed.limit(step)}"
    states = updates(config.model, profile).items()
    yield "state and update     " + "; ".join(f"{name} {one.describe()}" for name, one in states)
    times = sorted(estimate.alternatives.items(), key=lambda item: item[1])
    yield "step by all-reduce   " + ", ".join(f"{name} {1e3 * s:.1f} ms" for name, s in times)
    fastest, seconds = next(item for item in times if not needs(item[0], "tuning"))
    if step.time.seconds > WORTH_A_HINT * seconds:
        share = step.time.seconds / seconds
        yield (
            f"hint                 --allreduce {fastest} would take {1e3 * seconds:.1f} ms a step, "
            f"{share:.{0 if share >= 10 else 1}f} times less than {config.allreduce}"
        )
    if seconds > WORTH_A_HINT * estimate.compressed:
        yield (
            f"compressed           with {COMPRESSED:.1%} of the gradients sent "
            f"{1e3 * estimate.compressed:.1f} ms a step and the time to find them, in the open "
            f"division: --set gradient_density={COMPRESSED:g}"
        )
    yield ""
    yield "It rests on"
    for what, source in profile.sources:
        yield f"  {what}: {source}"
    if len(estimate.curve) > 1:
        yield ""
        yield "nodes    images/s   scaling efficiency   (the same images on each worker)"
        for one in estimate.curve:
            count = one.workers // config.procs_per_node
            yield f"{count:5}  {one.images_per_second:10,.0f}   {one.time.efficiency:6.1%}"


def validation_lines(validation: Validation) -> Iterator[str]:
    """The validation's tables in Markdown."""
    yield "| system | | measured | estimated | error | 80% interval |"
    yield "|---|---|---|---|---|---|"
    for one, half in validation.own_intervals:
        yield f"{_compared_line(one)} {one.estimated - half:.1f} to {one.estimated + half:.1f} |"
    yield ""
    relative = sorted(abs(one.relative) for one in validation.compared)
    halves = [half for _, half in validation.own_intervals]
    inside = sum(abs(one.error) <= half for one, half in validation.own_intervals)
    yield (
        f"Relative errors: median {median(relative):.1%}, mean {fmean(relative):.1%}, worst "
        f"{relative[-1]:.1%}. The intervals, each from the errors of the others, hold {inside} of "
        f"{len(relative)}; half their width is {median(halves):.1f} points in the median. That of "
        f"an estimate is {validation.interval:.1%} of its efficiency up and down."
    )
    yield ""
    yield (
        f"Mean absolute error {validation.mean_error:.1f} points; a constant, the mean of the "
        f"other systems, gives {validation.constant_error:.1f}."
    )
    yield ""
    yield "| left out | fixed time of a pass, ms | cost of overlap | constant |"
    yield "|---|---|---|---|"
    for out in validation.left_out:
        numbers = out.numbers
        yield (
            f"| {out.system} | {1e3 * numbers.fixed_pass_seconds:.2f} | "
            f"{numbers.overlap_cost:.2f} | {out.constant:.1f} |"
        )
    yield ""
    yield "Systems that nothing was fitted to, with the numbers that all of the above give:"
    yield ""
    yield "| system | | measured | estimated | error |"
    yield "|---|---|---|---|---|"
    yield from map(_compared_line, validation.further)
    yield ""
    relative = sorted(abs(one.relative) for one in validation.others)
    yield (
        f"Mean absolute error {validation.further_error:.1f} points on others' (relative: median "
        f"{median(relative):.1%}, mean {fmean(relative):.1%}, worst {relative[-1]:.1%}), "
        f"{validation.own_error:.1f} on this project's own. The interval of an estimate holds "
        f"{sum(one.off <= validation.interval for one in validation.others)} of the "
        f"{len(relative)} others'."
    )
    yield ""
    yield "What Jia et al. 2018 state beside their figure; nothing was fitted to it:"
    yield ""
    yield "| statement | published | estimated |"
    yield "|---|---|---|"
    for statement in validation.statements:
        yield f"| {statement.text} | {statement.published} | {statement.estimated} |"


def _algorithms(estimate: Estimate) -> str:
    names: Sequence[str] = [one.algorithm for one in estimate.step.reductions]
    if not names:
        return "one worker, nothing to send"
    return ", ".join(f"{names.count(name)} {name}" for name in dict.fromkeys(names))


def _calls(estimate: Estimate) -> str:
    costs = [one.cost for one in estimate.step.reductions]
    kinds = Counter(kind for cost in costs for kind in cost.collectives)
    rounds = sum(cost.rounds for cost in costs)
    parts = [f"{count} {kind}" for kind, count in kinds.items()]
    parts += [f"{rounds:,} rounds of messages"] if rounds else []
    return f"{sum(cost.calls for cost in costs):,} on one rank" + (
        f": {', '.join(parts)}" if parts else ""
    )


def _feed(estimate: Estimate) -> str:
    """What the images take, in the words of a profile that may not know it."""
    feed, nodes = estimate.feed, estimate.configuration.nodes
    needed = feed.bytes_per_second
    parts = [f"{needed / 1e9:.3g} GB/s, {needed / nodes / 1e6:,.0f} MB/s a node"] if needed else []
    for name, seconds in (("reading", feed.reading), ("decoding", feed.decoding)):
        took = "of unknown speed" if seconds is None else f"{1e3 * seconds:.1f} ms a step"
        parts.append(f"{name} {took}")
    return ", ".join(parts)


def _parts(time: StepTime) -> str:
    parts = [f"compute {1e3 * time.compute:.1f}"]
    parts += [
        f"{name} {1e3 * seconds:.1f}"
        for name, seconds in (
            ("exposed communication", time.exposed),
            ("cost of hidden communication", time.contention),
            ("shared batch statistics", time.statistics),
        )
        if seconds > 0
    ]
    return f"{1e3 * time.seconds:.1f} ms = " + " + ".join(parts)


def _duration(seconds: float) -> str:
    return f"{seconds / 60:.2f} minutes" if seconds < 7200 else f"{seconds / 3600:.1f} hours"


def _compared_line(one: Compared) -> str:
    """A row of a validation table, with the columns system, variant, measured, estimated, error."""
    seen = one.observation
    return (
        f"| {seen.system} | {seen.variant} | {seen.efficiency:.1f} | "
        f"{one.estimated:.1f} | {one.error:+.1f} |"
    )
