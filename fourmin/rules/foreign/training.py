"""DAT, EVA, HYP, SEE, SYS and RUN for one run: data, evaluation, settings and outcome."""

from __future__ import annotations

import math
from collections.abc import Iterator

from fourmin.base.canonical import JSON
from fourmin.base.values import number
from fourmin.log import keys
from fourmin.log.timeline import Timeline
from fourmin.results.importers.model import (
    DAWNBENCH,
    EVAL_SAMPLES,
    MLPERF,
    MLPERF_BENCHMARK,
    TRAIN_SAMPLES,
    ForeignRun,
)
from fourmin.results.run_result import CONVERGED
from fourmin.rules.compare import short
from fourmin.rules.foreign.judge import FOREIGN_RUN, judge
from fourmin.rules.foreign.logs import ODDITIES
from fourmin.rules.rule import ERROR, NOTE, WARNING, Problem

EPOCHS_BETWEEN = 4
LARGE_BATCH = 32 * 1024
"""From here on MLPerf leaves the momentum free."""
SAMPLE_SHARE = 0.005
"""Counts may be off by so much: the last batch dropped or filled up, images counted from 0."""

_POSITIVE = (
    keys.LARS_OPT_MOMENTUM,
    keys.LARS_OPT_WEIGHT_DECAY,
    keys.LARS_OPT_BASE_LEARNING_RATE,
    keys.SGD_OPT_BASE_LEARNING_RATE,
    keys.OPT_BASE_LEARNING_RATE,
    keys.LARS_OPT_LEARNING_RATE_DECAY_STEPS,
    keys.SGD_OPT_LEARNING_RATE_DECAY_STEPS,
    keys.LARS_OPT_LEARNING_RATE_DECAY_POLY_POWER,
    keys.SGD_OPT_LEARNING_RATE_DECAY_POLY_POWER,
)
_NOT_NEGATIVE = (
    keys.LARS_OPT_END_LEARNING_RATE,
    keys.SGD_OPT_END_LEARNING_RATE,
    keys.LARS_OPT_LEARNING_RATE_WARMUP_EPOCHS,
    keys.OPT_LEARNING_RATE_WARMUP_EPOCHS,
    keys.SGD_OPT_MOMENTUM,
    keys.SGD_OPT_WEIGHT_DECAY,
    keys.OPT_WEIGHT_DECAY,
    keys.LARS_EPSILON,
)
_WHOLE = (keys.GLOBAL_BATCH_SIZE, keys.GRADIENT_ACCUMULATION_STEPS, keys.MODEL_BN_SPAN)
_FIXED = {
    keys.LARS_OPT_END_LEARNING_RATE: 1e-4,
    keys.LARS_OPT_LEARNING_RATE_DECAY_POLY_POWER: 2,
    keys.LARS_EPSILON: 0,
}
_MOMENTUM = (keys.LARS_OPT_MOMENTUM, keys.SGD_OPT_MOMENTUM)


@judge("LOG005", FOREIGN_RUN, MLPERF)
def log_identity(run: ForeignRun) -> Iterator[Problem]:
    """The log is one of ResNet-50, as the folder that it lies in says."""
    if run.benchmark not in ("", MLPERF_BENCHMARK):
        record = run.timeline.first(keys.SUBMISSION_BENCHMARK)
        yield Problem(
            f"a log of {short(run.benchmark)}, not of {MLPERF_BENCHMARK}",
            None if record is None else record.line,
        )


@judge("DAT001", FOREIGN_RUN, MLPERF)
def benchmark_dataset(run: ForeignRun) -> Iterator[Problem]:
    """train_samples and eval_samples are ImageNet's, within half a percent or filled up to whole
    batches; a note where they are not exactly so many.
    """
    batch = run.global_batch_size or 1
    for key, expected in (
        (keys.TRAIN_SAMPLES, TRAIN_SAMPLES),
        (keys.EVAL_SAMPLES, EVAL_SAMPLES),
    ):
        record = run.timeline.first(key)
        if record is None or not run.round.setup_keys:
            continue
        count = number(record.value)
        most = max(math.ceil(expected / batch) * batch, expected * (1 + SAMPLE_SHARE))
        if count != expected:
            near = count is not None and expected * (1 - SAMPLE_SHARE) <= count <= most
            message = f"{key} is {short(record.value)}, ImageNet has {expected}"
            yield Problem(message, record.line, severity=NOTE if near else "")


