"""LOG and CNV: what a run says of its training, epoch by epoch."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence

from fourmin.base.values import listed, mapping, number
from fourmin.ledger.view import RunView
from fourmin.log import keys
from fourmin.log.records import Record
from fourmin.log.timeline import Timeline
from fourmin.recipe.algorithms import is_asynchronous
from fourmin.recipe.configuration import Configuration
from fourmin.results.rcp import References, references
from fourmin.rules.compare import same, short
from fourmin.rules.epochs import epochs_before, steps_through
from fourmin.rules.rule import ERROR, RUN, Problem, rule
from fourmin.ruleset import Benchmark

STATISTICS = (
    "throughput",
    "train_loss",
    "optimizer_steps",
    "skipped_steps",
    "loss_scale",
    "learning_rate",
    "exposed_ms_median",
)
"""The numbers of tracked_stats."""
_SHA256 = re.compile(r"[0-9a-f]{64}\Z")
FIRST_LOSS_FACTOR = 2
"""By so much the first loss may lie off that of guessing."""
PACE = 2
"""So many times the epochs of a run a reference run needs for the same accuracy at most."""


@rule("LOG009", "tracked-statistics", ERROR, RUN)
def tracked_statistics(
    run: RunView, timeline: Timeline, configuration: Configuration, train_samples: int
) -> Iterator[Problem]:
    """The statistics of each epoch are whole, and follow from the configuration where they can.

    What it checks
        tracked_stats has its seven numbers. The steps that were performed and those that were
        skipped are together those of all epochs so far; only FP16 skips steps and scales the
        loss; the learning rate is that of the last step that was performed. communication gives
        the number of its buckets and the bytes of all steps. run_start and run_restart tell the
        machine's boot, or that it is not known; weights_digest is a SHA-256.
    Why it is bad
        What was left out cannot be checked, and what contradicts the configuration was not
        written by the run.
    Example
        242 steps after 11 epochs of 22, with 3 skipped ones.
    How to put it right
        Restore events.log from where the run was made.
    """
    for record in (*timeline.all(keys.RUN_START), *timeline.all(keys.RUN_RESTART)):
        if keys.BOOT not in record.metadata:
            yield Problem(f"{record.key} without {keys.BOOT}", record.line)
    for record in timeline.all(keys.WEIGHTS_DIGEST):
        if not (isinstance(record.value, str) and _SHA256.match(record.value)):
            yield Problem(f"weights_digest is {short(record.value)}", record.line)
    batches = [own.global_batch_size for _, own in configuration.stretches()]
    if min(batches) <= 0:
        return  # epoch-samples tells
    if max(batches) > train_samples:
        yield Problem(f"no epoch of {train_samples} images has a batch of {max(batches)}")
        return
    for record in timeline.all(keys.TRACKED_STATS):
        value = mapping(record.value)
        told = {name: number(value.get(name)) for name in STATISTICS}
        absent = [name for name, found in told.items() if found is None]
        epoch = number(record.metadata.get(keys.EPOCH_NUM))
        if absent:
            yield Problem(f"no {', '.join(absent)}", record.line)
        elif epoch is not None:  # otherwise event-order tells
            for message in _contradictions(configuration, train_samples, int(epoch), value):
                yield Problem(message, record.line)
    yield from _exchanged(run, timeline, configuration)


def _exchanged(run: RunView, timeline: Timeline, config: Configuration) -> Iterator[Problem]:
    """What communication says of its buckets against its own list and the steps."""
    record, last = timeline.first(keys.COMMUNICATION), timeline.last(keys.TRACKED_STATS)
    if record is None or last is None:
        return  # event-counts tells where one is missing
    value, done = mapping(record.value), mapping(last.value)
    sizes = [number(size) or 0 for size in listed(value.get("bucket_bytes"))]
    steps = sum(number(done.get(name)) or 0 for name in ("optimizer_steps", "skipped_steps"))
    expected = {"buckets": len(sizes), "bytes": steps * sum(sizes) if config.workers > 1 else 0}
    if is_asynchronous(config):
        # Who fetches and pushes how often is decided as the run goes.
        if (number(value.get("bytes")) or 0) < 0:
            yield Problem(f"bytes is {short(value.get('bytes'))}", record.line)
        expected.pop("bytes")
    elif config.gradient_density < 1:
        most, sent = expected.pop("bytes"), number(value.get("bytes"))
        if sent is None or not (0 < sent < most or sent == most == 0):
            what = f"bytes is {short(value.get('bytes'))}, compressed from {most:g}"
            yield Problem(what, record.line)
    for name, count in expected.items():
        if number(value.get(name)) != count:
            what = f"{name} is {short(value.get(name))}, of the buckets' list {count:g}"
            yield Problem(what, record.line)


def _contradictions(
    config: Configuration, train_samples: int, epoch: int, value: Mapping[str, object]
) -> Iterator[str]:
    """What in the statistics after `epoch` cannot be, with so many images."""
    so_far = steps_through(config, train_samples, epoch)
    so_far = so_far if config.max_steps is None else min(so_far, config.max_steps)
    performed, skipped = value["optimizer_steps"], value["skipped_steps"]
    if type(performed) is not int or type(skipped) is not int or min(performed, skipped) < 0:
        yield f"{short(performed)} steps performed, {short(skipped)} skipped"
        return
    if performed + skipped != so_far:
        yield f"{performed} steps performed and {skipped} skipped, of {so_far}"
    if config.precision != "fp16" and (skipped or not same(value["loss_scale"], 1.0)):
        yield f"{skipped} steps skipped, loss scale {short(value['loss_scale'])}, without FP16"
    try:
        expected = _learning_rate(config, train_samples, max(0, performed - 1))
    except ArithmeticError as error:  # such as 0 to a power below 0
        yield f"no learning rate in step {performed} by the configuration: {error}"
        return
    told = number(value["learning_rate"])
    if told is None or not math.isclose(told, expected, rel_tol=1e-9, abs_tol=1e-15):
        yield f"learning rate {told!r} in step {performed}, by the configuration {expected!r}"
    if any((number(value[name]) or 0) < 0 for name in STATISTICS):
        yield "a negative number"


def _learning_rate(config: Configuration, train_samples: int, performed: int) -> float:
    """The rate of step `performed`, from 0; see docs/configuration.md.

    What counts are epochs: where phases have other batches, a step is more or less of one.
    """
    epochs = epochs_before(config, train_samples, performed)
    steps = config.steps_per_epoch(train_samples)
    step = epochs * steps
    if config.learning_rate_decay == "points":
        points = [tuple(map(float, told.split(":"))) for told in config.learning_rate_points]
        return _between(points, epochs)
    base, warmup = config.base_learning_rate, round(config.warmup_epochs * steps)
    if step < warmup:
        share = (step / warmup) ** (2 if config.warmup_shape == "quadratic" else 1)
        first = config.warmup_start_learning_rate
        return first + share * (base - first)
    if config.learning_rate_decay == "poly":
        length = max(1, round(config.decay_epochs * steps) - warmup + 1)
        left = max(0.0, 1 - (step - warmup) / length)
        low = config.end_learning_rate
        return low + float(left**config.decay_poly_power) * (base - low)
    if config.learning_rate_decay == "step":
        past = sum(step >= round(epoch * steps) - 1e-6 for epoch in config.decay_milestones)
        grown = len({own.global_batch_size for _, own in config.stretches()}) - 1
        fallen = past - grown if config.largest_batch else past
        return float(base * config.decay_factor ** max(0, fallen))
    return base


def _between(points: Sequence[tuple[float, ...]], place: float) -> float:
    """The value at `place` on straight lines through (place, value); the last of equal places."""
    before = [point for point in points if point[0] <= place + 1e-12]
    after = [point for point in points if point[0] > place + 1e-12]
    if not before or not after:
        return (before[-1] if before else after[0])[1]
    (a, low), (b, high) = before[-1], after[0]
    return ((b - place) * low + (place - a) * high) / (b - a)


@rule("LOG010", "states-of-epochs", ERROR, RUN)
def states_of_epochs(
    run: RunView, timeline: Timeline, configuration: Configuration
) -> Iterator[Problem]:
    """A deterministic run tells the hash of its state before it starts and after each epoch.

    What it checks
        Where the configuration says `deterministic`, the log has a record `state` for epoch 0 and
        for each epoch that counts, in order, each with a SHA-256 that no other epoch has and with
        the losses of its first steps. A run that was cut off may lack the last one.
    Why it is bad
        An auditor chooses epochs, and trains them again from one of these states to the next. What
        has no hash cannot be chosen, and two epochs with one state trained nothing.
    Example
        12 epochs, and no state after epoch 7.
    How to put it right
        Restore events.log from where the run was made.
    """
    if not configuration.deterministic:
        return
    done = len(timeline.all(keys.TRACKED_STATS))
    told, seen = [], set[object]()
    for record in timeline.all(keys.STATE):
        value, epoch = mapping(record.value), record.metadata.get(keys.EPOCH_NUM)
        digests = [value.get("sha256"), value.get("elements_sha256")]
        losses = value.get("step_loss")
        told.append(epoch)
        if bad := [one for one in digests if not (isinstance(one, str) and _SHA256.match(one))]:
            yield Problem(f"the state is {short(bad[0])}", record.line)
            continue
        if not seen.isdisjoint(digests):
            yield Problem("a state that another epoch has", record.line)
        elif not isinstance(losses, list) or bool(losses) != bool(epoch):
            yield Problem(f"the losses are {short(losses)}", record.line)
        seen.update(digests)
    least = done if run.whole else done - 1
    if told != list(range(len(told))) or not least <= len(told) - 1 <= done:
        yield Problem(f"states of the epochs {short(told)}, of {done}")


@rule("CNV005", "learning-curve", ERROR, RUN)
def learning_curve(
    run: RunView,
    timeline: Timeline,
    first_loss: Record,
    benchmark: Benchmark,
    configuration: Configuration,
) -> Iterator[Problem]:
    """A run begins by guessing, and its losses are those of a training.

    What it checks
        In the closed division: the loss of the first step, which is that of the initial weights,
        lies within a factor of 2 of the logarithm of the number of classes, the loss of guessing;
        no loss of a step or of an epoch is 0 or not finite; where the curves of the reference runs
        are known, no evaluation is better than all of theirs up to twice as many epochs.
    Why it is bad
        A run that begins with less knows something already, one with other losses was not
        trained, and one that is so far ahead saw more images, or the validation images.
    Example
        A first loss of 0.9 with 10 classes, whose logarithm is 2.3.
    How to put it right
        Train from the initial weights that the seed gives, on the benchmark's images. Where the
        loss is not finite, training diverged: try a lower base_learning_rate, or a longer warmup.
    """
    if run.practice or run.facts.division != "closed":
        return
    known = references(run.ruleset, benchmark.name)
    if known is not None:
        yield from _ahead(timeline, known, configuration.global_batch_size)
    classes = number(mapping(run.facts.dataset).get("classes"))
    losses = listed(first_loss.value)
    if classes is not None and classes > 1 and losses:
        guessing = math.log(classes)
        first = number(losses[0]) or 0
        if not guessing / FIRST_LOSS_FACTOR <= first <= guessing * FIRST_LOSS_FACTOR:
            yield Problem(
                f"the first loss is {short(losses[0])}, that of guessing {guessing:.3g}",
                first_loss.line,
            )
    else:
        yield Problem("no loss of the first step", first_loss.line)
    told = [(first_loss, loss) for loss in losses]
    for record in timeline.all(keys.TRACKED_STATS):
        told.append((record, mapping(record.value).get("train_loss")))
    for record, loss in told:
        if not (number(loss) or 0) > 0:
            yield Problem(f"a loss of {short(loss)}", record.line)


def _ahead(timeline: Timeline, known: References, batch: int) -> Iterator[Problem]:
    """The first evaluation that is better than every reference run's at half the pace."""
    for evaluation in timeline.evaluations:
        epoch, accuracy = evaluation.epoch or 0, evaluation.accuracy or 0
        best = known.best_within(PACE * epoch, batch)
        if best is not None and accuracy > best:
            yield Problem(
                f"accuracy {accuracy:.3f} after {epoch:g} epochs; the best of the reference runs "
                f"was {best:.3f} after {PACE * epoch:g}",
                evaluation.line,
            )
            return
