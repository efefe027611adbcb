"""LOG: the event log's lines, its events and their order, and the result made from it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import islice

from fourmin.base.values import mapping
from fourmin.ledger.history import RunHistory
from fourmin.ledger.view import CampaignView, Document, RunView
from fourmin.log import keys
from fourmin.log.reader import EventLog
from fourmin.recipe.algorithms import SYNCHRONOUS, WAITING
from fourmin.results.plan import Plan
from fourmin.results.schema import schema_errors
from fourmin.rules.compare import MOST_DIFFERENCES, differences, same, short
from fourmin.rules.rule import ERROR, RUN, Problem, rule

SETUP = (
    *keys.SUBMISSION_KEYS,
    keys.CAMPAIGN,
    keys.PACKAGE_DIGEST,
    keys.SYSTEM,
    keys.CACHE_CLEAR,
    keys.INIT_START,
    keys.CONFIGURATION,
    keys.DATASET,
    keys.SEED,
    keys.TRAIN_SAMPLES,
    keys.EVAL_SAMPLES,
    keys.GLOBAL_BATCH_SIZE,
    keys.GRADIENT_ACCUMULATION_STEPS,
    keys.MODEL_BN_SPAN,
    keys.OPT_NAME,
    keys.INITIAL_WEIGHTS_DIGEST,
    keys.INIT_STOP,
)
"""Events that a run logs exactly once before its clock starts."""
ON_THE_CLOCK = (keys.RUN_START, keys.STEP_LOSS, keys.RUN_STOP)
AFTERWARDS = (keys.CLOCKS, keys.DATA_ORDER_DIGEST, keys.COMMUNICATION)
WHERE_THERE_IS_A_METER = (keys.ENERGY,)
WITHOUT_WAITING = (keys.STALENESS,)
_OF_OTHERS = {keys.BLOCK_START, keys.BLOCK_STOP, keys.WEIGHTS_INITIALIZATION}
_METADATA = {
    keys.FILE,
    keys.LINENO,
    keys.MONOTONIC_MS,
    keys.EPOCH_NUM,
    keys.FIRST_EPOCH_NUM,
    keys.EPOCH_COUNT,
    keys.STEP_NUM,
    keys.SAMPLES_COUNT,
    keys.STATUS,
    keys.TENSOR,
    keys.SUCCESS,
    keys.ABORTED,
    *keys.EVENT_TYPES,
    keys.FOURMIN_NAMESPACE,
}
KNOWN = (
    {value for name, value in vars(keys).items() if name.isupper() and isinstance(value, str)}
    - _METADATA
    - _OF_OTHERS
)
"""Every key that this project's logs can have."""


@rule("LOG001", "strict-log", ERROR, RUN)
def strict_log(run: RunView, log: EventLog) -> Iterator[Problem]:
    """The event log holds `:::MLLOG {json}` lines and nothing else.

    What it checks
        Every byte belongs to a line with one record: all six fields with their types, an integer
        time, strict JSON, a line feed. Only a line that a kill cut off, the last one or the one
        before a restart, may be otherwise.
    Why it is bad
        What a reader has to skip or guess at can hide a second record.
    Example
        Two records on one line.
    How to put it right
        Restore events.log from where the run was made.
    """
    cut_off = {restart.line - 1 for restart in run.restarts}
    if run.aborted_at is not None:
        cut_off.add(run.aborted_at - 1)
    elif not run.complete and run.events is not None:
        cut_off.add(run.events.count(b"\n") + 1)
    for problem in log.problems:
        kinds = ("truncated-record", "malformed-record", "outside-record", "no-records")
        if not (problem.line in cut_off and problem.kind in kinds):
            yield Problem(problem.message, problem.line)


@rule("LOG002", "event-counts", ERROR, RUN)
def event_counts(run: RunView, log: EventLog) -> Iterator[Problem]:
    """What a run says of itself, it says exactly once.

    What it checks
        One record each of the submission, campaign, system, package, configuration, dataset,
        seed, sample counts, batch, optimizer and initial-weights keys before init_stop; one
        run_start and run_stop, also in a run that was restarted; one step_loss, clocks,
        data_order_digest and communication in a run that ended of itself, and one staleness where
        its algorithm is asynchronous; at most one energy.
    Why it is bad
        Of two values a reader takes the first and another the last.
    Example
        Two run_start records: the second starts the clock late.
    How to put it right
        Restore events.log from where the run was made.
    """
    counts = Counter(record.key for record in run.counted)
    lines = {record.key: record.line for record in run.counted}
    algorithm = mapping(run.facts.configuration).get("algorithm", SYNCHRONOUS)
    absent = WITHOUT_WAITING if algorithm in WAITING else ()
    for key in (*SETUP, *ON_THE_CLOCK, *AFTERWARDS, *WITHOUT_WAITING, *WHERE_THERE_IS_A_METER):
        needed = run.whole or (key in SETUP and counts[keys.INIT_STOP] > 0)
        needed = needed and key not in (*WHERE_THERE_IS_A_METER, *absent)
        if counts[key] > 1:
            yield Problem(f"{key} occurs {counts[key]} times", lines[key])
        elif needed and not counts[key]:
            yield Problem(f"{key} is missing")