@judge("EVA001", FOREIGN_RUN, MLPERF)
def evaluation_schedule(run: ForeignRun) -> Iterator[Problem]:
    """In the closed division, an evaluation every 4 epochs, the first one after epoch 1, 2, 3 or
    4; up to v0.6 a departure is a warning.
    """
    rules = run.round
    if not run.closed:
        return
    severity = ERROR if rules.setup_keys else WARNING
    before: float | None = None
    for evaluation in run.timeline.evaluations:
        epoch = evaluation.epoch
        if epoch is None:
            continue
        if before is None:
            wrong = not (1 if rules.setup_keys else 0) <= epoch <= EPOCHS_BETWEEN
        else:
            wrong = epoch - before != EPOCHS_BETWEEN
        if wrong:
            after = "the first evaluation" if before is None else f"evaluated after {before:g} and"
            yield Problem(f"{after} after epoch {epoch:g}", evaluation.line, severity=severity)
            return
        before = epoch


@judge("EVA002", FOREIGN_RUN, MLPERF)
def accuracies(run: ForeignRun) -> Iterator[Problem]:
    """Every accuracy is a finite number from 0 to 1."""
    for evaluation in run.timeline.evaluations:
        accuracy = evaluation.accuracy
        if accuracy is None or not 0 <= accuracy <= 1:
            percent = ": accuracies are fractions, and this may be a percentage"
            looks_so = accuracy is not None and 1 < accuracy <= 100
            message = f"an accuracy of {short(evaluation.value)}{percent if looks_so else ''}"
            yield Problem(message, evaluation.line)


@judge("EVA003", FOREIGN_RUN, MLPERF)
def stops_at_target(run: ForeignRun) -> Iterator[Problem]:
    """run_stop says success if and only if an evaluation before it reached the target, its status
    is success or aborted, and nothing is evaluated after the first one that did.
    """
    timeline = run.timeline
    stop = timeline.last(keys.RUN_STOP)
    crossing = run.crossing
    if stop is not None:
        status = timeline.status
        reached = crossing is not None and crossing.line <= stop.line
        if status is None and not run.round.setup_keys:
            pass  # v0.5 and v0.6 did not always say
        elif status not in (keys.SUCCESS, keys.ABORTED):
            yield Problem(f"the status {short(status)}", stop.line)
        elif status == keys.SUCCESS and not reached and run.closed:
            yield Problem(
                f"status success, but no evaluation before it reached {run.target:g}", stop.line
            )
        elif status == keys.ABORTED and reached:
            yield Problem("status aborted, but the target was reached", stop.line)
    if crossing is None:
        return
    later = next((e for e in timeline.evaluations if e.line > crossing.line), None)
    if later is not None:
        yield Problem(
            f"evaluated again after epoch {short(later.epoch)}, when epoch "
            f"{short(crossing.epoch)} had reached {run.target:g}",
            later.line,
            severity=ERROR if run.closed and run.round.setup_keys else WARNING,
        )
        return
    yield from _trained_on(run, timeline, crossing.line, crossing.epoch)


def _trained_on(
    run: ForeignRun, timeline: Timeline, line: int, epoch: float | None
) -> Iterator[Problem]:
    """A whole epoch after the one that reached the target; pipelines begin one too early."""
    for record in reversed(timeline.all(keys.EPOCH_STOP)):
        if record.line < line:
            return
        last = number(record.metadata.get(keys.EPOCH_NUM))
        if last is not None and epoch is not None and last > epoch and run.closed:
            yield Problem(
                f"trained on to epoch {last:g}, when epoch {epoch:g} had reached {run.target:g}",
                record.line,
            )
            return


@judge("HYP001", FOREIGN_RUN, MLPERF)
def valid_configuration(run: ForeignRun) -> Iterator[Problem]:
    """Batch, accumulation and batch-norm span are whole numbers above 0, rates, steps, powers and
    LARS's momentum and weight decay numbers above 0, the rest not negative.
    """
    if not run.round.setup_keys:
        return
    for key, value in run.timeline.hyperparameters.items():
        wrong = _wrong(key, value)
        if wrong:
            line = run.timeline.all(key)[0].line
            yield Problem(f"{key} is {short(value)}: {wrong}", line)


def _wrong(key: str, value: JSON) -> str:
    count = number(value)
    if key in _WHOLE:
        whole = count is not None and math.isfinite(count) and count == int(count) and count > 0
        return "" if whole else "not a whole number above 0"
    if key in _POSITIVE:
        return "" if count is not None and 0 < count < math.inf else "not a number above 0"
    if key in _NOT_NEGATIVE:
        return "" if count is not None and 0 <= count < math.inf else "not a number from 0"
    return ""


