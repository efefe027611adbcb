"""Results of MLPerf and DAWNBench as a report shows them, beside this project's own."""

from __future__ import annotations

from fourmin.report.model import ReportedRun, Result
from fourmin.results.importers.model import BENCHMARK, DAWNBENCH, ForeignRun, ForeignSet

DATASETS = {DAWNBENCH: "ImageNet, top-5"}
MLPERF_DATASET = "ImageNet"


def foreign_result(found: ForeignSet, findings: int, valid: bool) -> Result:
    """One run set or entry; whatever its files do not give is None.

    It is a group of its own: nothing says which sets are attempts at the same result.
    """
    dawnbench = found.source == DAWNBENCH
    rules = found.round
    clock = "DAWNBench" if dawnbench or rules is None else rules.clock
    score = found.score
    return Result(
        source=found.source,
        path=found.path,
        submitter=found.submitter or "unknown",
        system=found.system or "unknown",
        benchmark=found.benchmark if dawnbench else BENCHMARK,
        division="open" if dawnbench else found.division,
        chips=None if dawnbench else found.chips,
        global_batch_size=found.global_batch_size,
        quality_target=found.runs[0].target if found.runs else None,
        runs=tuple(_reported(run) for run in found.runs),
        minutes=score.minutes,
        scaled_minutes=found.scaled_minutes,
        ci95=score.ci95,
        cv=score.cv,
        epochs_mean=found.epochs_mean,
        images_per_second=None if dawnbench else found.images_per_second,
        state="closed",
        practice=False,
        findings=findings,
        valid=valid,
        registration="none",
        group=(found.source, found.path),
        identity=(found.source, found.path),
        dataset=DATASETS.get(found.source, MLPERF_DATASET),
        clock=clock,
    )


def _reported(run: ForeignRun) -> ReportedRun:
    return ReportedRun(
        path=run.path,
        status=run.status,
        minutes=run.counted_minutes,
        epochs=run.epochs,
        quality=run.quality,
    )
