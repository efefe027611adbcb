"""Reference convergence points against the published table and published scores."""

from __future__ import annotations

from typing import Any

import pytest
from plans import make_plan

from fourmin.base.canonical import loads_strict
from fourmin.base.files import rulesets_folder
from fourmin.recipe.presets import PRESETS, load_preset
from fourmin.results.rcp import (
    Design,
    References,
    convergence,
    mean_epochs,
    references,
    scaling_factor,
)
from fourmin.results.run_result import RunFacts
from fourmin.results.schema import schema_errors
from fourmin.ruleset import load_ruleset

# Batch size, mean epochs, deviation, smallest accepted mean: MLCommons' table of round 4.0.
TABLE = [
    (1632, 35.000, 1.085, 33.802),
    (3264, 35.154, 0.748, 34.310),
    (4096, 39.875, 1.000, 38.634),
    (8192, 41.875, 1.000, 40.634),
    (13056, 45.500, 0.663, 44.677),
    (32768, 56.000, 0.447, 55.445),
    (49152, 68.000, 0.632, 67.215),
    (58880, 80.000, 0.831, 78.969),
    (65536, 84.500, 0.922, 83.356),
    (67840, 85.846, 0.639, 85.183),
]
# Scaling factors of published results whose runs needed 35 epochs (rounds 2.1 and 4.0).
PUBLISHED = {2048: 1.0011204481792717, 2400: 1.0020685197155785, 3200: 1.0042232277526395,
             3264: 1.0043956043956044}  # fmt: skip


def _resnet50() -> Any:
    found = references("1.0", "resnet50")
    assert found is not None
    return found


def test_the_published_table() -> None:
    found = [
        (p.global_batch_size, round(p.mean, 3), round(p.deviation, 3), round(p.minimum, 3))
        for p in _resnet50().points
    ]
    assert found == TABLE


@pytest.mark.parametrize(("batch", "factor"), PUBLISHED.items())
def test_published_scaling_factors(batch: int, factor: float) -> None:
    point = _resnet50().at(batch)
    assert scaling_factor(point, 35) == pytest.approx(factor, abs=1e-15)


@pytest.mark.parametrize("of_round", ["1.1", "2.0", "2.1", "3.0", "3.1"])
def test_between_3264_and_49152_no_point_was_compared_with_before_round_4(of_round: str) -> None:
    """A score of v3.1 at batch 3,520 was published as scaled by these two points."""
    known = references("1.0", "resnet50", of_round)
    assert known is not None
    low, high = (next(p for p in known.points if p.global_batch_size == b) for b in (3264, 49152))
    share = (3520 - 3264) / (49152 - 3264)
    point = known.at(3520)
    assert point is not None
    assert point.mean == pytest.approx(low.mean * (1 - share) + high.mean * share, abs=1e-12)
    deviation = low.deviation * (1 - share) + high.deviation * share
    # 10 runs, and 5 without 2: the 95% point of 11 degrees of freedom.
    assert point.minimum == pytest.approx(
        point.mean - 1.795885 * deviation * (1 / 10 + 1 / 3) ** 0.5, abs=1e-6
    )


def test_points_that_are_slower_than_their_neighbours_say_are_not_compared_with() -> None:
    kept = [point.global_batch_size for point in _resnet50().pruned]
    assert kept == [1632, 3264, 32768, 49152, 67840]


def test_below_between_and_above() -> None:
    known = _resnet50()
    assert known.at(64) == known.points[0]
    assert known.at(67841) is None
    between = known.at(4096)
    assert 35.154 < between.mean < 39.875
    assert between.minimum < between.mean


def test_the_minimum_is_where_a_score_ends() -> None:
    point = _resnet50().at(3264)
    assert scaling_factor(point, point.minimum - 1e-9) is None
    assert scaling_factor(point, point.minimum) == pytest.approx(35.1538 / 34.3096, abs=1e-4)
    assert scaling_factor(point, point.mean) == 1.0
    assert scaling_factor(point, 34.0) is None
    assert scaling_factor(point, 99) == 1.0


@pytest.mark.parametrize(
    ("epochs", "expected"),
    [
        ([36, 32, 36, 40, 36], 36),
        ([36, None, 32, 36, 36], 36),
        ([None, None, 36, 36, 36], None),
        ([36, 36], None),
        ([], None),
    ],
)
def test_a_submissions_mean(epochs: list[float | None], expected: float | None) -> None:
    assert mean_epochs(epochs) == expected


