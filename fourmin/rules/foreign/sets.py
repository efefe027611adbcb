"""RUN, CNV, SUB and SCH for the runs that make one result, and the notes on what cannot be told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from fourmin.base.values import number
from fourmin.log import keys
from fourmin.log.timeline import Timeline
from fourmin.results.importers.model import (
    BENCHMARK,
    DAWNBENCH,
    MLPERF,
    ForeignRun,
    ForeignSet,
)
from fourmin.results.run_result import CONVERGED
from fourmin.rules.compare import short
from fourmin.rules.foreign.judge import FOREIGN_SET, judge
from fourmin.rules.physics import Work, peak_of
from fourmin.rules.rule import ERROR, NOTE, WARNING, Problem
from fourmin.rules.runs import FEWEST_TIMES
from fourmin.ruleset import CURRENT

RUNS = 5
LONGEST_NAME = 500
"""Characters of a chip's name that are looked at."""
FEWEST_ACCURACIES = 5
"""Fewer equal accuracies could be chance."""
_COMPARED = (
    *keys.SUBMISSION_KEYS,
    keys.TRAIN_SAMPLES,
    keys.EVAL_SAMPLES,
    *keys.HYPERPARAMETERS,
    # What some results of v0.7 call the same.
    "base_learning_rate",
    "learning_rate_decay_steps",
    "learning_rate_warmup_epochs",
    "momentum",
    "weight_decay",
)
_IMAGE_SIZE = 224
"""Height and width (pixels) of the images of MLPerf's ResNet-50."""
_DESCRIBED = ("submitter", "division", "system_name", "number_of_nodes", "accelerators_per_node")


@judge("SCH006", FOREIGN_SET, MLPERF)
def nothing_to_judge(found: ForeignSet) -> Iterator[Problem]:
    """At least one run can be judged: it is of ResNet-50, can be read, and either reached the
    target or ended by its own word without being aborted. Where none can, that is all that is said,
    and the set is `not-judged`.
    """
    if found.unjudged:
        hint = "Give logs of ResNet-50 whose runs ended."
        yield Problem(found.unjudged, hint=hint, severity=NOTE)


@judge("SCH006", FOREIGN_SET, DAWNBENCH)
def nothing_in_the_table(found: ForeignSet) -> Iterator[Problem]:
    """An entry's table has at least one row that can be read."""
    yield from nothing_to_judge.check(found)


def _about(found: ForeignSet, path: str, message: str) -> Problem:
    """A problem in a file that the set may share with others: then it is told of the set."""
    if path.startswith(found.path) or found.source == DAWNBENCH:
        return Problem(message, path=path, severity=WARNING)
    return Problem(f"{path}: {message}", severity=WARNING)


@judge("SCH001", FOREIGN_SET, MLPERF)
def readable_files(found: ForeignSet) -> Iterator[Problem]:
    """System description and scaling.json are strict JSON; a departure is a warning."""
    for path, message in found.odd:
        yield _about(found, path, message)


@judge("SCH001", FOREIGN_SET, DAWNBENCH)
def readable_entry(found: ForeignSet) -> Iterator[Problem]:
    """The entry's description is strict JSON; a departure is a warning."""
    yield from readable_files.check(found)


@judge("RUN001", FOREIGN_SET, MLPERF)
def number_of_runs(found: ForeignSet) -> Iterator[Problem]:
    """A result has five runs."""
    if len(found.runs) != RUNS:
        yield Problem(f"{len(found.runs)} runs; the benchmark asks for {RUNS}")


@judge("RUN003", FOREIGN_SET, MLPERF)
def same_settings(found: ForeignSet) -> Iterator[Problem]:
    """All runs of a set have one organisation, platform, division, data and hyperparameters."""
    for key in _COMPARED:
        values = Counter(_spelled(run, key) for run in found.runs)
        if len(values) > 1:
            told = ", ".join(f"{value} in {count}" for value, count in values.most_common(3))
            usual = values.most_common(1)[0][0]
            other = next(run for run in found.runs if _spelled(run, key) != usual)
            record = other.timeline.first(key)
            yield Problem(
                f"{key} differs within the set: {told}",
                None if record is None else record.line,
                path=other.path,
            )


