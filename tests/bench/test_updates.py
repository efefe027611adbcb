"""Optimizers at scale: state, what an update moves, and what is sent for it."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from fourmin.bench import step
from fourmin.estimate.profile import load_profile
from fourmin.estimate.step import reduce_buckets
from fourmin.estimate.update import updates
from fourmin.recipe.optimizers import OPTIMIZERS
from fourmin.recipe.presets import load_preset

READS_AND_WRITES = {
    # weight, gradient, momentum; weight, momentum
    "sgd": 3 + 2,
    # weight, gradient, sum of squares; weight, sum of squares
    "adagrad": 3 + 2,
    # for the norms weight and gradient before
    "lars": 2 + 3 + 2,
    # weight, gradient, two moments; weight, two moments
    "adamw": 4 + 3,
    # moments and the step's norm first: 4 read, 2 written; then weight, moments; weight
    "lamb": 4 + 2 + 3 + 1,
}
"""FP32 numbers a parameter, counted from the formulas of the modules in training/optim/."""


def test_what_must_move_is_what_the_formulas_read_and_write() -> None:
    assert {name: entry.moved for name, entry in OPTIMIZERS.items()} == {
        name: 4 * count for name, count in READS_AND_WRITES.items()
    }


def test_measured_state_is_the_estimates_and_all_send_the_same() -> None:
    report = step.measure(
        preset="digits", batch_sizes=(8,), peers=("eager",), device="cpu", precision="fp32",
        image_size=None, repeats=3, warmup=1, threads=1, say=lambda _: None,
        optimizers=("sgd", "lars", "lamb", "adamw", "adagrad"),
    )  # fmt: skip
    estimated = updates("resnet8", load_profile("dgx-h100"))
    parameters = 78_042  # ResNet-8's, as in tests/models
    for one in report.updates:
        assert one.state_bytes == estimated[one.optimizer].state_bytes
        assert one.state_bytes == 4 * parameters * (2 if one.optimizer in ("lamb", "adamw") else 1)
        assert one.sent_bytes == 4 * parameters
        assert one.moved_bytes == 4 * parameters * READS_AND_WRITES[one.optimizer]
        assert one.seconds > 0
    text = report.to_text()
    assert all(f"\n{name} " in text for name in OPTIMIZERS)
    assert [row["optimizer"] for row in report.to_json()["updates"]] == [
        "sgd", "lars", "lamb", "adamw", "adagrad",
    ]  # fmt: skip


def test_an_estimate_goes_through_them_at_the_memorys_rate() -> None:
    found = updates("resnet50", load_profile("dgx-h100"))
    assert found["sgd"].seconds == pytest.approx(20 * 25_557_032 / 3.35e12)
    times = [found[name].seconds or 0.0 for name in ("sgd", "lars", "adamw", "lamb")]
    assert all(a <= b for a, b in pairwise(times))
    unknown = replace(load_profile("dgx-h100"), memory_bandwidth=None)
    assert {one.seconds for one in updates("resnet50", unknown).values()} == {None}


def test_the_buckets_of_a_step_do_not_depend_on_the_optimizer() -> None:
    one = replace(load_preset("resnet50-64k"), division="open", gradient_dtype="fp32")
    profile = load_profile("dgx-h100")
    sent = {reduce_buckets(replace(one, optimizer=name), profile) for name in OPTIMIZERS}
    assert len(sent) == 1
