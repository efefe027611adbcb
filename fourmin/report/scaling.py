"""Scaling efficiency: images/s of a chip against those of a chip in a measured smaller result.

The baseline of a result is the one with the fewest chips among the valid results of the same
submitter with chips of the same model, of the same benchmark, division, dataset, clock, target
and round; of several with that number of chips, the one with the highest throughput, so that a
slow baseline flatters nobody.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace

from fourmin.report.model import Baseline, Result


def with_baselines(results: Sequence[Result]) -> list[Result]:
    """The results, each with its baseline where a smaller one was measured."""
    smallest: dict[Hashable, Baseline] = {}
    for result in results:
        if not result.chip or not result.chips or not result.images_per_second:
            continue
        if result.failed or not result.valid:
            continue
        key = _series(result)
        found = Baseline(result.path, result.chips, result.images_per_second)
        known = smallest.setdefault(key, found)
        if _order(found) < _order(known):
            smallest[key] = found
    return [_against(result, smallest.get(_series(result))) for result in results]


def _order(baseline: Baseline) -> tuple[int, float]:
    return baseline.chips, -baseline.images_per_second


def _series(result: Result) -> Hashable:
    return result.source, result.submitter, result.chip, result.round, result.comparable


def _against(result: Result, baseline: Baseline | None) -> Result:
    """No result, no efficiency: what a failed campaign reached is none of its own."""
    if baseline is None or result.failed or not result.chips or baseline.chips >= result.chips:
        return result
    return replace(result, baseline=baseline)
