"""Scaling efficiency: images/s of a chip against those of a chip in a measured smaller result.

The baseline of a result is the one with the fewest chips among the valid results of the same
submitter with chips of the same model, of the same benchmark, division, dataset, clock, target
and round; of several with that number of chips, the one with the highest throughput. A slow
baseline flatters, so none lies below the 95% prediction interval of its kind: neither of the other
campaigns of its own row, nor of the fastest that each other submitter has with as many such chips.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace

from fourmin.report.model import Baseline, Result
from fourmin.results.statistics import log_prediction_interval


def with_baselines(results: Sequence[Result], campaigns: Sequence[Result]) -> list[Result]:
    """The results, each with its baseline where a smaller one was measured.

    `campaigns` are all that count: those of which `results` are the medians.
    """
    kinds: dict[Hashable, list[Result]] = {}
    for campaign in campaigns:
        if _measured(campaign):
            kinds.setdefault(_kind(campaign), []).append(campaign)
    smallest: dict[Hashable, Baseline] = {}
    for result in results:
        if not _measured(result) or _slow_for_its_kind(result, kinds[_kind(result)]):
            continue
        key = _series(result)
        found = Baseline(result.path, result.chips or 0, result.images_per_second or 0.0)
        known = smallest.setdefault(key, found)
        if _order(found) < _order(known):
            smallest[key] = found
    return [_against(result, smallest.get(_series(result))) for result in results]


def _measured(result: Result) -> bool:
    """Whether a result may be a baseline, as far as it alone is looked at."""
    known = result.chip and result.chips and result.images_per_second
    return bool(known) and result.valid and not result.failed


def _slow_for_its_kind(result: Result, kind: Sequence[Result]) -> bool:
    for others in (_own_campaigns(result, kind), _fastest_of_others(result, kind)):
        interval = log_prediction_interval(list(others))
        if interval is not None and (result.images_per_second or 0.0) < interval[0]:
            return True
    return False


def _own_campaigns(result: Result, kind: Sequence[Result]) -> Iterator[float]:
    for one in kind:
        same = (one.group, one.global_batch_size) == (result.group, result.global_batch_size)
        if same and one.identity != result.identity:
            yield one.images_per_second or 0.0


def _fastest_of_others(result: Result, kind: Sequence[Result]) -> Iterator[float]:
    """One value for each, so that nobody outvotes the others with many campaigns."""
    fastest: dict[str, float] = {}
    for one in kind:
        rate = one.images_per_second or 0.0
        fastest[one.submitter] = max(rate, fastest.get(one.submitter, 0.0))
    fastest.pop(result.submitter, None)
    yield from fastest.values()


def _order(baseline: Baseline) -> tuple[int, float, str]:
    return baseline.chips, -baseline.images_per_second, baseline.path


def _kind(result: Result) -> Hashable:
    return result.source, result.chip, result.chips, result.round, result.comparable


def _series(result: Result) -> Hashable:
    return result.source, result.submitter, result.chip, result.round, result.comparable


def _against(result: Result, baseline: Baseline | None) -> Result:
    """No result, no efficiency: what a failed campaign reached is none of its own."""
    if baseline is None or result.failed or result.apart or not result.chips:
        return result
    return replace(result, baseline=baseline) if baseline.chips < result.chips else result
