"""What a report shows: benchmark results, each the median campaign of its group.

Every campaign counts. Those of one submitter, system, benchmark and global batch are one group,
and its result is the median campaign (of an even number the slower middle one), in which one
that was abandoned, never closed or has no result counts as failed. Practice campaigns never
count and are listed apart.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True)
class ReportedRun:
    """One run: its path, how it ended, and in minutes, epochs and accuracy."""

    path: str
    status: str
    minutes: float | None
    epochs: float | None
    quality: float | None

    def to_json(self) -> dict[str, Any]:
        """The keys of product.md."""
        return {
            "path": self.path,
            "status": self.status,
            "minutes": self.minutes,
            "epochs": self.epochs,
            "quality": self.quality,
        }


@dataclass(frozen=True, kw_only=True)
class Result:
    """One campaign, or one run set of another benchmark's format.

    Times are in minutes. `minutes` is the benchmark result and None where the runs give none;
    `state` says whether the campaign is closed, unfinished or abandoned; `group` tells which
    campaigns count together.
    """

    source: str
    path: str
    submitter: str
    system: str
    benchmark: str
    division: str
    chips: int | None
    global_batch_size: int | None
    quality_target: float | None
    runs: tuple[ReportedRun, ...]
    minutes: float | None
    scaled_minutes: float | None
    ci95: tuple[float, float] | None
    cv: float | None
    epochs_mean: float | None
    images_per_second: float | None
    state: str
    practice: bool
    findings: int
    valid: bool
    registration: str
    group: Hashable
    identity: Hashable
    scaling_efficiency: float | None = None
    waivers: tuple[str, ...] = ()
    campaigns: int = 1
    dataset: str = ""
    clock: str = "fourmin"
    """Which rule starts and stops the clock."""

    @property
    def comparable(self) -> tuple[str, str, str, str, float]:
        """Benchmark, division, dataset, clock and target: results that differ in any of them must
        not be compared, so they never stand in one table.
        """
        target = -math.inf if self.quality_target is None else self.quality_target
        return self.benchmark, self.division, self.dataset, self.clock, target

    @property
    def failed(self) -> bool:
        """Whether this campaign counts as failed in its group."""
        return self.minutes is None or self.state != "closed"

    def to_json(self) -> dict[str, Any]:
        """The keys of product.md, and what else tells results apart beside them."""
        return {
            "source": self.source,
            "path": self.path,
            "submitter": self.submitter,
            "system": self.system,
            "benchmark": self.benchmark,
            "division": self.division,
            "chips": self.chips,
            "global_batch_size": self.global_batch_size,
            "quality_target": self.quality_target,
            "runs": [run.to_json() for run in self.runs],
            "minutes": self.minutes,
            "scaled_minutes": self.scaled_minutes,
            "ci95": None if self.ci95 is None else list(self.ci95),
            "cv": self.cv,
            "epochs_mean": self.epochs_mean,
            "images_per_second": self.images_per_second,
            "scaling_efficiency": self.scaling_efficiency,
            "campaigns": self.campaigns,
            "waivers": list(self.waivers),
            "findings": self.findings,
            "valid": self.valid,
            "registration": self.registration,
            "dataset": self.dataset,
            "clock": self.clock,
            "state": self.state,
            "practice": self.practice,
        }


@dataclass(frozen=True)
class Comparison:
    """A report's content: the results that count, sorted; failed campaigns; practice."""

    ruleset: str
    results: tuple[Result, ...]
    failed: tuple[Result, ...] = field(default=())
    practice: tuple[Result, ...] = field(default=())


def compare(ruleset: str, results: Iterable[Result]) -> Comparison:
    """Group campaigns, choose the median of each group, and sort by benchmark and minutes.

    A campaign that lies in two places (the same `identity`) counts once, where it comes first.
    """
    unique: dict[Hashable, Result] = {}
    for result in results:
        unique.setdefault(result.identity, result)
    groups: dict[Hashable, list[Result]] = {}
    for result in unique.values():
        if not result.practice:
            groups.setdefault(result.group, []).append(result)
    chosen = [_median(group) for group in groups.values()]
    return Comparison(
        ruleset=ruleset,
        results=tuple(sorted(chosen, key=_rank)),
        failed=tuple(sorted((r for g in groups.values() for r in g if r.failed), key=_rank)),
        practice=tuple(sorted((r for r in unique.values() if r.practice), key=_rank)),
    )


def _median(group: list[Result]) -> Result:
    ordered = sorted(group, key=_rank)
    chosen = ordered[len(ordered) // 2]
    if chosen.failed:
        chosen = replace(chosen, minutes=None, scaled_minutes=None)
    return replace(chosen, campaigns=len(ordered))


def _rank(result: Result) -> tuple[tuple[str, str, str, str, float], float, str]:
    minutes = math.inf if result.failed or result.minutes is None else result.minutes
    return result.comparable, minutes, result.path
