"""Phases, the growth of the batch and points of the learning rate, against closed forms."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fourmin.base.errors import FourminError
from fourmin.recipe.configuration import Configuration
from fourmin.recipe.presets import load_preset
from fourmin.recipe.schedule import LearningRateSchedule
from fourmin.recipe.steps import with_step
from fourmin.rules.epochs import epochs_before, steps_through

SAMPLES = 1437


def config(**changes: object) -> Configuration:
    plain = load_preset("digits").resolved(0, keep_workers=True, cpu_precision="fp32")
    return replace(plain, **changes)


def growing(limit: int, **changes: object) -> Configuration:
    settings = {
        "optimizer": "sgd", "learning_rate_decay": "step", "warmup_epochs": 0.0,
        "decay_milestones": (3.0, 6.0, 9.0), "decay_factor": 0.5, "global_batch_size": 32,
        "base_learning_rate": 0.1, "max_epochs": 12, "largest_batch": limit,
    }  # fmt: skip
    return config(**settings | changes)


def test_a_phase_changes_what_it_names_until_another_does() -> None:
    one = config(
        phases=("2:image_size=12", "5:global_batch_size=128,crop_area=0.5", "7:image_size=16")
    )
    one.check()
    found = [(c.image_size, c.global_batch_size, c.crop_area) for c in map(one.at, range(1, 10))]
    assert found == [
        *[(16, 64, 0.08)] * 2, *[(12, 64, 0.08)] * 3, *[(12, 128, 0.5)] * 2, *[(16, 128, 0.5)] * 2,
    ]  # fmt: skip
    assert [first for first, _ in one.stretches()] == [1, 3, 6, 8]
    assert config().at(7) == config()


def test_without_phases_no_rate_changes_by_a_bit() -> None:
    for name in ("digits", "resnet50-8k", "tiny-imagenet", "alexnet-32k"):
        preset = load_preset(name)
        plain = LearningRateSchedule(preset, preset.steps_per_epoch(1_281_167))
        over = LearningRateSchedule.over(preset, 1_281_167)
        steps = range(0, plain.steps_per_epoch * preset.max_epochs, 997)
        assert [plain(step) for step in steps] == [over(step) for step in steps]


def test_an_epoch_is_all_full_batches_of_its_own_size() -> None:
    schedule = LearningRateSchedule.over(
        config(phases=("2:global_batch_size=128", "4:global_batch_size=32"), max_epochs=6), SAMPLES
    )
    expected = [22, 22, 11, 11, 44, 44]
    assert [schedule.steps_of(epoch) for epoch in range(1, 7)] == expected
    assert [schedule.steps_before(epoch) for epoch in range(1, 8)] == [
        sum(expected[:done]) for done in range(7)
    ]


@given(limit=st.integers(1, 400), start=st.sampled_from([8, 16, 32, 48]))
def test_the_batch_grows_by_the_factor_up_to_the_limit_and_then_the_rate_falls(
    limit: int, start: int
) -> None:
    """Batch over rate rises by the factor at each milestone, whichever of the two changes."""
    one = growing(limit, global_batch_size=start)
    schedule = LearningRateSchedule.over(one, SAMPLES)
    for epoch in range(1, 13):
        passed = sum(epoch > milestone for milestone in (3, 6, 9))
        grown = max(n for n in range(passed + 1) if n == 0 or start * 2**n <= limit)
        assert one.at(epoch).global_batch_size == start * 2**grown
        for step in (schedule.steps_before(epoch), schedule.steps_before(epoch + 1) - 1):
            assert schedule(step) == pytest.approx(0.1 * 0.5 ** (passed - grown), rel=1e-12)


def test_growth_and_decay_have_the_same_noise_on_a_quadratic() -> None:
    """SGD on h w^2 / 2 whose gradient has a noise of variance s^2 / batch.

    E[w^2] goes from v to (1 - r h)^2 v + r^2 s^2 / batch in a step, exactly. Smith et al. 2018: for
    small rates only r / batch decides, so that the two end every phase alike; a schedule that does
    neither, or both, is far off.
    """
    h, s2 = 1.0, 1.0

    def ends(one: Configuration) -> list[float]:
        schedule = LearningRateSchedule.over(one, 64_000)
        v, found, step = 1.0, [], 0
        for epoch in range(1, one.max_epochs + 1):
            batch = one.at(epoch).global_batch_size
            for _ in range(schedule.steps_of(epoch)):
                rate = schedule(step)
                v = (1 - rate * h) ** 2 * v + rate * rate * s2 / batch
                step += 1
            found.append(v)
        return found

    small = {"base_learning_rate": 0.02, "global_batch_size": 8}
    decayed, grown = ends(growing(0, **small)), ends(growing(64, **small))
    constant = ends(growing(0, **small, learning_rate_decay="constant"))
    for epoch in (3, 6, 9, 12):
        assert grown[epoch - 1] == pytest.approx(decayed[epoch - 1], rel=0.02), epoch
    assert constant[-1] / decayed[-1] == pytest.approx(8, rel=0.1)
    # With as many gradients, growth takes fewer steps: 15 thirty-seconds of them.
    taken = [
        LearningRateSchedule.over(growing(limit, **small), 64_000).steps_before(13)
        for limit in (64, 0)
    ]
    assert Fraction(*taken) == Fraction(15, 32)


def test_the_rate_of_a_decay_goes_by_epochs_whatever_their_batches() -> None:
    one = config(phases=("4:global_batch_size=128",), max_epochs=16)
    with_phases = LearningRateSchedule.over(one, 1408)
    plain = LearningRateSchedule.over(config(), 1408)
    for epoch in range(5, 17):
        # 11 steps of 128 go where 22 of 64 went.
        assert with_phases(with_phases.steps_before(epoch) + 3) == pytest.approx(
            plain(plain.steps_before(epoch) + 6), rel=1e-12
        )


POINTS = ("0:0.1", "2:0.4", "4:0.4", "4:0.05", "8:0.01")


@given(epochs=st.floats(0, 12))
def test_points_are_joined_by_straight_lines(epochs: float) -> None:
    one = config(
        learning_rate_decay="points", learning_rate_points=POINTS, warmup_epochs=0.0, max_epochs=12
    )
    step = int(epochs * 22)
    done = Fraction(step, 22)
    points = [tuple(map(Fraction, text.split(":"))) for text in POINTS]
    expected = points[-1][1]
    for (a, low), (b, high) in pairwise(points):
        if a <= done < b:
            expected = low + (high - low) * (done - a) / (b - a)
    rate = LearningRateSchedule.over(one, SAMPLES)(step)
    assert rate == pytest.approx(float(expected), rel=1e-12)


def test_the_published_schedule() -> None:
    """fast.ai's: images a GPU of 128, sizes, and rates at the corners."""
    preset = load_preset("resnet50-fastai")
    with_step(preset.resolved(8, keep_workers=True), "").check()
    assert preset.workers == 128
    corners = {1: (128, 64), 7: (128, 128), 15: (224, 64), 18: (224, 224), 30: (288, 128)}
    for epoch in range(1, 38):
        size, images = corners[max(first for first in corners if first <= epoch)]
        own = preset.at(epoch)
        assert (own.image_size, own.local_batch_size) == (size, images)
        assert own.eval_resize == int(1.14 * size)
        assert own.eval_rectangles == (epoch > 29)
    schedule = LearningRateSchedule.over(preset, 1_281_167)
    rates = {1: 1.88, 4: 2.82, 7: 3.76, 12: 3.76, 15: 1.88, 18: 1.88, 24: 0.658, 30: 0.0188}
    for epoch, rate in rates.items():
        assert schedule(schedule.steps_before(epoch)) == pytest.approx(rate, rel=1e-12)
    assert schedule(schedule.steps_before(30) - 1) == pytest.approx(0.0658, rel=0.05)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"phases": ("3:image_size=12", "2:image_size=16")}, "phases must rise"),
        ({"phases": ("0:image_size=12",)}, "phases must rise"),
        ({"phases": ("2:momentum=0.5",)}, "cannot change 'momentum'"),
        ({"phases": ("2:image_size",)}, "makes no sense"),
        ({"phases": ("2:image_size=0",)}, "makes no sense"),
        ({"phases": ("2:image_size=20",)}, "do not go together"),
        ({"phases": ("2:image_size=1.5",)}, "not of type int"),
        ({"phases": ("2:global_batch_size=63",)}, "cannot be shared equally"),
        ({"phases": ("99:image_size=12",)}, "after 99 epochs"),
        ({"learning_rate_decay": "points", "warmup_epochs": 0.0}, "make no schedule"),
        (
            {"learning_rate_decay": "points", "learning_rate_points": ("1:2", "0:1")},
            "make no schedule",
        ),
        ({"learning_rate_decay": "points", "learning_rate_points": ("0:1",)}, "how the rate"),
        ({"largest_batch": 128}, "for learning_rate_decay=step"),
    ],
)
def test_what_makes_no_sense_is_refused(changes: dict[str, object], says: str) -> None:
    with pytest.raises(FourminError, match=says):
        config(**changes).check()


