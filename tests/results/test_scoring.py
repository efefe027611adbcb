"""Scores, statistics and summaries against numbers worked out by hand and by scipy."""

from __future__ import annotations

import math
import statistics as reference
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plans import make_plan

from fourmin.results.plan import Plan
from fourmin.results.run_result import ABORTED, CONVERGED, NOT_CONVERGED, RunFacts
from fourmin.results.scoring import score
from fourmin.results.statistics import (
    coefficient_of_variation,
    log_interval,
    mean,
    sample_deviation,
    student_t_cdf,
    student_t_quantile,
)
from fourmin.results.summary import summarize

_TIMES = st.lists(st.floats(0.01, 1e4), min_size=3, max_size=9)

# Two-sided 95% points of Student's t, from a printed table.
T_TABLE = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 9: 2.262, 30: 2.042, 120: 1.980}


def test_the_fastest_and_the_slowest_are_dropped() -> None:
    assert score([5.0, 1.0, 3.0, 4.0, 2.0]).minutes == 3.0
    assert score([1.0, 1.0, 1.0, 1.0, 9.0]).minutes == 1.0


def test_one_run_that_did_not_converge_is_the_dropped_slowest() -> None:
    scored = score([None, 4.0, 1.0, 2.0, 3.0])
    assert scored.minutes == 3.0
    assert scored.ci95 is None
    assert scored.cv is None


def test_two_that_did_not_converge_leave_no_result() -> None:
    assert score([None, None, 1.0, 2.0, 3.0]).minutes is None


@pytest.mark.parametrize("minutes", [[], [None], [None, 1.0], [0.0, 1.0, -1.0]])
def test_no_result_without_enough_runs(minutes: list[float | None]) -> None:
    assert score(minutes).minutes is None


def test_few_runs_are_all_kept() -> None:
    assert score([2.0]).minutes == 2.0
    assert score([2.0]).ci95 is None
    assert score([2.0]).cv is None
    assert score([2.0, 4.0]).minutes == 3.0
    assert score([2.0, 4.0, 9.0]).minutes == 4.0


def test_spread_by_hand() -> None:
    scored = score([1.0, 2.0, 4.0])
    # Mean of log time is log 2, its sample deviation log 2; with two degrees of freedom the
    # quantile of t at p is (2p - 1) / sqrt(2p(1 - p)).
    half = 0.95 / math.sqrt(2 * 0.975 * 0.025) * math.log(2) / math.sqrt(3)
    assert scored.ci95 == pytest.approx((2 * math.exp(-half), 2 * math.exp(half)), rel=1e-12)
    assert scored.cv == pytest.approx(math.sqrt(7 / 3) / (7 / 3), rel=1e-12)


@given(_TIMES)
def test_the_score_lies_within_the_runs_and_ignores_their_order(times: list[float]) -> None:
    minutes = score(times).minutes
    assert minutes is not None
    assert min(times) * (1 - 1e-12) <= minutes <= max(times) * (1 + 1e-12)
    assert score(sorted(times)).minutes == pytest.approx(minutes, rel=1e-12)
    assert score([*times[1:], times[0] * 1000]).minutes >= minutes * (1 - 1e-12)


@given(_TIMES)
def test_deviation_and_variation_against_the_standard_library(times: list[float]) -> None:
    assert mean(times) == pytest.approx(reference.fmean(times), rel=1e-12)
    expected = reference.stdev(times)
    assert sample_deviation(times) == pytest.approx(expected, rel=1e-6, abs=1e-9 * max(times))
    assert coefficient_of_variation(times) == sample_deviation(times) / mean(times)


@pytest.mark.parametrize(("degrees", "expected"), T_TABLE.items())
def test_quantiles_of_the_t_distribution(degrees: int, expected: float) -> None:
    assert student_t_quantile(0.975, degrees) == pytest.approx(expected, abs=6e-4)
    assert student_t_quantile(0.025, degrees) == pytest.approx(-expected, abs=6e-4)


def test_t_with_one_degree_is_cauchy_and_with_two_is_known() -> None:
    for t in (-7.0, -0.5, 0.0, 0.3, 4.0):
        assert student_t_cdf(t, 1) == pytest.approx(0.5 + math.atan(t) / math.pi, abs=1e-14)
        assert student_t_cdf(t, 2) == pytest.approx(0.5 + t / (2 * math.sqrt(2 + t * t)), abs=1e-14)


