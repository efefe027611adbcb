"""The run result: what result.json holds, made from the event log and from nothing else.

Writing a result and checking one are the same function: a validator makes it anew from
events.log and compares.
"""

from __future__ import annotations

from typing import Any

from fourmin.base.values import mapping, number
from fourmin.log import keys
from fourmin.log.reader import EventLog
from fourmin.log.timeline import Timeline

CONVERGED = "converged"
NOT_CONVERGED = "not-converged"
ABORTED = "aborted"
STATUSES = (CONVERGED, NOT_CONVERGED, ABORTED)

ADDED_LATER = ("energy",)
"""Keys that result.json has had only since some version: an older one has none, not null."""

_MILLISECONDS_PER_MINUTE = 60_000


def run_result(log: EventLog) -> dict[str, Any]:
    """The content of result.json for one of this project's event logs.

    `status` is `converged` when the run ended of itself with the target reached, `not-converged`
    when it ended of itself without, `aborted` when anything else ended it. `minutes` is the time
    from run_start to run_stop; `images_per_second` counts the images trained on against the time
    between epoch_start and epoch_stop, without evaluation. `restarts`, where there were any, tells
    when, after which epoch, and how much of the time was lost; `clocks` is there where the log has
    it. A value that the log does not give is None; nothing is raised for a broken log.
    """
    timeline = Timeline.from_log(log)
    campaign = mapping(timeline.value(keys.CAMPAIGN))
    configuration = mapping(timeline.value(keys.CONFIGURATION))
    last = timeline.evaluations[-1] if timeline.evaluations else None
    milliseconds = timeline.time_to_train_ms
    return {
        "schema_version": 1,
        "campaign": campaign.get("campaign"),
        "run": campaign.get("run"),
        "attempt": campaign.get("attempt"),
        "practice": campaign.get("practice"),
        "ruleset": campaign.get("ruleset"),
        "benchmark": timeline.value(keys.SUBMISSION_BENCHMARK),
        "division": timeline.value(keys.SUBMISSION_DIVISION),
        "submitter": timeline.value(keys.SUBMISSION_ORG),
        "system_name": timeline.value(keys.SUBMISSION_PLATFORM),
        "status": _status(timeline),
        "failure": timeline.value(keys.ABORT),
        "seed": timeline.value(keys.SEED),
        "minutes": None if milliseconds is None else milliseconds / _MILLISECONDS_PER_MINUTE,
        "epochs": None if last is None else last.epoch,
        "quality": None if last is None else last.accuracy,
        "evaluations": [
            {
                "epoch": evaluation.epoch,
                "accuracy": evaluation.accuracy,
                "samples": evaluation.samples,
                "minutes": _minutes_between(timeline.run_start_ms, evaluation.time_ms),
            }
            for evaluation in timeline.evaluations
        ],
        "images_per_second": _throughput(timeline),
        "train_samples": timeline.train_samples,
        "eval_samples": timeline.eval_samples,
        "dataset": timeline.value(keys.DATASET),
        "initial_weights_digest": timeline.value(keys.INITIAL_WEIGHTS_DIGEST),
        "data_order_digest": timeline.value(keys.DATA_ORDER_DIGEST),
        "package_digest": timeline.value(keys.PACKAGE_DIGEST),
        "first_losses": timeline.value(keys.STEP_LOSS),
        "cache_cleared": timeline.value(keys.CACHE_CLEAR),
        "communication": timeline.value(keys.COMMUNICATION),
        "energy": timeline.value(keys.ENERGY),
        "configuration": configuration,
        "hyperparameters": timeline.hyperparameters,
        "system": timeline.value(keys.SYSTEM),
        **({"restarts": _restarts(timeline)} if timeline.restarts else {}),
        **({"clocks": timeline.value(keys.CLOCKS)} if timeline.count(keys.CLOCKS) else {}),
    }


def _status(timeline: Timeline) -> str:
    if timeline.count(keys.ABORT) or not timeline.count(keys.RUN_STOP):
        return ABORTED
    return CONVERGED if timeline.status == keys.SUCCESS else NOT_CONVERGED


def _restarts(timeline: Timeline) -> list[dict[str, Any]]:
    return [
        {
            "restart": restart.number,
            "epoch": restart.epoch,
            "minutes": _minutes_between(timeline.run_start_ms, restart.time_ms),
            "lost_minutes": _minutes_between(0, restart.lost_ms),
        }
        for restart in timeline.restarts
    ]


def _throughput(timeline: Timeline) -> float | None:
    """Images trained on in whole epochs, over the time spent in them (images/s)."""
    images, milliseconds = 0.0, 0.0
    counts = {
        record.line: number(record.metadata.get(keys.SAMPLES_COUNT))
        for record in timeline.all(keys.EPOCH_STOP)
    }
    for interval in timeline.epoch_intervals:
        count = None if interval.stop_line is None else counts.get(interval.stop_line)
        if count is not None and interval.duration_ms is not None:
            images += count
            milliseconds += interval.duration_ms
    return images / milliseconds * 1000 if milliseconds > 0 else None


def _minutes_between(start_ms: float | None, stop_ms: float | None) -> float | None:
    if start_ms is None or stop_ms is None:
        return None
    return (stop_ms - start_ms) / _MILLISECONDS_PER_MINUTE