@pytest.mark.parametrize(
    "changes",
    [
        {"decay_factor": 0.3},
        {"decay_milestones": (2.5,)},
        {"decay_factor": 0.0},
        {"phases": ("2:global_batch_size=64",)},
    ],
)
def test_a_growth_without_whole_batches_is_refused(changes: dict[str, object]) -> None:
    growing(256).check()
    with pytest.raises(FourminError):
        growing(256, **changes).check()


def test_a_configuration_with_phases_that_are_none_is_none() -> None:
    good = growing(256).to_json()
    assert Configuration.from_json(good) == growing(256)
    for wrong in ({"phases": ["2:momentum=1"]}, {"decay_factor": 0.3}):
        with pytest.raises(FourminError):
            Configuration.from_json(good | wrong)


@pytest.mark.timeout(20)
def test_many_phases_are_soon_worked_out() -> None:
    """Somebody else's plan may hold as many as have room in it."""
    phases = [f"{after}:image_size={8 + after % 2}" for after in range(1, 20_001)]
    many = Configuration.from_json(config().to_json() | {"phases": phases})
    found = many.stretches()
    assert [first for first, _ in found] == [*range(1, 20_002)]
    assert found[777][1] == many.at(778)
    assert steps_through(many, SAMPLES, 777) == 777 * many.steps_per_epoch(SAMPLES)


