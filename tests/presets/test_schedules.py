"""The learning rates of the presets, every step, against their sources' formulas.

The formulas are written here from the sources, in plain float64 arithmetic, and share nothing
with fourmin's schedule. What they give lies in golden/schedule-*.csv; a plot of the curves was
looked at when they were made.
"""

from __future__ import annotations

import csv

import pytest

from fourmin.recipe.presets import PRESETS, load_preset

IMAGES = 1_281_167


def mlperf(step, *, batch, base, warmup_epochs, decay_steps):
    """MLPerf's TensorFlow reference, PolynomialDecayWithWarmup, with a published decay_steps."""
    warmup_steps = warmup_epochs * (IMAGES // batch)
    if step <= warmup_steps:
        return base * step / warmup_steps
    done = min(step - warmup_steps, decay_steps)
    return (base - 1e-4) * (1 - done / decay_steps) ** 2 + 1e-4


def goyal(step, *, batch):
    """Goyal et al. 2017, sections 2.1, 2.2 and 5.1: from 0.1 to 0.1 * kn / 256 in 5 epochs."""
    epochs = step / (IMAGES // batch)
    scaled = 0.1 * batch / 256
    if batch > 256 and epochs < 5:
        return 0.1 + (scaled - 0.1) * epochs / 5
    return scaled / 10 ** sum(epochs >= milestone for milestone in (30, 60, 80))


def nvcaffe(step, *, base, ramp, length):
    """NVCaffe's SGDSolver::GetLearningRate: rampup from 1, then poly of power 2 from step 0."""
    if step < ramp:
        return 1 + (base - 1) * (step / ramp) ** 2
    return base * (1 - step / length) ** 2


def decay_from_the_ramp(step, *, base, ramp, length):
    """NVCaffe's, but for a decay that begins with `base` where the ramp ends."""
    if step < ramp:
        return nvcaffe(step, base=base, ramp=ramp, length=length)
    steps = length - ramp + 1
    return base * max(0.0, (steps - (step - ramp)) / steps) ** 2


# Steps to compute and rate of each step, from what the sources publish.
SOURCES = {
    "resnet50-256": (90 * 5004, lambda s: goyal(s, batch=256)),
    "resnet50-8k": (90 * 156, lambda s: goyal(s, batch=8192)),
    "resnet50-32k": (
        76 * 39,
        lambda s: mlperf(s, batch=32768, base=21.2, warmup_epochs=16, decay_steps=2267),
    ),
    "resnet50-64k": (
        92 * 19,
        lambda s: mlperf(s, batch=65536, base=24.699, warmup_epochs=31, decay_steps=1133),
    ),
    "alexnet-512": (
        60 * 2502,
        lambda s: decay_from_the_ramp(s, base=0.01, ramp=0, length=60 * 2502),
    ),
    "alexnet-32k": (
        100 * 39,
        lambda s: decay_from_the_ramp(s, base=32.0, ramp=390, length=3900),
    ),
    "alexnet-64k": (
        95 * 19,
        lambda s: decay_from_the_ramp(s, base=32.0, ramp=190, length=1805),
    ),
}
EVERY_STEP = ("resnet50-64k", "resnet50-8k")


def sampled(name):
    """All steps of resnet50-64k; of the others about 250, and the steps around the corners."""
    length, _ = SOURCES[name]
    if name == "resnet50-64k":
        return range(length)
    preset = load_preset(name)
    per_epoch = preset.steps_per_epoch(IMAGES)
    corners = [round(e * per_epoch) for e in (preset.warmup_epochs, *preset.decay_milestones)]
    near = {corner + offset for corner in corners for offset in (-1, 0, 1)}
    return sorted({s for s in near if s >= 0} | {*range(0, length, length // 250), length - 1})


def of_preset(name):
    schedule = pytest.importorskip("fourmin.recipe.schedule")
    preset = load_preset(name)
    return schedule.LearningRateSchedule(preset, preset.steps_per_epoch(IMAGES))


def test_every_imagenet_preset_has_a_source():
    imagenet = {p for p in PRESETS if load_preset(p).benchmark in ("resnet50", "alexnet")}
    # fast.ai's, of points, is in tests/recipe/test_phases.py.
    assert set(SOURCES) == imagenet - {"resnet50-fastai"}


@pytest.mark.parametrize("name", SOURCES)
def test_the_number_of_steps(name):
    preset = load_preset(name)
    assert SOURCES[name][0] == preset.max_epochs * preset.steps_per_epoch(IMAGES)


@pytest.mark.parametrize("name", EVERY_STEP)
def test_every_step_has_the_sources_rate(name):
    schedule = of_preset(name)
    length, source = SOURCES[name]
    for step in range(length):
        assert schedule(step) == pytest.approx(source(step), rel=1e-12, abs=1e-15)


@pytest.mark.parametrize("name", SOURCES)
def test_the_sampled_steps_have_the_sources_rate(name):
    schedule = of_preset(name)
    _, source = SOURCES[name]
    for step in sampled(name):
        assert schedule(step) == pytest.approx(source(step), rel=1e-12, abs=1e-15)


@pytest.mark.parametrize("name", SOURCES)
def test_the_golden_rates(name, golden):
    schedule = of_preset(name)
    _, source = SOURCES[name]
    table = ["step,learning_rate", *(f"{step},{source(step)!r}" for step in sampled(name))]
    kept = golden.kept(f"schedule-{name}.csv", "".join(f"{line}\n" for line in table))
    rows = [
        (int(row["step"]), float(row["learning_rate"])) for row in csv.DictReader(kept.splitlines())
    ]
    assert [step for step, _ in rows] == list(sampled(name))
    for step, rate in rows:
        assert schedule(step) == pytest.approx(rate, rel=1e-12, abs=1e-15)


@pytest.mark.parametrize(
    ("name", "warmup", "decay"), [("resnet50-32k", 624, 2267), ("resnet50-64k", 589, 1133)]
)
def test_the_published_decay_steps(name, warmup, decay):
    schedule = of_preset(name)
    assert (schedule.warmup_steps, schedule.decay_steps) == (warmup, decay)
    assert schedule(warmup) == load_preset(name).base_learning_rate
    # The whole decay fits into the run.
    assert warmup + decay <= SOURCES[name][0]
    assert schedule(warmup + decay - 1) > schedule(warmup + decay) == 1e-4


@pytest.mark.parametrize("name", ["alexnet-32k", "alexnet-64k"])
def test_how_far_alexnet_is_from_nvcaffes_own_decay(name):
    """The ramp is NVCaffe's; after it the rate is (length / (length - ramp))^2 times NVCaffe's."""
    schedule = of_preset(name)
    length, _ = SOURCES[name]
    ramp = schedule.warmup_steps
    for step in range(ramp):
        assert schedule(step) == pytest.approx(nvcaffe(step, base=32.0, ramp=ramp, length=length))
    for step in range(ramp, round(0.9 * length)):
        theirs = nvcaffe(step, base=32.0, ramp=ramp, length=length)
        assert schedule(step) / theirs == pytest.approx((length / (length - ramp)) ** 2, rel=0.02)