@pytest.mark.parametrize(("probability", "degrees"), [(0, 3), (1, 3), (0.5, 0), (0.5, -1)])
def test_quantiles_that_do_not_exist(probability: float, degrees: float) -> None:
    with pytest.raises(ValueError, match="must lie"):
        student_t_quantile(probability, degrees)


def test_against_scipy() -> None:
    scipy_stats = pytest.importorskip("scipy.stats")
    for degrees in (1, 2, 2.5, 4, 7.3, 19, 250):
        for t in (-30.0, -2.0, -0.01, 0.0, 0.7, 3.0, 12.0):
            expected = scipy_stats.t.cdf(t, degrees)
            assert student_t_cdf(t, degrees) == pytest.approx(expected, rel=1e-9, abs=1e-14)
        for probability in (0.001, 0.05, 0.5, 0.9, 0.975):
            assert student_t_quantile(probability, degrees) == pytest.approx(
                scipy_stats.t.ppf(probability, degrees), rel=1e-9, abs=1e-9
            )


def test_an_interval_needs_two_values() -> None:
    assert log_interval([3.0]) is None
    assert log_interval([3.0, 3.0]) == pytest.approx((3.0, 3.0))


def _result(run: int, minutes: float | None, status: str = CONVERGED) -> RunFacts:
    return RunFacts(
        run=run,
        seed=run * 11,
        status=status,
        minutes=minutes,
        epochs=10 + run,
        quality=0.98,
        images_per_second=100.0 * run,
    )


@pytest.mark.parametrize(
    ("status", "practice", "counts"),
    [
        (CONVERGED, False, True),
        (CONVERGED, True, True),
        (NOT_CONVERGED, False, False),
        (NOT_CONVERGED, True, True),
        (ABORTED, False, False),
        (ABORTED, True, False),
    ],
)
def test_what_counts(status: str, practice: bool, counts: bool) -> None:
    assert _result(1, 2.5, status).counted_minutes(practice) == (2.5 if counts else None)
    assert _result(1, None, status).counted_minutes(practice) is None


def _plan(benchmark: str, batch: int = 64, division: str = "closed") -> Plan:
    return make_plan(
        benchmark=benchmark, division=division, configuration={"global_batch_size": batch}
    )


def test_a_score_is_scaled_by_the_reference() -> None:
    results = [replace(_result(run, 10.0), epochs=35) for run in range(1, 6)]
    for batch, factor in ((3264, 1.0043956043956044), (3200, 1.0042232277526395)):
        summary = summarize(_plan("resnet50", batch), "c", "d", results)
        assert summary["scaled_minutes"] == pytest.approx(10 * factor, rel=1e-12)
        assert summary["minutes"] == 10.0
    slow = [replace(result, epochs=36) for result in results]
    assert summarize(_plan("resnet50", 3264), "c", "d", slow)["scaled_minutes"] == 10.0
    fast = [replace(result, epochs=34) for result in results]
    assert summarize(_plan("resnet50", 3264), "c", "d", fast)["scaled_minutes"] is None
    free = summarize(_plan("resnet50", 3264, "open"), "c", "d", fast)
    assert free["scaled_minutes"] == 10.0


def test_a_summary_by_hand() -> None:
    plan = _plan("unheard-of")
    results = [_result(run, minutes) for run, minutes in enumerate([5, 1, 3, 4, 2.0], start=1)]
    summary = summarize(plan, "c" * 64, "d" * 64, results)
    assert summary["minutes"] == summary["scaled_minutes"] == 3.0
    assert summary["epochs_mean"] == 13.0
    assert summary["images_per_second"] == 300.0
    assert summary["campaign"] == "c" * 64
    assert summary["ledger_head"] == "d" * 64
    assert summary["cv"] == pytest.approx(math.sqrt(2.5) / 3)
    assert [run["run"] for run in summary["runs"]] == [1, 2, 3, 4, 5]
    assert summary["runs"][1] == {
        "run": 2, "seed": 22, "status": CONVERGED, "minutes": 1, "epochs": 12, "quality": 0.98,
    }  # fmt: skip


def test_a_summary_without_a_result() -> None:
    plan = _plan("unheard-of")
    lost = [replace(_result(1, 2.0, NOT_CONVERGED), epochs=None, images_per_second=None)] * 2
    summary = summarize(plan, "c", "d", lost)
    for name in ("minutes", "scaled_minutes", "ci95", "cv", "epochs_mean", "images_per_second"):
        assert summary[name] is None
