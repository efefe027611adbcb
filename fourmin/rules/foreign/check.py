"""Applies the judges to a foreign result."""

from __future__ import annotations

import gc
import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from typing import Any

from fourmin.results import tree
from fourmin.results.importers import dawnbench, mlperf
from fourmin.results.importers.model import MLPERF, ForeignSet
from fourmin.rules.foreign.judge import FOREIGN_RUN, FOREIGN_SET, Judge
from fourmin.rules.registry import JUDGES, RULES
from fourmin.rules.rule import Finding, Rule, in_order
from fourmin.rules.verdict import NOTHING_TO_JUDGE

MOST_FINDINGS = 20
"""Findings of one rule in one run or set that are told."""
FOR_ALONE = ("RUN009", "RUN010")
"""What is said of a set also where a single log was given."""

_OF_OURS = re.compile(r"`fourmin |`--|events\.log|(result|summary|system)\.json|campaign|ledger")
"""In advice: files, commands and options that others' results do not have."""
_THEIRS = "Take the file as it was published, or ask who made it."
_RULES = {rule.code: rule for rule in RULES}
_JUDGES: dict[tuple[str, str], list[tuple[Rule, Judge]]] = {}
for _judge in JUDGES:
    _JUDGES.setdefault((_judge.source, _judge.scope), []).append((_RULES[_judge.code], _judge))


@contextmanager
def collector_paused() -> Iterator[None]:
    """Without the search for cycles: records have none, and it would take a third of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def load_foreign(target: tree.Target) -> ForeignSet:
    """Read what lies at a target of another benchmark; a single log makes a set of one run."""
    if target.kind == tree.DAWNBENCH_ENTRY:
        return dawnbench.load_entry(target.folder, target.path)
    if target.kind == tree.MLPERF_RUN_SET:
        return mlperf.load_set(target.folder, target.path, list(target.logs))
    run = mlperf.load_run(target.folder, target.path)
    benchmark = run.benchmark or "resnet"
    return ForeignSet(MLPERF, target.path, benchmark, (run,), submitter=run.submitter)


def check_foreign(found: ForeignSet, alone: bool = False) -> list[Finding]:
    """The findings of a run set or entry, by path and line; `alone` for a single log.

    Where none of its runs can be judged, that is the only one.
    """
    if found.unjudged:
        return _judge_all(found.source, FOREIGN_SET, found, (NOTHING_TO_JUDGE,))
    findings = _judge_all(found.source, FOREIGN_SET, found, FOR_ALONE if alone else None)
    for run in found.runs:
        findings += _judge_all(found.source, FOREIGN_RUN, run, None)
    return in_order(findings)


def _judge_all(source: str, scope: str, view: Any, select: Collection[str] | None) -> list[Finding]:
    return [
        replace(finding, hint=_THEIRS) if _OF_OURS.search(finding.hint) else finding
        for rule, judge in _JUDGES[source, scope]
        if select is None or rule.code in select
        for finding in islice(rule.findings(view, view.path, judge.check), MOST_FINDINGS)
    ]
