"""Windows of augmentation against torchvision's rules, computed one by one."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import augmentation_randoms

from fourmin.base.errors import FourminError
from fourmin.training.data.geometry import (
    RANDOMS,
    TRIES,
    check_settings,
    evaluation_plan,
    training_plan,
)

sides = st.integers(1, 700)


def reference_crop(width: int, height: int, u: np.ndarray) -> tuple[int, int, int, int]:
    """torchvision's RandomResizedCrop.get_params in Python's float64, with given numbers."""
    log_ratio = (math.log(3 / 4), math.log(4 / 3))
    for attempt in range(TRIES):
        target = width * height * (0.08 + 0.92 * u[attempt])
        ratio = math.exp(log_ratio[0] + (log_ratio[1] - log_ratio[0]) * u[TRIES + attempt])
        w, h = round(math.sqrt(target * ratio)), round(math.sqrt(target / ratio))
        if 0 < w <= width and 0 < h <= height:
            top = math.floor(u[2 * TRIES] * (height - h + 1))
            return top, math.floor(u[2 * TRIES + 1] * (width - w + 1)), h, w
    if width / height < 3 / 4:
        w, h = width, round(width / (3 / 4))
    elif width / height > 4 / 3:
        w, h = round(height * (4 / 3)), height
    else:
        w, h = width, height
    return (height - h) // 2, (width - w) // 2, h, w


@settings(deadline=None)
@given(st.lists(st.tuples(sides, sides), min_size=1, max_size=20), st.integers(0, 2**32 - 1))
def test_random_resized_crop_follows_torchvision(pairs, seed):
    widths, heights = (np.array(column) for column in zip(*pairs, strict=True))
    randoms = augmentation_randoms(seed, 0, len(pairs), RANDOMS["random-resized-crop"])
    plan = training_plan("random-resized-crop", widths, heights, randoms, 224, 256)
    for i, (width, height) in enumerate(pairs):
        expected = reference_crop(width, height, randoms[i])
        assert (*plan.start[i].tolist(), *plan.shape[i].tolist()) == expected
        assert plan.mirror[i] == (randoms[i, -1] < 0.5)
    assert (plan.start >= 0).all()
    assert (plan.shape >= 1).all()
    assert (plan.start + plan.shape <= np.stack([heights, widths], axis=1)).all()
    assert (plan.size == 224).all()


def test_random_resized_crop_spreads_over_area_ratio_place_and_mirror():
    n = 4000
    randoms = augmentation_randoms(1, 0, n, RANDOMS["random-resized-crop"])
    plan = training_plan("random-resized-crop", np.full(n, 500), np.full(n, 400), randoms, 224, 256)
    area = plan.shape.prod(axis=1) / 200_000
    ratio = plan.shape[:, 1] / plan.shape[:, 0]
    assert 0.075 < area.min() < 0.09
    assert area.max() > 0.95
    assert 0.74 < ratio.min() < 0.77
    assert 1.30 < ratio.max() < 1.35
    assert abs(plan.mirror.mean() - 0.5) < 0.03
    assert plan.start.min() == 0
    assert ((plan.start + plan.shape).max(axis=0) == [400, 500]).all()


@given(sides, sides, st.integers(8, 300), st.data())
def test_evaluation_is_torchvision_resize_and_center_crop(width, height, resize, data):
    size = data.draw(st.integers(1, resize))
    plan = evaluation_plan([width], [height], size, resize)
    short, long = sorted((width, height))
    scaled = {short: resize, long: int(resize * long / short)}
    if width == height:
        scaled = {short: resize}
    h, w = scaled[height], scaled[width]
    assert plan.size[0].tolist() == [h, w]
    assert plan.crop[0].tolist() == [round((h - size) / 2), round((w - size) / 2)]
    assert plan.shape[0].tolist() == [height, width]
    assert plan.mirror[0] == 0


def test_shift_moves_by_each_of_nine_steps_equally():
    randoms = augmentation_randoms(2, 0, 9000, 2)
    plan = training_plan("shift", np.full(9000, 16), np.full(9000, 16), randoms, 16, 16)
    steps, counts = np.unique(plan.crop, axis=0, return_counts=True)
    assert steps.tolist() == [[y, x] for y in (-1, 0, 1) for x in (-1, 0, 1)]
    assert counts.min() > 850
    assert not plan.mirror.any()


def test_pad_crop_moves_by_up_to_an_eighth_and_mirrors_half():
    n = 20_000
    randoms = augmentation_randoms(2, 0, n, RANDOMS["pad-crop"])
    plan = training_plan("pad-crop", np.full(n, 64), np.full(n, 64), randoms, 64, 64)
    for axis in (0, 1):
        steps, counts = np.unique(plan.crop[:, axis], return_counts=True)
        assert steps.tolist() == list(range(-8, 9))
        assert counts.min() > 0.9 * n / 17
    assert abs(plan.mirror.mean() - 0.5) < 0.02
    assert (plan.size == 64).all()


def test_bad_settings_are_refused():
    with pytest.raises(FourminError, match="shift") as refused:
        check_settings("wobble", 16, 16)
    assert "random-resized-crop" in str(refused.value)
    for image_size, resize in ((17, 16), (0, 16)):
        with pytest.raises(FourminError, match="do not go together"):
            check_settings("none", image_size, resize)