def _spelled(run: ForeignRun, key: str) -> str:
    """A value so that 2 and 2.0 are one, and a missing key is none."""
    record = run.timeline.first(key)
    if record is None:
        return "nothing"
    value = number(record.value)
    return short(record.value) if value is None else f"{value:.12g}"


@judge("EVA001", FOREIGN_SET, MLPERF)
def one_offset(found: ForeignSet) -> Iterator[Problem]:
    """All runs of a closed set evaluate after the same epochs."""
    if not found.closed:
        return
    firsts = {
        run.path: run.timeline.evaluations[0].epoch
        for run in found.runs
        if run.timeline.evaluations
    }
    known = Counter(epoch for epoch in firsts.values() if epoch is not None)
    if len(known) > 1:
        usual = known.most_common(1)[0][0]
        path, epoch = next((p, e) for p, e in firsts.items() if e is not None and e != usual)
        yield Problem(
            f"the first evaluation is after epoch {epoch:g}, in other runs after {usual:g}",
            path=path,
        )


@judge("RUN004", FOREIGN_SET, MLPERF)
def duplicate_run(found: ForeignSet) -> Iterator[Problem]:
    """No two runs of a set have the same times or the same accuracies."""
    seen: dict[Any, str] = {}
    for run in found.runs:
        for what, series in _series(run.timeline):
            other = seen.setdefault((what, series), run.path)
            if other != run.path:
                yield Problem(f"the same {what} as {other}", path=run.path)
                break


def _series(timeline: Timeline) -> Iterator[tuple[str, Any]]:
    # The times of the events that every run has, from the first evaluation on.
    times = [e.time_ms for e in timeline.evaluations if e.time_ms is not None]
    start = timeline.run_start_ms
    if start is not None and len(times) >= FEWEST_TIMES // 2 and len(set(times)) > 1:
        yield "times", tuple(time - start for time in times)
    accuracies = tuple(e.accuracy for e in timeline.evaluations)
    if len(accuracies) >= FEWEST_ACCURACIES and len(set(accuracies)) > 1:
        yield "accuracies", accuracies


@judge("SEE003", FOREIGN_SET, MLPERF)
def distinct_seeds(found: ForeignSet) -> Iterator[Problem]:
    """No two runs of a set log the same seed; if they do, a reviewer should ask why."""
    seen: dict[str, str] = {}
    for run in found.runs:
        seeds = run.timeline.values(keys.SEED)
        if len(seeds) == 1 and number(seeds[0]) is not None:
            other = seen.setdefault(short(seeds[0]), run.path)
            if other != run.path:
                yield Problem(f"the same seed as {other}", path=run.path, severity=WARNING)


@judge("RUN008", FOREIGN_SET, MLPERF)
def published_scaling(found: ForeignSet) -> Iterator[Problem]:
    """The factor in scaling.json is the one that the reference convergence points give."""
    if found.scaling_path is None:
        return
    published, computed = number(found.scaling_factor), found.factor
    if computed is not None and (published is None or abs(published - computed) > 1e-6):
        yield Problem(
            f"scaling_factor is {short(found.scaling_factor)}, recomputed {computed:.10g}",
            path=found.scaling_path,
        )


@judge("CNV001", FOREIGN_SET, MLPERF)
def no_result(found: ForeignSet) -> Iterator[Problem]:
    """The runs give a result: at most one did not converge."""
    if found.score.minutes is None:
        failed = sum(run.facts.status != CONVERGED for run in found.runs)
        yield Problem(f"no benchmark result: {failed} of {len(found.runs)} runs did not converge")


@judge("RUN009", FOREIGN_SET, MLPERF)
def not_converged(found: ForeignSet) -> Iterator[Problem]:
    """A log that does not reach the target is no passing log by MLPerf's rules. It is a note where
    its set gives a result all the same, with the one such run as the dropped slowest.
    """
    severity = ERROR if found.score.minutes is None else NOTE
    for run in found.runs:
        if run.facts.status != CONVERGED:
            known = [e.accuracy for e in run.timeline.evaluations if e.accuracy is not None]
            stop = run.timeline.last(keys.RUN_STOP)
            yield Problem(
                f"{run.facts.status}: the best accuracy is {max(known, default=0):.4f}, the target "
                f"{run.target:g}",
                None if stop is None else stop.line,
                path=run.path,
                hint="Keep it: its set may have one such run, which counts as the slowest.",
                severity=severity,
            )