def _results(*epochs: float, failed: int = 0) -> list[RunFacts]:
    """Runs by their epochs; the last `failed` ended there without the target."""
    converged = ["converged"] * (len(epochs) - failed) + ["not-converged"] * failed
    return [RunFacts(status=s, epochs=e) for s, e in zip(converged, epochs, strict=True)]


def test_only_closed_campaigns_that_count_are_compared() -> None:
    results = _results(36, 32, 36, 40, 36)
    assert convergence(make_plan(), results).reference == _resnet50().at(3264)
    assert convergence(make_plan(), results).epochs == 36
    assert convergence(make_plan(practice=True), results).reference is None
    assert convergence(make_plan(division="open"), results).reference is None


def test_outside_of_the_reference_points() -> None:
    below = convergence(_batch(1024), _results(*[30] * 5))
    assert (below.below, bool(below.too_few)) == (True, True)
    assert below.factor == _resnet50().points[0].mean / 30
    above = convergence(_batch(131072), _results(*[80] * 5))
    assert above.reference == _resnet50().points[-1]
    assert (above.below, bool(above.too_few), above.factor) == (False, True, None)


def test_the_closed_division_ends_at_the_largest_reference_point() -> None:
    closed = load_ruleset().benchmark("resnet50")
    assert closed.largest_batch == _resnet50().points[-1].global_batch_size
    configuration = load_preset("resnet50-64k").to_json()
    assert closed.closed_violations(configuration) == []
    (message,) = closed.closed_violations(configuration | {"global_batch_size": 67841})
    assert "the closed division ends at 67840" in message
    assert load_ruleset().benchmark("alexnet").largest_batch is None


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_the_presets_are_in_their_division(name: str) -> None:
    configuration = load_preset(name)
    benchmark = load_ruleset().benchmark(configuration.benchmark)
    violations = benchmark.closed_violations(configuration.to_json())
    assert bool(violations) == (configuration.division == "open")


def _batch(global_batch_size: int) -> Any:
    configuration = make_plan().configuration | {"global_batch_size": global_batch_size}
    return make_plan(configuration=configuration)


def test_epochs_without_the_target_do_not_count() -> None:
    assert convergence(make_plan(), _results(36, 37, 38, 39, 20, failed=1)).epochs == 38
    found = convergence(make_plan(), _results(36, 37, 38, 20, 20, failed=2))
    assert (found.epochs, found.factor) == (None, 1.0)


def test_other_rounds_and_benchmarks() -> None:
    first = references("1.0", "resnet50", "1.0")
    assert first is not None
    assert [p.global_batch_size for p in first.points][-1] == 65536
    assert references("1.0", "resnet50", "0.7") is None
    assert references("1.0", "unheard-of") is None


@pytest.mark.parametrize("path", sorted((rulesets_folder() / "1.0" / "rcp").glob("*.json")))
def test_the_files_are_valid(path: Any) -> None:
    value: Any = loads_strict(path.read_bytes())
    assert schema_errors("1.0", "rcp", value) == []
    assert value["benchmark"] == path.stem
    assert value["current"] in value["rounds"]


def test_the_best_of_the_reference_runs_up_to_an_epoch() -> None:
    slow, quick = [(1, 0.1), (2, 0.3), (3, 0.2)], [(1, 0.2), (2, 0.25)]
    known = References(Design(5, 0.999), (), (), {256: [slow, quick], 1024: [[(1, 0.05)]]})
    assert [known.best_within(epochs, 512) for epochs in (0.5, 1, 2, 3)] == [None, 0.2, 0.3, 0.3]
    assert known.best_within(4, 512) is None  # all had ended
    assert known.best_within(1, 128) is None  # smaller batches may learn faster
    assert known.best_within(1, 4096) == 0.05


def test_curves_end_with_the_epochs_to_the_target() -> None:
    """Of every benchmark that has them, in the reference points' own files."""
    seen = 0
    for path in sorted((rulesets_folder() / "1.0" / "rcp").glob("*.json")):
        data: Any = loads_strict(path.read_bytes())
        target = load_ruleset().benchmark(path.stem).quality_target
        for point in data["rounds"][data["current"]]:
            for end, curve in zip(point["epochs"], point.get("curves", []), strict=False):
                assert [at for at, accuracy in curve if accuracy >= target] == [end]
                assert curve[-1][0] == end
                seen += 1
    assert seen >= 7
