"""Results of MLPerf and DAWNBench as a report shows them, beside this project's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fourmin.report.model import Result
from fourmin.report.runs import reported
from fourmin.results.importers.model import BENCHMARK, DAWNBENCH, ForeignSet
from fourmin.rules.verdict import Verdict

DATASETS = {DAWNBENCH: "ImageNet, top-5"}
MLPERF_DATASET = "ImageNet"
_SOFTWARE = ("framework", "other_software_stack", "operating_system", "sw_notes")
_NAMES = ("submitter", "division", "status", "system_name")


def foreign_result(found: ForeignSet, verdict: Verdict) -> Result:
    """One run set or entry; whatever its files do not give is None.

    It is a group of its own: nothing says which sets are attempts at the same result.
    """
    dawnbench = found.source == DAWNBENCH
    rules = found.round
    description, logged = _description(found), (run.facts.hyperparameters for run in found.runs)
    # Those of the first run that logged any.
    hyperparameters = next(filter(None, logged), {})
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
        runs=tuple(
            reported(run.path, run.facts, None if dawnbench else run.timeline) for run in found.runs
        ),
        minutes=found.score.minutes,
        scaled_minutes=found.scaled_minutes,
        ci95=found.score.ci95,
        cv=found.score.cv,
        epochs_mean=found.epochs_mean,
        images_per_second=found.images_per_second,
        verdict=verdict,
        group=(found.source, found.path),
        identity=(found.source, found.path),
        dataset=DATASETS.get(found.source, MLPERF_DATASET),
        clock="DAWNBench" if dawnbench or rules is None else rules.clock,
        round="" if dawnbench or rules is None else rules.name,
        chip=_chip(description),
        convergence=found.convergence,
        configuration=hyperparameters,
        hyperparameters=hyperparameters,
        hardware=_hardware(description, dawnbench),
        software={name: description[name] for name in _SOFTWARE if name in description},
    )


def _description(found: ForeignSet) -> dict[str, Any]:
    return {
        name.replace(" ", "_"): value
        for name, value in (found.description or {}).items()
        if value not in ("", None)
    }


def _hardware(description: Mapping[str, Any], dawnbench: bool) -> dict[str, Any]:
    """What a description says of hardware; of a DAWNBench entry only that one field is."""
    if dawnbench:
        return {name: description[name] for name in ("hardware",) if name in description}
    left_out = (*_SOFTWARE, *_NAMES)
    return {name: value for name, value in description.items() if name not in left_out}


def _chip(description: Mapping[str, Any]) -> str:
    """Model of the accelerators, of the processors where there are none; empty if not told."""
    for kind in ("accelerator", "host_processor"):
        name = description.get(f"{kind}_model_name")
        if str(description.get(f"{kind}s_per_node", "0")) != "0" and isinstance(name, str):
            return name
    return ""
