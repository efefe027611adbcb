"""Which results count: of each group of campaigns the median one, sorted for the tables.

Every campaign counts. Those of one submitter, system, benchmark and global batch are one group,
and its result is the median campaign (of an even number the slower middle one), in which one
that was abandoned, never closed or has no result counts as failed. Practice campaigns never
count and are listed apart.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable
from dataclasses import replace

from fourmin.report.model import Comparison, Result
from fourmin.report.scaling import with_baselines


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
    chosen = with_baselines([_median(group) for group in groups.values()])
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