@judge("HYP002", FOREIGN_RUN, MLPERF)
def closed_division(run: ForeignRun) -> Iterator[Problem]:
    """In the closed division: LARS or SGD; momentum 0.9 below batch 32,768; for LARS end rate 1e-4,
    power 2, epsilon 0 and a weight decay of 1e-4 times a power of two.
    """
    if not run.closed or not run.round.limits:
        return
    values = run.timeline.hyperparameters

    def problem(key: str, asked: str) -> Problem:
        line = run.timeline.all(key)[0].line
        return Problem(f"{key} is {short(values[key])}; {asked}", line)

    name = values.get(keys.OPT_NAME)
    if name is not None and name not in ("lars", "sgd"):
        yield problem(keys.OPT_NAME, "lars or sgd")
    batch = run.global_batch_size
    for key in _MOMENTUM:
        momentum = number(values.get(key))
        if momentum is not None and batch is not None and batch < LARGE_BATCH and momentum != 0.9:
            yield problem(key, f"0.9 below batch {LARGE_BATCH}")
    if name != "lars":
        return
    for key, expected in _FIXED.items():
        value = number(values.get(key))
        if value is not None and value != expected:
            yield problem(key, f"{expected:g}")
    decay = number(values.get(keys.LARS_OPT_WEIGHT_DECAY))
    if decay is not None and not _power_of_two(decay / 1e-4):
        yield problem(keys.LARS_OPT_WEIGHT_DECAY, "0.0001 times a power of two")


def _power_of_two(value: float) -> bool:
    if not 0 < value < math.inf:
        return False
    exponent = math.log2(value)
    return abs(exponent - round(exponent)) < 1e-6


@judge("SEE002", FOREIGN_RUN, MLPERF)
def seed_logged(run: ForeignRun) -> Iterator[Problem]:
    """A seed is logged, from v1.0 on. Whether it was chosen cannot be told: none is assigned."""
    if run.timeline.count(keys.SEED) or not run.round.setup_keys:
        return
    wanted = run.round.seed_key and run.closed
    yield Problem("no seed is logged", severity=ERROR if wanted else NOTE)


@judge("SYS005", FOREIGN_RUN, MLPERF)
def cold_cache(run: ForeignRun) -> Iterator[Problem]:
    """cache_clear does not say that the caches were left warm, which MLPerf forbids."""
    for record in run.timeline.all(keys.CACHE_CLEAR):
        if record.value in (False, "false", "False") or record.value == 0:
            yield Problem(f"cache_clear is {short(record.value)}", record.line, severity=ERROR)
            return


@judge("LOG001", FOREIGN_RUN, DAWNBENCH)
def readable_table(run: ForeignRun) -> Iterator[Problem]:
    """A table without its columns is an error, a row that cannot be read a warning."""
    for problem in run.log.problems[:10]:
        severity = ODDITIES.get(problem.kind, NOTE)
        yield Problem(problem.message, problem.line, severity=severity)


@judge("CLK001", FOREIGN_RUN, DAWNBENCH)
def hours_backwards(run: ForeignRun) -> Iterator[Problem]:
    """The hours never decrease from row to row."""
    for evaluation, after in zip(
        run.timeline.evaluations, run.timeline.evaluations[1:], strict=False
    ):
        if (after.time_ms or 0) < (evaluation.time_ms or 0):
            yield Problem("fewer hours than in the row above", after.line)
            return


@judge("EVA002", FOREIGN_RUN, DAWNBENCH)
def top5_accuracies(run: ForeignRun) -> Iterator[Problem]:
    """Every accuracy lies between 0 and 100%."""
    for evaluation in run.timeline.evaluations:
        accuracy = evaluation.accuracy
        if accuracy is None or not 0 <= accuracy <= 1:
            yield Problem(f"an accuracy of {short(evaluation.value)}", evaluation.line)
            return


@judge("RUN009", FOREIGN_RUN, DAWNBENCH)
def below_93(run: ForeignRun) -> Iterator[Problem]:
    """No row reaches a top-5 accuracy of 93%, so there is no result."""
    if run.facts.status != CONVERGED and not run.log.problem_counts.get("unreadable"):
        yield Problem("no row has a top-5 accuracy of at least 93%", severity=ERROR)
