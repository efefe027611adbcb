"""A step's timeline by hand, and the time of a pass between measurements."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fourmin.base.errors import FourminError
from fourmin.estimate.collectives import Cost
from fourmin.estimate.compute import pass_time
from fourmin.estimate.profile import Compute, load_profile
from fourmin.estimate.step import estimate_step, spread
from fourmin.estimate.timeline import Reduction, overlap
from fourmin.recipe.presets import load_preset

P40 = load_profile("p40-100gbe")
RUN = spread(
    replace(load_preset("resnet50-256"), precision="fp16", fusion_threshold=4 << 20),
    nodes=8,
    per_node=8,
    images=64,
)


def _reductions(*pairs: tuple[float, float]) -> list[Reduction]:
    return [Reduction(1, ready, "ring", Cost(seconds)) for ready, seconds in pairs]


def test_communication_under_the_backward_pass_costs_its_share_and_what_outlasts_it_all() -> None:
    # Backward from 1 to 3. The first bucket leaves at 2 for 0.4; the second is ready at 3 and
    # takes 0.5, all of it exposed.
    step = overlap([3.0], _reductions((0.5, 0.4), (1.0, 0.5)), overlap_cost=0.25)
    assert step.exposed == pytest.approx(0.5)
    assert step.contention == pytest.approx(0.25 * 0.4)
    assert step.communication == pytest.approx(0.9)
    assert step.seconds == pytest.approx(3.6)
    assert step.efficiency == pytest.approx(3.0 / 3.6)


def test_a_bucket_waits_for_the_one_before() -> None:
    # 2 to 3.5, then 0.1: of 1.6 in all, 1.0 is hidden.
    step = overlap([3.0], _reductions((0.5, 1.5), (0.6, 0.1)), overlap_cost=1.0)
    assert step.exposed == pytest.approx(0.6)
    assert step.contention == pytest.approx(1.0)


def test_only_the_last_micro_batch_overlaps() -> None:
    one = overlap([3.0, 3.0], _reductions((0.0, 10.0)), overlap_cost=0.0)
    # Backward of the last pass begins at 4 and ends at 6.
    assert one.compute == 6.0
    assert one.exposed == pytest.approx(8.0)


def test_nothing_is_sent_alone() -> None:
    alone = estimate_step(spread(RUN, 1, 1, 64), P40)
    assert alone.time.efficiency == 1.0
    assert alone.reductions == ()
    assert alone.images_per_second == pytest.approx(218)


def test_efficiency_falls_with_workers_and_rises_with_the_batch() -> None:
    rates = [estimate_step(spread(RUN, n, 8, 64), P40).time.efficiency for n in (1, 8, 256)]
    assert rates == sorted(rates, reverse=True)
    larger = estimate_step(spread(RUN, 8, 8, 256), P40)
    assert larger.time.efficiency > rates[1]


def test_shared_batch_statistics_are_never_hidden() -> None:
    shared = estimate_step(replace(RUN, bn_span=4), P40).time
    plain = estimate_step(RUN, P40).time
    assert shared.seconds - plain.seconds == pytest.approx(shared.statistics)
    # 53 layers, twice, 6 hops of a microsecond and more each.
    assert shared.statistics > 106 * 6e-6


def _seconds(batch: int, known: tuple[Compute, ...], fixed: float = 0.0, **other: object) -> float:
    settings = {"model": "resnet50", "precision": "fp16", "step": "eager", "image_size": 224}
    return pass_time(
        replace(P40, compute=known),
        batch=batch,
        fixed_seconds=fixed,
        **(settings | other),  # type: ignore[arg-type]
    ).seconds


def test_a_pass_between_and_beyond_measurements_lies_on_their_lines() -> None:
    known = tuple(
        Compute("resnet50", "fp16", batch, batch / seconds, "x")
        for batch, seconds in ((32, 0.040), (64, 0.050), (256, 0.200))
    )
    assert _seconds(32, known) == pytest.approx(0.040)
    assert _seconds(48, known) == pytest.approx(0.045)
    assert _seconds(160, known) == pytest.approx(0.125)
    assert _seconds(16, known) == pytest.approx(0.035)
    assert _seconds(448, known) == pytest.approx(0.350)


def test_one_measurement_has_a_fixed_part() -> None:
    known = (Compute("resnet50", "fp16", 100, 1000.0, "x"),)
    assert _seconds(100, known, 0.01) == pytest.approx(0.1)
    assert _seconds(50, known, 0.01) == pytest.approx(0.01 + 0.09 / 2)


def test_the_step_that_was_measured_counts_before_one_of_any_step() -> None:
    known = (
        Compute("resnet50", "fp16", 64, 640.0, "any"),
        Compute("resnet50", "fp16", 64, 6400.0, "fast", step="fast"),
    )
    assert _seconds(64, known) == pytest.approx(0.1)
    assert _seconds(64, known, step="fast") == pytest.approx(0.01)


def test_another_model_is_scaled_by_operations_and_says_so() -> None:
    known = pass_time(
        P40,
        model="alexnet",
        precision="fp16",
        step="eager",
        image_size=227,
        batch=64,
        fixed_seconds=0.0,
    )
    assert known.derived
    assert "by operations" in known.source
    # 1.449 of 8.178 billion operations an image.
    assert known.seconds == pytest.approx(64 / 218 * 1.448813632 / 8.178368512)


def test_a_precision_that_nobody_measured_is_refused() -> None:
    with pytest.raises(FourminError, match="no time for resnet50 in bf16"):
        estimate_step(replace(RUN, precision="bf16"), P40)
