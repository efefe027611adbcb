"""LOG and CLK for MLPerf's logs: what was written, how often, in which order, at what time."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from fourmin.base.values import number
from fourmin.log import keys
from fourmin.log.records import Record
from fourmin.results.importers.model import MLPERF, ForeignRun
from fourmin.results.importers.tensors import TENSORS
from fourmin.rules.compare import short
from fourmin.rules.foreign.judge import FOREIGN_RUN, judge
from fourmin.rules.rule import ERROR, NOTE, WARNING, Problem

ODDITIES = {
    **dict.fromkeys(
        (
            "unreadable",
            "too-large",
            "too-many-records",
            "record-too-long",
            "no-records",
            "duplicate-key",
            "not-finite",
            "number-too-long",
            "too-deep",
        ),
        ERROR,
    ),
    **dict.fromkeys(
        ("malformed-record", "truncated-record", "lone-surrogate", "time-not-a-time"), WARNING
    ),
}
"""Severity of what the reader found; what is missing here is a note: anybody reads it alike."""
LARGEST_GAP_MS = 60_000
"""From init_stop to run_start; the longest in 1,005 published logs is 47 s."""
NOTICED_STEP_MS = 1000
"""Processes that share a log write a few ms out of turn."""

_ONCE = (keys.INIT_STOP, keys.RUN_START, keys.RUN_STOP)
_SETUP = (*keys.SUBMISSION_KEYS, keys.CACHE_CLEAR, keys.INIT_START, *_ONCE)
_SAMPLES = (keys.TRAIN_SAMPLES, keys.EVAL_SAMPLES)
_LARS = (
    keys.LARS_OPT_BASE_LEARNING_RATE,
    keys.LARS_OPT_END_LEARNING_RATE,
    keys.LARS_OPT_LEARNING_RATE_DECAY_POLY_POWER,
    keys.LARS_OPT_LEARNING_RATE_DECAY_STEPS,
    keys.LARS_EPSILON,
    keys.LARS_OPT_LEARNING_RATE_WARMUP_EPOCHS,
    keys.LARS_OPT_MOMENTUM,
    keys.LARS_OPT_WEIGHT_DECAY,
)
_SGD = (
    keys.SGD_OPT_BASE_LEARNING_RATE,
    keys.SGD_OPT_END_LEARNING_RATE,
    keys.SGD_OPT_LEARNING_RATE_DECAY_POLY_POWER,
    keys.SGD_OPT_LEARNING_RATE_DECAY_STEPS,
    keys.SGD_OPT_MOMENTUM,
    keys.SGD_OPT_WEIGHT_DECAY,
    keys.OPT_LEARNING_RATE_WARMUP_EPOCHS,
    keys.MODEL_BN_SPAN,
)
_EITHER = (
    (keys.BLOCK_START, keys.EPOCH_START),
    (keys.BLOCK_STOP, keys.EPOCH_STOP),
    (keys.EVAL_START, keys.BLOCK_START),
    (keys.EVAL_STOP, keys.BLOCK_STOP),
)
_NUMBERED = {
    keys.BLOCK_START: (keys.FIRST_EPOCH_NUM, keys.EPOCH_COUNT),
    keys.BLOCK_STOP: (keys.FIRST_EPOCH_NUM,),
    keys.EPOCH_START: (keys.EPOCH_NUM,),
    keys.EPOCH_STOP: (keys.EPOCH_NUM,),
    keys.EVAL_START: (keys.EPOCH_NUM,),
    keys.EVAL_STOP: (keys.EPOCH_NUM,),
    keys.EVAL_ACCURACY: (keys.EPOCH_NUM,),
}


_SUBMISSION_VALUES = {
    keys.SUBMISSION_DIVISION: ("closed", "open"),
    keys.SUBMISSION_STATUS: ("cloud", "onprem", "preview", "research"),
}


_NUMERIC = (int, float)


@judge("LOG001", FOREIGN_RUN, MLPERF)
def strict_log(run: ForeignRun) -> Iterator[Problem]:
    """A record that is not strict JSON (a key twice, NaN) or cannot be read at all is an error, one
    that had to be skipped a warning; other text, missing fields and the like are notes.
    """
    counts = run.log.problem_counts
    if not counts:
        return
    ordered = sorted(run.log.problems, key=lambda problem: problem.kind)
    for kind, group in groupby(ordered, key=lambda problem: problem.kind):
        first = next(group)
        more = "" if counts[kind] == 1 else f" (and {counts[kind] - 1} more)"
        yield Problem(first.message + more, first.line, severity=ODDITIES.get(kind, NOTE))


@judge("LOG002", FOREIGN_RUN, MLPERF)
def event_counts(run: ForeignRun) -> Iterator[Problem]:
    """The events that the round's rules demand of a closed or open log are there, init_stop,
    run_start and run_stop once, and none is logged with two values.
    """
    timeline, rules = run.timeline, run.round
    needed = [keys.RUN_START, keys.RUN_STOP, keys.EVAL_ACCURACY]
    if rules.setup_keys:
        needed = [*_SETUP, *_SAMPLES, keys.EVAL_ACCURACY]
        if run.closed:
            needed += [keys.GLOBAL_BATCH_SIZE, keys.OPT_NAME, *_optimizer_keys(run)]
            if rules.accumulation_key:
                needed.append(keys.GRADIENT_ACCUMULATION_STEPS)
        for either in _EITHER:
            if not any(timeline.count(key) for key in either):
                yield Problem(f"neither {either[0]} nor {either[1]}")
    for key in needed:
        if not timeline.count(key):
            yield Problem(f"{key} is missing")
    for key in _ONCE:
        records = timeline.all(key)
        if len(records) > 1:
            yield Problem(f"{key} occurs {len(records)} times", records[1].line)
    if rules.setup_keys:
        yield from _conflicts(run)
        if rules.tensors and run.closed:
            yield from _tensors(run)


def _optimizer_keys(run: ForeignRun) -> tuple[str, ...]:
    return {"lars": _LARS, "sgd": _SGD}.get(str(run.timeline.value(keys.OPT_NAME)), ())


def _conflicts(run: ForeignRun) -> Iterator[Problem]:
    for key in (*keys.HYPERPARAMETERS, *keys.SUBMISSION_KEYS, *_SAMPLES):
        values = run.timeline.values(key)
        if len(values) > 1:
            shown = ", ".join(short(value) for value in values[:3])
            yield Problem(f"{key} is logged as {shown}", run.timeline.all(key)[1].line)


def _tensors(run: ForeignRun) -> Iterator[Problem]:
    names = [
        record.metadata.get(keys.TENSOR) for record in run.timeline.all(keys.WEIGHTS_INITIALIZATION)
    ]
    if not names:
        yield Problem(f"{keys.WEIGHTS_INITIALIZATION} is missing")
    elif len(names) != len(TENSORS) or {str(name) for name in names} != TENSORS:
        yield Problem(
            f"{len(names)} records of {keys.WEIGHTS_INITIALIZATION}; the round asks for one of "
            f"each of the model's {len(TENSORS)} tensors, by MLPerf's names"
        )


@judge("LOG003", FOREIGN_RUN, MLPERF)
def event_order(run: ForeignRun) -> Iterator[Problem]:
    """init_start, init_stop, run_start, training and evaluation, run_stop, in this order in the
    file; caches are emptied before the clock starts; epochs count from 1.
    """
    timeline = run.timeline
    start, stop = timeline.first(keys.RUN_START), timeline.last(keys.RUN_STOP)
    if start is not None and stop is not None and stop.line < start.line:
        yield Problem("run_stop before run_start", stop.line)
        return
    if not run.round.setup_keys:
        return
    yield from _setup_order(run, start)
    if start is not None:
        for key in (keys.EPOCH_START, keys.BLOCK_START, keys.EVAL_ACCURACY):
            first = timeline.first(key)
            if first is not None and first.line < start.line:
                yield Problem(f"{key} before run_start", first.line)
    if stop is not None:
        for key in (keys.EPOCH_START, keys.BLOCK_START, keys.EVAL_ACCURACY):
            last = timeline.last(key)
            if last is not None and last.line > stop.line:
                yield Problem(f"{key} after run_stop", last.line)
    yield from _first_epoch(run)


def _setup_order(run: ForeignRun, start: Record | None) -> Iterator[Problem]:
    timeline = run.timeline
    init_start, init_stop = timeline.first(keys.INIT_START), timeline.first(keys.INIT_STOP)
    if init_stop is not None:
        late = timeline.last(keys.INIT_START)
        if late is not None and late.line > init_stop.line:
            yield Problem("init_start after init_stop", late.line)
        if start is not None and start.line < init_stop.line:
            yield Problem("init_stop after run_start", init_stop.line)
    cleared = timeline.last(keys.CACHE_CLEAR)
    if cleared is not None and start is not None and cleared.line > start.line:
        yield Problem("cache_clear after run_start", cleared.line)
    if init_start is not None and start is not None and init_start.line > start.line:
        yield Problem("init_start after run_start", init_start.line)


def _first_epoch(run: ForeignRun) -> Iterator[Problem]:
    """Epochs from 0; as open results number them freely, there it is a note."""
    timeline = run.timeline
    first = timeline.first(keys.EPOCH_START)
    epoch = None if first is None else number(first.metadata.get(keys.EPOCH_NUM))
    evaluated = timeline.first(keys.EVAL_ACCURACY)
    if epoch is None and evaluated is not None and timeline.block_intervals:
        # Blocks that alone count from 0 are a label; with their evaluations, all are one less.
        block = timeline.block_intervals[0]
        after = number(evaluated.metadata.get(keys.EPOCH_NUM))
        if block.epoch == 0 and after is not None and after < (block.epoch_count or 0):
            first, epoch = evaluated, 0
    if first is not None and epoch is not None and epoch < 1:
        severity = ERROR if run.closed else NOTE
        yield Problem(f"epochs count from {epoch:g}, not from 1", first.line, severity=severity)


@judge("LOG007", FOREIGN_RUN, MLPERF)
def log_types(run: ForeignRun) -> Iterator[Problem]:
    """Times are numbers, not text; epoch and block events say which epochs they are about; run_stop
    has a status; division and status of the submission are among MLPerf's.
    """
    for problem in run.log.problems:
        if problem.kind == "time-not-integer" and "string" in problem.message:
            yield Problem("time_ms is a string", problem.line)
            break
    if not run.round.setup_keys:
        return
    for key, names in _NUMBERED.items():
        records = run.timeline.all(key)
        for name in names:
            wrong = next((r for r in records if type(r.metadata.get(name)) not in _NUMERIC), None)
            if wrong is not None:
                yield Problem(f"{key} without a number {name}", wrong.line)
    for block in run.timeline.block_intervals:
        if block.epoch_count is not None and block.epoch_count <= 0:
            yield Problem(f"a block of {block.epoch_count:g} epochs", block.start.line)
    stop = run.timeline.last(keys.RUN_STOP)
    if stop is not None and run.timeline.status is None:
        yield Problem("run_stop without status", stop.line)
    for key, known in _SUBMISSION_VALUES.items():
        named = run.timeline.first(key)
        if named is not None and named.value not in known:
            yield Problem(f"{key} is {short(named.value)}", named.line)
    for key in (keys.SUBMISSION_ORG, keys.SUBMISSION_PLATFORM):
        named = run.timeline.first(key)
        if named is not None and named.value in ("", None):
            yield Problem(f"{key} is empty", named.line)


@judge("CLK001", FOREIGN_RUN, MLPERF)
def time_backwards(run: ForeignRun) -> Iterator[Problem]:
    """run_stop is not earlier than run_start, and between them no time is more than a second before
    the one above it; outside of them that is a warning, and a few ms are nothing.
    """
    timeline = run.timeline
    length = timeline.time_to_train_ms
    start, stop = timeline.first(keys.RUN_START), timeline.last(keys.RUN_STOP)
    if length is not None and length < 0 and stop is not None:
        yield Problem(f"run_stop {-length:g} ms before run_start", stop.line)
    first = 0 if start is None else start.line
    last = first if stop is None else stop.line
    for step in timeline.backward_steps:
        if step.by_ms > NOTICED_STEP_MS:
            timed = first < step.line <= last
            yield Problem(
                f"{step.key} {step.by_ms:g} ms before the record above it",
                step.line,
                severity=ERROR if timed else WARNING,
            )


@judge("CLK003", FOREIGN_RUN, MLPERF)
def gap_before_start(run: ForeignRun) -> Iterator[Problem]:
    """run_start follows init_stop within a minute, and is not before it by more than a second."""
    stop_ms, start_ms = run.timeline.init_stop_ms, run.timeline.run_start_ms
    start = run.timeline.first(keys.RUN_START)
    if stop_ms is None or start_ms is None or start is None or not run.round.setup_keys:
        return
    gap = start_ms - stop_ms
    if gap > LARGEST_GAP_MS:
        yield Problem(f"run_start {gap / 1000:.1f} s after init_stop", start.line)
    elif gap < -NOTICED_STEP_MS:
        yield Problem(f"run_start {-gap / 1000:.1f} s before init_stop", start.line)


@judge("CLK005", FOREIGN_RUN, MLPERF)
def long_initialization(run: ForeignRun) -> Iterator[Problem]:
    """init_stop comes within the round's limit after the first init_start."""
    stop = run.timeline.last(keys.INIT_STOP)
    begun, ended = run.timeline.init_start_ms, run.timeline.init_stop_ms
    limits = run.round.init_minutes
    if stop is None or begun is None or ended is None or limits is None:
        return
    limit = limits[0 if run.closed else 1]
    minutes = (ended - begun) / 60_000
    if minutes >= limit:
        yield Problem(f"{minutes:.2f} minutes of initialization; less than {limit:g}", stop.line)


@judge("CLK006", FOREIGN_RUN, MLPERF)
def clock_stands(run: ForeignRun) -> Iterator[Problem]:
    """Time passes between run_start and run_stop, and between one evaluation and the next."""
    stop = run.timeline.last(keys.RUN_STOP)
    if stop is not None and run.timeline.time_to_train_ms == 0:
        yield Problem("no time passes from run_start to run_stop", stop.line)
    times = [evaluation.time_ms for evaluation in run.timeline.evaluations]
    if len(times) > 1 and times[0] is not None and len(set(times)) == 1:
        yield Problem("all evaluations are of the same time", run.timeline.evaluations[-1].line)
