"""Which results count: of each group of campaigns the median one, sorted and ranked.

Every campaign counts. A group is those of one submitter, chip model, number of chips and nodes,
benchmark, ruleset, division and kind of registration. Each batch of it has a row of its own, which
is its median campaign (of an even number the slower middle one), in which one that is invalid, was
abandoned, never closed or has no result counts as failed. Of several batches one is the submitter's
row in a ranking: that which the first plan on the base branch names; otherwise the slowest.
Practice campaigns never count, and those that are not closed yet do not count yet. Of others'
results each is a group of its own, and stands in no table where nothing of it could be judged.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import replace

from fourmin.ledger.landings import SELF
from fourmin.report.model import Comparison, Result, Standing
from fourmin.report.scaling import with_baselines
from fourmin.rules.verdict import NOT_JUDGED

Order = tuple[int, float, str]


def compare(ruleset: str, results: Iterable[Result]) -> Comparison:
    """Group campaigns, choose the median of each batch, rank them, and sort for the tables.

    No two of `results` are one campaign.
    """
    every = list(results)
    groups: dict[Hashable, list[Result]] = {}
    for result in every:
        if not result.practice and (result.status != NOT_JUDGED or not result.verified):
            groups.setdefault(result.group, []).append(result)
    here = {result.identity for result in every if not result.gone}
    counted = [result for result in every if not (result.practice or result.pending)]
    rows = [row for group in groups.values() for row in _rows(group, here)]
    return Comparison(
        ruleset=ruleset,
        results=tuple(_with_ranks(sorted(with_baselines(rows, counted), key=_in_tables))),
        failed=_sorted(result for result in counted if result.failed),
        pending=_sorted(r for r in every if r.pending and not r.practice),
        practice=_sorted(result for result in every if result.practice),
    )


def _rows(group: Sequence[Result], here: set[Hashable]) -> Iterator[Result]:
    """The median campaign of each batch, with its standing in the group."""
    counted = [result for result in group if not result.pending]
    by_batch: dict[int | None, list[Result]] = {}
    for result in counted:
        by_batch.setdefault(result.global_batch_size, []).append(result)
    medians = {batch: _median(campaigns) for batch, campaigns in by_batch.items()}
    ranked = _ranked_batch(group, medians) if medians else None
    known = {result.identity for result in group}
    for result in group:
        known |= result.planned.earlier if result.planned else set()
    for batch, chosen in medians.items():
        plans = [result.planned for result in by_batch[batch] if result.planned]
        yield replace(
            chosen,
            standing=Standing(
                campaigns=len(counted),
                failed=sum(result.failed for result in counted),
                pending=len(group) - len(counted),
                batches=len(medians),
                at_batch=len(by_batch[batch]),
                known=len(known),
                shown=len(known & here),
                practice=max((plan.practice for plan in plans), default=0),
                retries=sum(plan.retries for plan in plans),
                ranked=batch == ranked,
            ),
        )


def _median(campaigns: Sequence[Result]) -> Result:
    return sorted(campaigns, key=_slower)[len(campaigns) // 2]


def _slower(result: Result) -> Order:
    """By time, those that failed last; the same for a campaign wherever it lies."""
    minutes = result.compared_minutes
    return int(result.failed), math.inf if minutes is None else minutes, str(result.identity)


def _ranked_batch(group: Sequence[Result], medians: dict[int | None, Result]) -> int | None:
    """The batch that is the submitter's row in a ranking."""
    named = _named_batch(group)
    return named if named in medians else max(medians, key=lambda batch: _slower(medians[batch]))


def _named_batch(group: Sequence[Result]) -> int | None:
    """What the first plan on the base branch names; None where several came first and differ.

    A campaign that registered itself comes there with its results, so it names none.
    """
    landed = [
        (result.planned.landed.order, result.planned.ranked_batch)
        for result in group
        if result.planned and result.planned.landed and result.registration != SELF
    ]
    first = min((order for order, _ in landed), default=None)
    names = {batch for order, batch in landed if order == first}
    return names.pop() if len(names) == 1 else None


def _with_ranks(rows: Sequence[Result]) -> Iterator[Result]:
    """Sorted rows with the places of those that have one; equal times share a place."""
    seen: Counter[Hashable] = Counter()
    place: dict[Hashable, tuple[float | None, int]] = {}
    for row in rows:
        if not (row.valid and row.standing.ranked and not row.failed):
            yield row
            continue
        seen[row.comparable] += 1
        last, rank = place.get(row.comparable, (None, 0))
        if row.compared_minutes != last:
            rank = seen[row.comparable]
        place[row.comparable] = row.compared_minutes, rank
        yield replace(row, rank=rank)


def _sorted(results: Iterable[Result]) -> tuple[Result, ...]:
    return tuple(sorted(results, key=_in_tables))


def _in_tables(result: Result) -> tuple[Hashable, int, int, float, str, str, int, str]:
    failed, minutes, identity = _slower(result)
    batch = result.global_batch_size or 0
    names = result.submitter, result.system
    return result.comparable, result.level, failed, minutes, *names, batch, identity