@rule("LOG003", "event-order", ERROR, RUN)
def event_order(run: RunView, log: EventLog) -> Iterator[Problem]:
    """The events come in the order in which a run goes.

    What it checks
        init_start, the setup keys, init_stop, run_start; staging_start and staging_stop where the
        images were copied to the node; then for each epoch from 1 epoch_start, epoch_stop,
        tracked_stats and, where it is evaluated, eval_start, weights_digest (or first this),
        eval_accuracy, eval_stop of the same epoch; run_stop; and after an abort nothing but its
        run_stop. A run_restart, anywhere between run_start and run_stop, is followed by the epoch
        after the one it names.
    Why it is bad
        An accuracy after run_stop, or training or copying before run_start, is outside the time
        that is counted.
    Example
        The only accuracy that reaches the target stands after run_stop.
    How to put it right
        Restore events.log from where the run was made.
    """
    yield from _phases(run)
    yield from _epochs(run)
    for record in log.records[len(run.body) :]:
        aborted = record.metadata.get(keys.STATUS) == keys.ABORTED
        if record.key != keys.ABORT and not (record.key == keys.RUN_STOP and aborted):
            yield Problem(f"{record.key} after the run was aborted", record.line)


_PHASES = {
    **dict.fromkeys(SETUP, 1),
    keys.SUBMISSION_BENCHMARK: 0,
    keys.INIT_STOP: 2,
    keys.RUN_START: 3,
    **dict.fromkeys(
        (keys.EPOCH_START, keys.EPOCH_STOP, keys.EVAL_START, keys.EVAL_ACCURACY, keys.EVAL_STOP), 4
    ),
    keys.WEIGHTS_DIGEST: 4,
    keys.STAGING_START: 4,
    keys.STAGING_STOP: 4,
    keys.STEP_LOSS: 4,
    keys.TRACKED_STATS: 4,
    keys.CHECKPOINT: 4,
    keys.RUN_RESTART: 4,
    keys.RUN_STOP: 5,
    **dict.fromkeys((*AFTERWARDS, *WITHOUT_WAITING, *WHERE_THERE_IS_A_METER), 6),
}
_PHASE_NAMES = ("the start", "setup", keys.INIT_STOP, keys.RUN_START, "training", keys.RUN_STOP)


def _phases(run: RunView) -> Iterator[Problem]:
    reached = 0
    for record in run.body:
        phase = _PHASES.get(record.key, reached)
        if phase < reached:
            after = _PHASE_NAMES[reached] if reached < len(_PHASE_NAMES) else "the end"
            yield Problem(f"{record.key} after {after}", record.line)
        reached = max(reached, phase)


def _epochs(run: RunView) -> Iterator[Problem]:
    """The intervals of the epochs, as a state machine."""
    follow = {
        keys.EPOCH_START: (None, keys.TRACKED_STATS, keys.EVAL_STOP, keys.RUN_RESTART),
        keys.EPOCH_STOP: (keys.EPOCH_START,),
        keys.TRACKED_STATS: (keys.EPOCH_STOP,),
        keys.WEIGHTS_DIGEST: (keys.TRACKED_STATS, keys.EVAL_START),
        keys.EVAL_START: (keys.TRACKED_STATS, keys.WEIGHTS_DIGEST),
        keys.EVAL_ACCURACY: (keys.EVAL_START, keys.WEIGHTS_DIGEST),
        keys.EVAL_STOP: (keys.EVAL_ACCURACY,),
        keys.RUN_STOP: (None, keys.TRACKED_STATS, keys.EVAL_STOP),
    }
    before: str | None = None
    missing: set[str] = set()
    epoch = 0
    points = {restart.line: restart.epoch for restart in run.restarts}
    for record in run.body:
        if record.line in points:
            before, epoch = keys.RUN_RESTART, points[record.line] or 0
        if record.key not in follow:
            continue
        follows = before in follow[record.key]
        if record.key == keys.TRACKED_STATS:
            # In any order, each once: weights are hashed before the evaluation, or beside it.
            missing = {keys.WEIGHTS_DIGEST, keys.EVAL_START}
        elif record.key == keys.EVAL_ACCURACY:
            follows = follows and not missing
        elif record.key in (keys.WEIGHTS_DIGEST, keys.EVAL_START):
            follows = follows and record.key in missing
            missing.discard(record.key)
        if not follows:
            yield Problem(f"{record.key} after {before or keys.RUN_START}", record.line)
        before = record.key
        if record.key == keys.RUN_STOP:
            continue
        epoch += record.key == keys.EPOCH_START
        named = record.metadata.get(keys.EPOCH_NUM)
        if not same(named, epoch):
            yield Problem(f"{record.key} of epoch {short(named)} in epoch {epoch}", record.line)


