"""EVA: evaluations come on the benchmark's schedule, over every image, and end the run."""

from __future__ import annotations

import math
from collections.abc import Iterator

from fourmin.base.values import number
from fourmin.ledger.view import RunView
from fourmin.log import keys
from fourmin.log.timeline import Timeline
from fourmin.recipe.configuration import Configuration
from fourmin.rules.compare import same, short
from fourmin.rules.epochs import steps_through
from fourmin.rules.rule import ERROR, RUN, Problem, rule
from fourmin.ruleset import Benchmark


def _epochs_done(run: RunView) -> int:
    """Epochs that ended before any abort, each once."""
    return sum(record.key == keys.EPOCH_STOP for record in run.counted)


def _steps_used_up(run: RunView, epochs: int) -> bool:
    """Whether `max_steps` ended training within these epochs (practice only)."""
    config, samples = run.configuration, run.facts.train_samples
    if config is None or config.max_steps is None or type(samples) is not int:
        return False
    if config.global_batch_size <= 0:
        return False
    return steps_through(config, samples, epochs) >= config.max_steps


@rule("EVA001", "evaluation-schedule", ERROR, RUN)
def evaluation_schedule(
    run: RunView, timeline: Timeline, configuration: Configuration, benchmark: Benchmark
) -> Iterator[Problem]:
    """Evaluations come after the epochs that the benchmark fixes, none more, none fewer.

    What it checks
        The epochs with an evaluation against the benchmark's stride and the configuration's
        offset, which must be one that the benchmark allows.
    Why it is bad
        Accuracy jumps from epoch to epoch. Whoever looks more often sees the first lucky
        crossing of the target earlier.
    Example
        An evaluation after every epoch where the benchmark asks for every second.
    How to put it right
        Leave the schedule to the benchmark.
    """
    offset = configuration.eval_offset
    if offset not in benchmark.eval_offsets:
        allowed = ", ".join(map(str, benchmark.eval_offsets))
        yield Problem(f"eval_offset {offset}; the benchmark allows {allowed}")
    done = _epochs_done(run)
    scheduled = [epoch for epoch in range(1, done + 1) if benchmark.evaluates_after(epoch, offset)]
    if done and done not in scheduled and _steps_used_up(run, done):
        scheduled.append(done)
    evaluated = {evaluation.epoch: evaluation.line for evaluation in timeline.evaluations}
    for epoch, line in evaluated.items():
        if epoch not in scheduled:
            yield Problem(f"an evaluation after epoch {short(epoch)}, none is scheduled", line)
    for epoch in scheduled:
        cut_off = epoch == done and not run.whole
        if epoch not in evaluated and not cut_off:
            yield Problem(f"no evaluation after epoch {epoch}, one is scheduled")


@rule("EVA002", "evaluation-counts", ERROR, RUN)
def evaluation_counts(run: RunView, timeline: Timeline) -> Iterator[Problem]:
    """Every evaluation covers every validation image once, and its accuracy is its count.

    What it checks
        samples_count is the number of validation images; the value is finite, from 0 to 1, and
        exactly correct_count over samples_count.
    Why it is bad
        Accuracy over a part of the images, or over padded ones, is not the accuracy.
    Example
        355 of 360 right, logged as 0.99.
    How to put it right
        Evaluate every image once, and log what was counted.
    """
    expected = run.facts.eval_samples
    for record in timeline.all(keys.EVAL_ACCURACY):
        value = number(record.value)
        samples = record.metadata.get(keys.SAMPLES_COUNT)
        correct = record.metadata.get("correct_count")
        if value is None or not math.isfinite(value) or not 0 <= value <= 1:
            yield Problem(f"an accuracy of {short(record.value)}", record.line)
        if not same(samples, expected):
            yield Problem(
                f"{short(samples)} images were evaluated, not {short(expected)}", record.line
            )
        elif type(samples) is not int or type(correct) is not int or samples <= 0:
            yield Problem("no count of correct images", record.line)
        elif value is not None and value != correct / samples:
            yield Problem(
                f"accuracy {value!r}, but {correct} of {samples} is {correct / samples!r}",
                record.line,
            )


@rule("EVA003", "stops-at-target", ERROR, RUN)
def stops_at_target(
    run: RunView, timeline: Timeline, configuration: Configuration, benchmark: Benchmark
) -> Iterator[Problem]:
    """A run ends at the first evaluation that reaches the target, or with its schedule.

    What it checks
        No training after an evaluation that reached the target; `success` if and only if the
        last evaluation reached it; a run that did not reach it goes on to max_epochs.
    Why it is bad
        A run that stops early without the target was given up because it looked slow; one that
        says success without the target did not succeed.
    Example
        run_stop with status success after an accuracy of 0.975, target 0.98.
    How to put it right
        Let the run end of itself. The target is the benchmark's.
    """
    target, limit = benchmark.quality_target, configuration.max_epochs
    crossing = timeline.first_reaching(target)
    if crossing is not None:
        later = [r for r in run.counted if r.line > crossing.line and r.key == keys.EPOCH_START]
        for record in later[:1]:
            yield Problem(
                f"training goes on after epoch {short(crossing.epoch)} reached {target:g}",
                record.line,
            )
    stop = next((record for record in run.body if record.key == keys.RUN_STOP), None)
    if stop is None:
        return
    status = stop.metadata.get(keys.STATUS)
    if status != (keys.ABORTED if crossing is None else keys.SUCCESS):
        reached = "never reached" if crossing is None else "reached"
        yield Problem(f"status {short(status)}, but the target was {reached}", stop.line)
    done = _epochs_done(run)
    if crossing is None and done < limit and not _steps_used_up(run, done):
        yield Problem(f"stopped after {done} of {limit} epochs without the target", stop.line)
    if done > limit:
        yield Problem(f"{done} epochs, max_epochs is {limit}", stop.line)
