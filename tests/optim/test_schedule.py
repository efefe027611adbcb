"""Learning rate schedules against exact rational arithmetic and MLPerf's definition."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fourmin.base.errors import FourminError
from fourmin.recipe.presets import load_preset
from fourmin.recipe.schedule import LearningRateSchedule


def schedule_of(steps_per_epoch, **fields):
    """The schedule of these fields; others are what a configuration has by itself."""
    plain = load_preset("digits").with_overrides({"warmup_epochs": 0.0})
    return LearningRateSchedule(plain.with_overrides(fields), steps_per_epoch)


def mlperf_poly(step, base, end, warmup_steps, train_steps):
    """MLPerf's TensorFlow reference: warmup while step <= warmup_steps, then power 2."""
    if step <= warmup_steps:
        return Fraction(base) * step / warmup_steps
    decay_steps = train_steps - warmup_steps + 1
    done = Fraction(min(step - warmup_steps, decay_steps), decay_steps)
    return (Fraction(base) - Fraction(end)) * (1 - done) ** 2 + Fraction(end)


@given(
    steps_per_epoch=st.integers(1, 60),
    warmup=st.integers(1, 8),
    more=st.integers(1, 20),
    base=st.floats(0.01, 50),
)
def test_poly_is_mlperfs_reference(steps_per_epoch, warmup, more, base):
    schedule = schedule_of(
        steps_per_epoch=steps_per_epoch,
        base_learning_rate=base,
        decay_epochs=warmup + more,
        warmup_epochs=warmup,
    )
    w, total = warmup * steps_per_epoch, (warmup + more) * steps_per_epoch
    assert (schedule.warmup_steps, schedule.decay_steps) == (w, total - w + 1)
    for step in {0, 1, w - 1, w, w + 1, (w + total) // 2, total - 1, total, total + 1, total + 9}:
        expected = float(mlperf_poly(step, base, 1e-4, w, total))
        assert schedule(step) == pytest.approx(expected, rel=1e-12)


def test_endpoints_of_the_embedded_benchmark():
    schedule = schedule_of(
        steps_per_epoch=22, base_learning_rate=16.0, decay_epochs=16, warmup_epochs=2
    )
    assert schedule(0) == 0.0
    assert schedule(22) == 8.0
    assert schedule(44) == 16.0
    assert schedule(45) < 16.0
    assert schedule(351) > 1e-4  # the last step still moves
    assert schedule(44 + 352 - 44 + 1) == 1e-4
    assert schedule(10_000) == 1e-4


def test_a_published_number_of_decay_steps():
    # Batch 65,536 in MLPerf's reference points: 31 warmup epochs, decay_steps 1133.
    steps_per_epoch = 20
    decay_epochs = (1133 - 1 + 31 * steps_per_epoch) / steps_per_epoch
    schedule = schedule_of(
        steps_per_epoch=steps_per_epoch,
        base_learning_rate=24.699,
        decay_epochs=decay_epochs,
        warmup_epochs=31,
    )
    assert schedule.decay_steps == 1133


@pytest.mark.parametrize("power", [1.0, 2.0, 3.0, 1.5, 0.5])
def test_other_powers(power):
    schedule = schedule_of(
        steps_per_epoch=10, base_learning_rate=3.0, end_learning_rate=0.0, decay_epochs=5,
        decay_poly_power=power,
    )  # fmt: skip
    assert schedule(0) == 3.0  # no warmup
    assert schedule(17) == pytest.approx(3.0 * (1 - 17 / 51) ** power, rel=1e-14)
    assert schedule(51) == 0.0


def test_linear_warmup_from_a_start_rate():
    schedule = schedule_of(
        steps_per_epoch=10, base_learning_rate=3.2, learning_rate_decay="constant",
        warmup_epochs=5, warmup_start_learning_rate=0.1,
    )  # fmt: skip
    assert schedule(0) == 0.1
    assert schedule(20) == pytest.approx(0.1 + 3.1 * 0.4)
    assert schedule(50) == 3.2
    assert schedule(5000) == 3.2


def test_quadratic_warmup():
    # NVCaffe's ramp for batch 32K: from 1 to 32 over 400 iterations.
    schedule = schedule_of(
        steps_per_epoch=40, base_learning_rate=32.0, decay_epochs=100, warmup_epochs=10,
        warmup_start_learning_rate=1.0, warmup_shape="quadratic",
    )  # fmt: skip
    assert schedule(0) == 1.0
    assert schedule(100) == pytest.approx(1.0 + 31.0 / 16)
    assert schedule(200) == pytest.approx(1.0 + 31.0 / 4)
    assert schedule(400) == 32.0


def test_step_decay_of_goyal():
    schedule = schedule_of(
        steps_per_epoch=156, base_learning_rate=3.2, learning_rate_decay="step",
        decay_milestones=(30, 60, 80), decay_factor=0.1, warmup_epochs=5,
        warmup_start_learning_rate=0.1,
    )  # fmt: skip
    for epoch, expected in [(5, 3.2), (30, 0.32), (60, 0.032), (80, 0.0032), (89, 0.0032)]:
        assert schedule(epoch * 156) == pytest.approx(expected, rel=1e-14)
    assert schedule(30 * 156 - 1) == 3.2
    assert schedule(80 * 156 - 1) == pytest.approx(0.032, rel=1e-14)


def test_fractions_of_epochs_round_to_steps():
    schedule = schedule_of(
        steps_per_epoch=100, base_learning_rate=1.0, decay_epochs=1.58, warmup_epochs=0.29
    )
    # 0.29 * 100 is 28.999999999999996 in floating point.
    assert schedule.warmup_steps == 29
    assert schedule.decay_steps == 158 - 29 + 1
    assert schedule(29) == 1.0


@given(step=st.integers(0, 2000), shape=st.sampled_from(["linear", "quadratic"]))
def test_always_between_its_ends(step, shape):
    schedule = schedule_of(
        steps_per_epoch=20, base_learning_rate=24.7, decay_epochs=88, warmup_epochs=31,
        warmup_shape=shape,
    )  # fmt: skip
    assert 0.0 <= schedule(step) <= 24.7
    assert math.isfinite(schedule(step))
    if step > schedule.warmup_steps:
        assert 1e-4 <= schedule(step) <= schedule(step - 1)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"steps_per_epoch": 0}, "no full step"),
        ({"decay_epochs": 2, "warmup_epochs": 2}, "warmup"),
        ({"decay_epochs": 1, "warmup_epochs": 2}, "warmup"),
        ({"learning_rate_decay": "step", "decay_milestones": (30, 30)}, "increase"),
    ],
)
def test_refused(changes, message):
    with pytest.raises(FourminError, match=message):
        schedule_of(
            **{"steps_per_epoch": 10, "base_learning_rate": 1.0, "decay_epochs": 9} | changes
        )


def test_negative_steps_are_refused():
    schedule = schedule_of(steps_per_epoch=1, base_learning_rate=1.0, decay_epochs=9)
    with pytest.raises(ValueError, match="negative"):
        schedule(-1)
