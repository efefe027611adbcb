"""The model against measured systems that it was not fitted to, as docs/estimate.md shows it."""

from __future__ import annotations

from itertools import pairwise
from statistics import fmean, median

import estimate_page as page
import pytest

from fourmin.estimate.fitted import accuracy, fitted
from fourmin.estimate.render import validation_lines
from fourmin.estimate.validation import Validation, fit, observations, quantile, validate


@pytest.fixture(scope="module")
def validation() -> Validation:
    return validate()


def test_left_out_systems_are_met_within_six_points(validation: Validation) -> None:
    compared = [one for out in validation.left_out for one in out.compared]
    assert len(compared) == 12
    assert validation.mean_error <= 6
    assert validation.mean_error <= validation.constant_error / 2


def test_a_left_out_system_has_no_part_in_its_numbers(validation: Validation) -> None:
    known = [one for one in observations() if one.fitted]
    assert [out.system for out in validation.left_out] == list(
        dict.fromkeys(one.system for one in known)
    )
    for out in validation.left_out:
        others = [one for one in known if one.system != out.system]
        assert out.numbers == fit(others)
        assert {one.observation.system for one in out.compared} == {out.system}
        efficiencies = [one.efficiency for one in others]
        assert out.constant == pytest.approx(sum(efficiencies) / len(efficiencies))


def test_the_numbers_are_a_minimum(validation: Validation) -> None:
    from dataclasses import replace

    from fourmin.estimate.validation import compare

    known = [one for one in observations() if one.fitted]

    def error(**changes: float) -> float:
        numbers = replace(validation.numbers, **changes)
        return sum(compare(one, numbers).error ** 2 for one in known)

    best, numbers = error(), validation.numbers
    for factor in (0.5, 0.9, 0.97, 1.03, 1.09):
        assert error(fixed_pass_seconds=factor * numbers.fixed_pass_seconds) > best
        assert error(overlap_cost=factor * numbers.overlap_cost) > best


def test_the_interval_holds_four_in_five_of_the_systems_left_out(validation: Validation) -> None:
    inside = 0
    for one, half in validation.own_intervals:
        shares = sorted(
            abs(other.estimated / other.observation.efficiency - 1)
            * other.observation.efficiency
            / other.estimated
            for out in validation.left_out
            for other in out.compared
            if other is not one
        )
        # Of 11 errors the tenth: 12 times 0.8, rounded up.
        assert half == pytest.approx(one.estimated * shares[9])
        inside += abs(one.estimated - one.observation.efficiency) <= half
    assert len(validation.own_intervals) == 12
    assert 8 <= inside <= 11
    assert median(half for _, half in validation.own_intervals) <= 10
    assert accuracy().interval == pytest.approx(validation.interval, abs=1e-4)


def test_one_more_error_stays_below_the_quantile_as_often_as_it_says() -> None:
    assert quantile([3.0, 1.0, 2.0, 4.0]) == 4.0
    assert quantile([float(n) for n in range(1, 10)]) == 8.0
    assert quantile([float(n) for n in range(1, 20)]) == 16.0


def test_relative_errors_are_shown(validation: Validation) -> None:
    errors = [
        abs(one.estimated / one.observation.efficiency - 1)
        for out in validation.left_out
        for one in out.compared
    ]
    shown = f"median {median(errors):.1%}, mean {fmean(errors):.1%}, worst {max(errors):.1%}"
    assert any(shown in line for line in validation_lines(validation))


def test_one_node_of_nvidia_is_among_the_further_systems(validation: Validation) -> None:
    """The efficiencies that NVIDIA publishes: 97.8% (TF32), 97.4% and 90.0%."""
    single = {
        one.observation.system: one
        for one in validation.further
        if "DeepLearningExamples" in one.observation.source or "the same" in one.observation.source
    }
    measured = {name: round(one.observation.efficiency, 1) for name, one in single.items()}
    assert measured == {"DGX A100, one node": 97.9, "DGX-1, V100": 97.4, "DGX-2, V100": 90.0}
    assert all(abs(one.error) < 10 for one in single.values())


@pytest.mark.parametrize("workers", [256, 512])
def test_variants_rank_as_in_the_paper(validation: Validation, workers: int) -> None:
    paper = next(out for out in validation.left_out if out.system.startswith("P40"))
    ranked = [
        one for one in paper.compared if one.observation.variant.endswith(f"{workers} workers")
    ]
    measured = [one.observation.efficiency for one in ranked]
    estimated = [one.estimated for one in ranked]
    assert len(measured) == 4
    assert measured == sorted(measured)
    assert all(low < high for low, high in pairwise(estimated))


def test_what_was_never_fitted_is_shown_whatever_it_says(validation: Validation) -> None:
    others = [one for one in validation.further if not one.observation.own]
    assert len(others) == 24
    errors = [abs(one.error) for one in others]
    assert validation.further_error == pytest.approx(sum(errors) / 24)
    assert validation.largest_error == pytest.approx(max(errors))
    assert validation.further_error < 8
    assert validation.own_error < 2
    # An interval of 80% that was never fitted to them holds about as many.
    half = validation.interval
    inside = sum(abs(one.error) <= half * one.estimated for one in others)
    assert 0.7 <= inside / len(others) <= 0.9
    assert f"holds {inside} of the 24 others'" in "".join(validation_lines(validation))


def test_the_statements_on_gains_are_beside_and_not_fitted(validation: Validation) -> None:
    texts = [one.published for one in validation.statements]
    assert "up to 11 times" in texts
    assert "up to 3 times" in texts


def test_the_numbers_in_use_and_the_page_are_up_to_date(validation: Validation) -> None:
    assert page.FITTED_FILE.read_text() == page.fitted_text(validation), "run `make docs`"
    text = page.PAGE.read_text()
    assert text == page.with_tables(text, validation), "run `make docs`"
    readme = " ".join((page.PAGE.parents[1] / "README.md").read_text().split())
    assert f"off by {validation.mean_error:.1f} points" in readme
    assert f"by {validation.further_error:.1f} on others" in readme
    assert fitted().overlap_cost == pytest.approx(validation.numbers.overlap_cost, abs=1e-4)
