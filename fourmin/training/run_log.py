"""What a run says of itself before and after its clock: MLPerf's keys and this project's own."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fourmin.launch.job import Job
from fourmin.log import keys
from fourmin.log.writer import RunLog
from fourmin.recipe.algorithms import update_name
from fourmin.recipe.optimizers import OPTIMIZERS
from fourmin.recipe.schedule import LearningRateSchedule
from fourmin.training.comm.fusion import ReductionCounters

MOST_RANKS_LOGGED = 2048
"""Two numbers for each of so many ranks fit into one record of the event log."""


def log_submission(log: RunLog, job: Job) -> None:
    """Who runs what, where, and with which harness."""
    configuration = job.configuration
    log.point(keys.SUBMISSION_BENCHMARK, configuration.benchmark)
    log.point(keys.SUBMISSION_ORG, job.submitter)
    log.point(keys.SUBMISSION_DIVISION, configuration.division)
    log.point(keys.SUBMISSION_STATUS, "onprem")
    log.point(keys.SUBMISSION_PLATFORM, job.system_name)
    campaign = {
        "campaign": job.campaign,
        "run": job.run,
        "attempt": job.attempt,
        "practice": job.practice,
        "ruleset": job.ruleset,
    }
    log.point(keys.CAMPAIGN, campaign)
    log.point(keys.PACKAGE_DIGEST, job.package_digest)
    log.point(keys.SYSTEM, {"digest": job.system_digest, **job.system})
    # Nothing here empties the page cache, so it is disclosed as warm.
    log.point(keys.CACHE_CLEAR, False)


def log_hyperparameters(log: RunLog, job: Job, schedule: LearningRateSchedule) -> None:
    """Everything that can change the outcome: the whole configuration, and MLPerf's keys."""
    configuration = job.configuration
    log.point(keys.CONFIGURATION, configuration.to_json())
    log.point(keys.DATASET, dict(job.dataset))
    log.point(keys.SEED, job.seed)
    log.point(keys.TRAIN_SAMPLES, job.dataset["train_samples"])
    log.point(keys.EVAL_SAMPLES, job.dataset["eval_samples"])
    log.point(keys.GLOBAL_BATCH_SIZE, configuration.global_batch_size)
    log.point(keys.GRADIENT_ACCUMULATION_STEPS, configuration.gradient_accumulation_steps)
    log.point(keys.MODEL_BN_SPAN, configuration.bn_span * configuration.local_batch_size)
    log.point(keys.OPT_NAME, update_name(configuration))
    entry = OPTIMIZERS[configuration.optimizer]
    for key, value in entry.values(configuration, schedule.decay_steps).items():
        log.point(key, value)


def log_clocks(
    log: RunLog, job: Job, started_ns: NDArray[np.float64], exposed: NDArray[np.float64]
) -> None:
    """How far the nodes' clocks and the ranks' starts were apart, and how long each rank waited.

    `started_ns` is what each rank's own clock showed when it left the barrier before the start;
    its node's offset, measured by the command, is taken off. `exposed` has a row for each rank and
    a column for each step (ms); who waits least for the others' gradients is the slowest.
    """
    clocks = job.clocks or {"offset_ms": [0.0], "uncertainty_ms": [0.0]}
    offsets = np.repeat(np.asarray(clocks["offset_ms"]), job.configuration.procs_per_node)
    started = (started_ns - started_ns[0]) / 1e6 - (offsets - offsets[0])
    log.point(
        keys.CLOCKS,
        {
            "node_offset_ms": clocks["offset_ms"],
            "node_uncertainty_ms": clocks["uncertainty_ms"],
            "rank_start_skew_ms": _fitting(started, job),
            "rank_wait_ms_mean": _fitting(exposed.mean(axis=1), job),
        },
    )


def _fitting(values: NDArray[np.float64], job: Job) -> list[float]:
    """One value a rank; where a record could not hold so many, the largest of each node."""
    if len(values) > MOST_RANKS_LOGGED:
        values = values.reshape(-1, job.configuration.procs_per_node).max(axis=1)
    return [round(float(value), 3) for value in values]


def log_communication(
    log: RunLog,
    counters: ReductionCounters,
    exposed_ms: NDArray[np.float64],
    steps: int,
) -> None:
    """What the choice of algorithm and buckets did; all but the skew is of rank 0.

    `exposed_ms` has a row for each rank and a column for each step since the last restart; `steps`
    are those of the whole run. All ranks leave a reduction together, so the rank that came last
    waited least: the skew of a step is the difference of the longest and the shortest wait. It
    needs no common clock.
    """
    skew = exposed_ms.max(axis=0) - exposed_ms.min(axis=0)
    sent = sum(counters.bucket_bytes) if len(exposed_ms) > 1 else 0
    log.point(
        keys.COMMUNICATION,
        {
            "algorithms": list(counters.bucket_algorithms),
            "bucket_bytes": list(counters.bucket_bytes),
            "buckets": len(counters.bucket_bytes),
            "bytes": counters.bytes if counters.counted else steps * sent,
            "exposed_ms_median": float(np.median(exposed_ms[0])),
            "exposed_ms_p95": float(np.percentile(exposed_ms[0], 95)),
            "skew_ms_median": float(np.median(skew)),
            "skew_ms_p95": float(np.percentile(skew, 95)),
        },
    )