def test_rules_count_for_themselves_and_come_to_the_same() -> None:
    one = growing(128)
    schedule = LearningRateSchedule.over(one, SAMPLES)
    for epoch in range(13):
        assert steps_through(one, SAMPLES, epoch) == schedule.steps_before(epoch + 1)
    for step in range(schedule.steps_before(13)):
        done = epochs_before(one, SAMPLES, step)
        epoch = math.floor(done) + 1
        assert schedule.steps_before(epoch) <= step < schedule.steps_before(epoch + 1)
        assert round((done % 1) * schedule.steps_of(epoch)) == step - schedule.steps_before(epoch)


@pytest.mark.timeout(60)
def test_as_many_phases_as_a_campaign_may_have_are_counted_at_once() -> None:
    """For each epoch of a log; by parsing all of them for each of them it took hours."""
    one = config(phases=tuple(f"{after}:image_size=16" for after in range(1, 101)))
    for step in range(2000):
        assert epochs_before(one, SAMPLES, step) == pytest.approx(step / (SAMPLES // 64))
    assert steps_through(one, SAMPLES, 200) == 200 * (SAMPLES // 64)


def test_workers_on_a_cpu_share_every_batch() -> None:
    one = replace(
        load_preset("digits"), procs_per_node=8, phases=("2:global_batch_size=36",), device="cpu"
    )
    assert one.resolved(0, keep_workers=False, cpus=8).procs_per_node == 4
