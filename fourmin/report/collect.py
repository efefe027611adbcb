"""From paths to results: everything below them, checked, with its numbers made anew."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from fourmin.ledger.identity import shown
from fourmin.ledger.registered import Registrations
from fourmin.report.foreign import foreign_result
from fourmin.report.group import compare
from fourmin.report.model import Comparison, Result
from fourmin.report.own import campaign_result
from fourmin.report.parallel import in_processes
from fourmin.report.prices import Price, price_of
from fourmin.report.published import published_results
from fourmin.results import tree
from fourmin.results.importers.model import MLPERF, MLPERF_BENCHMARK
from fourmin.rules.changes import submissions_stay
from fourmin.rules.engine import check_campaigns
from fourmin.rules.foreign.check import check_foreign, collector_paused, load_foreign
from fourmin.rules.rule import unchecked
from fourmin.rules.verdict import Verdict
from fourmin.ruleset import CURRENT

LEFT = frozenset({submissions_stay.code})
"""What cannot be said of a campaign that left the tree."""


def collect(
    paths: Sequence[Path], *, published: bool = False, prices: Sequence[Price] = ()
) -> Comparison:
    """Everything at `paths` and below them, ready to be rendered: see `collect_all`."""
    outside = (path for path in (*paths, Path.cwd()) if path.is_absolute() or ".." in path.parts)
    here = tuple((os.fspath(path), path.name) for path in outside if path.name)
    found = collect_all(paths, published=published, prices=prices)
    return replace(compare(CURRENT, found), here=here)


def collect_all(
    paths: Sequence[Path], *, published: bool = False, prices: Sequence[Price] = ()
) -> list[Result]:
    """Every campaign, run set and entry at `paths` and below them, each checked.

    With `published`, also the results that others published. Raises FourminError for a path
    that does not exist.
    """
    found = [
        replace(result, price=price_of(prices, result.submitter, result.system))
        for result in _results(paths)
    ]
    return [*found, *(published_results() if published else ())]


def _results(paths: Sequence[Path]) -> Iterator[Result]:
    targets, _ = tree.find_all([os.fspath(path) for path in paths])
    foreign = [target for target in targets if target.kind in tree.FOREIGN_KINDS]
    yield from (result for result in in_processes(_foreign, foreign) if result is not None)
    registrations = Registrations()
    checked = check_campaigns(targets, registrations)
    judged = {campaign.path: verdict for campaign, verdict in checked}
    now_ms = time.time_ns() // 1_000_000
    for one in shown([campaign for campaign, _ in checked]):
        yield campaign_result(one, judged[one.path], now_ms)
    for one in registrations.gone(paths, [campaign for campaign, _ in checked]):
        nothing = [unchecked(one.registration.unproved)]
        findings = tuple(submissions_stay.findings(one, one.path, lambda _, said=nothing: said))
        verdict = Verdict(one.path, tree.CAMPAIGN, findings, required=LEFT)
        yield campaign_result(one, verdict, now_ms)


def _foreign(target: tree.Target) -> Result | None:
    """A row for another benchmark's result; a single log is a run and none.

    Neither have the sets of MLPerf's other benchmarks, of which nothing was read.
    """
    with collector_paused():
        found = load_foreign(target)
        other = found.source == MLPERF and found.benchmark != MLPERF_BENCHMARK
        if target.kind == tree.MLPERF_RUN or other:
            return None
        findings = tuple(check_foreign(found))
        result = foreign_result(found, Verdict(target.path, target.kind, findings))
        del found
    return result