@rule("LOG004", "result-from-log", ERROR, RUN)
def result_from_log(run: RunView, result: Document, log: EventLog) -> Iterator[Problem]:
    """result.json says what its event log gives, and nothing else.

    What it checks
        The result is made anew from events.log and compared field by field.
    Why it is bad
        A number that the log does not give was made up.
    Example
        `"minutes": 1.9` where run_start and run_stop lie 2.4 minutes apart.
    How to put it right
        Restore result.json from where the run was made.
    """
    error = result.error
    if error is not None:
        if run.campaign is None:  # in a campaign, strict-json tells
            yield Problem(error.message, error.line, path=result.path)
        return
    found = differences(result.value, run.facts.to_json())
    for difference in islice(found, MOST_DIFFERENCES):
        yield Problem(difference, path=result.path)


@rule("LOG005", "log-identity", ERROR, RUN)
def log_identity(
    run: RunView, campaign: CampaignView, plan: Plan, history: RunHistory, log: EventLog
) -> Iterator[Problem]:
    """The log is that of this run of this campaign.

    What it checks
        Campaign digest, run, attempt, practice, ruleset, benchmark, division, submitter and
        system name in the log against the plan and the ledger, and the ledger's status against
        the log's.
    Why it is bad
        A log from another campaign was made under another plan, and perhaps picked.
    Example
        run-5 holds the fastest log of last week's campaign.
    How to put it right
        Put back the log that this campaign wrote.
    """
    facts = run.facts
    same_name = ("practice", "ruleset", "benchmark", "division", "submitter")
    expected = {
        "campaign": campaign.digest,
        "run": run.number,
        "attempt": len(history.intents),
        **{name: getattr(plan, name) for name in same_name},
        "system_name": plan.system,
    }
    begun = any(record.key == keys.INIT_START for record in run.body)
    for name, value in expected.items():
        told = getattr(facts, name)
        if not same(told, value) and (begun or told is not None):
            yield Problem(f"{name} is {short(told)}, not {short(value)}")
    if history.result is not None and history.result.data.get("status") != facts.status:
        here = short(history.result.data.get("status"))
        what = f"run {run.number} is {here} here, but {facts.status} by its log"
        yield Problem(what, history.result.line, path="ledger.jsonl")


@rule("LOG006", "known-events", ERROR, RUN)
def known_events(run: RunView, log: EventLog) -> Iterator[Problem]:
    """Every event is one that this ruleset knows, of its own kind.

    What it checks
        Each record's key, its namespace and its event type.
    Why it is bad
        An event that no reader knows is an event that no rule can judge.
    Example
        `eval_accuracy` in the namespace `fourmin`.
    How to put it right
        Validate with the version of fourmin that wrote the log. If it is this one, restore the
        log.
    """
    for record in log.records:
        namespace = keys.FOURMIN_NAMESPACE if record.key in keys.FOURMIN_KEYS else ""
        if record.key not in KNOWN:
            yield Problem(f"unknown event {short(record.key)}", record.line)
        elif record.event_type != _event_type(record.key):
            yield Problem(f"{record.key} is of type {record.event_type}", record.line)
        elif record.namespace != namespace:
            yield Problem(f"{record.key} in the namespace {short(record.namespace)}", record.line)


def _event_type(key: str) -> str:
    if key.endswith("_start"):
        return keys.INTERVAL_START
    return keys.INTERVAL_END if key.endswith("_stop") else keys.POINT_IN_TIME


@rule("LOG007", "log-types", ERROR, RUN)
def log_types(run: RunView, log: EventLog) -> Iterator[Problem]:
    """A finished run's log gives a result that its schema accepts.

    What it checks
        The result made from events.log against the schema of result.json; and that the records of
        intervals, which only say when, have no value.
    Why it is bad
        A value of another type or form in the log is a value that no rule can judge.
    Example
        An accuracy of `"0.98"` or of 98.
    How to put it right
        Restore events.log from where the run was made.
    """
    if not run.complete:
        return
    for error in schema_errors(run.ruleset, "result", run.facts.to_json()):
        yield Problem(f"the result made from it: {error}")
    for record in log.records:
        if record.event_type != keys.POINT_IN_TIME and record.value is not None:
            yield Problem(f"{record.key} with a value", record.line)