@judge("CNV002", FOREIGN_SET, MLPERF)
def faster_than_reference(found: ForeignSet) -> Iterator[Problem]:
    """The mean epochs of a closed set against the round's reference at its batch size."""
    if found.convergence.too_few:
        yield Problem(found.convergence.too_few)


@judge("CNV003", FOREIGN_SET, MLPERF)
def scaled_by_reference(found: ForeignSet) -> Iterator[Problem]:
    """The factor by which the score of v2.1 and later was multiplied; before, a remark only."""
    factor = found.convergence.factor
    if factor is not None and factor > 1:
        scaled = "the score is multiplied by" if found.factor != 1 else "not scaled in this round:"
        yield Problem(f"{scaled} {factor:.4f}")


@judge("CNV004", FOREIGN_SET, MLPERF)
def no_reference_point(found: ForeignSet) -> Iterator[Problem]:
    """Whether the round has a reference for this batch size."""
    rules = found.round
    if not found.closed or rules is None:
        return
    if found.convergence.reference is None:
        batch = found.global_batch_size
        yield Problem(f"no reference point of {rules.name} for batch {batch}")


@judge("PHY001", FOREIGN_SET, MLPERF)
def faster_than_peak(found: ForeignSet) -> Iterator[Problem]:
    """The mean throughput of the runs against the published peak of the accelerators that the
    system's description names.
    """
    model = (found.description or {}).get("accelerator_model_name")
    rate, chips = found.images_per_second, found.chips
    if not isinstance(model, str) or rate is None or not chips:
        return
    work = Work.of(CURRENT, BENCHMARK, _IMAGE_SIZE)
    peak = peak_of(CURRENT, model[:LONGEST_NAME])
    if work is not None and peak is not None and rate * work.training > chips * peak:
        yield Problem(
            f"{rate:.0f} images/s take {rate * work.training:.2g} operations/s; {chips} chips can "
            f"do {chips * peak:.2g}"
        )


@judge("SUB001", FOREIGN_SET, MLPERF)
def system_description(found: ForeignSet) -> Iterator[Problem]:
    """A package describes its system, with submitter, division, name, nodes and accelerators; what
    is missing is a warning.
    """
    if not found.described:
        return
    if found.description_path is None:
        yield Problem(f"no description systems/{found.system}.json", severity=WARNING)
    elif found.description is not None:
        names = {name.replace(" ", "_") for name in found.description}
        missing = [name for name in _DESCRIBED if name not in names]
        if missing:
            yield _about(found, found.description_path, f"without {', '.join(missing)}")


@judge("SUB001", FOREIGN_SET, DAWNBENCH)
def entry_description(found: ForeignSet) -> Iterator[Problem]:
    """An entry's JSON names author, model and hardware; what is missing is a warning."""
    if found.description is None:
        yield Problem("no description that can be read", severity=WARNING)
        return
    missing = [name for name in ("author", "model", "hardware") if not found.description.get(name)]
    if missing:
        yield Problem(
            f"without {', '.join(missing)}",
            path=found.description_path or found.path,
            severity=WARNING,
        )


@judge("RUN010", FOREIGN_SET, MLPERF)
def without_ledger(found: ForeignSet) -> Iterator[Problem]:
    """MLPerf has no ledger and assigns no seeds: how often this was tried cannot be told."""
    yield Problem(
        "no ledger and no assigned seeds: how often this was tried, and which runs were picked, "
        "cannot be told",
        hint="Nothing can be done about it in these files.",
        severity=NOTE,
    )


@judge("RUN010", FOREIGN_SET, DAWNBENCH)
def single_run(found: ForeignSet) -> Iterator[Problem]:
    """DAWNBench takes one run, logs no clock and has no ledger."""
    yield Problem(
        "one run without ledger, seed or event log: neither attempts nor clock can be checked",
        hint="Nothing can be done about it in these files.",
        severity=NOTE,
    )
