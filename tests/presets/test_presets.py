"""Every preset: whole, allowed, documented and frozen."""

from __future__ import annotations

import dataclasses
import json

import pytest

from fourmin.base.errors import FourminError
from fourmin.recipe.configuration import Configuration
from fourmin.recipe.presets import PRESETS, describe_preset, load_preset
from fourmin.recipe.presets.imagenet import TRAIN_IMAGES
from fourmin.recipe.steps import with_step
from fourmin.ruleset import load_ruleset

OPEN = ("resnet50-fastai",)
IMAGENET = [name for name in PRESETS if load_preset(name).benchmark in ("resnet50", "alexnet")]


def test_the_missions_names_are_there():
    assert set(PRESETS) >= {
        "digits", "fashion-mnist", "tiny-imagenet", "fractals-resnet50",
        "resnet50-256", "resnet50-8k", "resnet50-32k", "resnet50-64k",
        "alexnet-512", "alexnet-32k", "alexnet-64k",
    }  # fmt: skip


def test_a_change_of_any_setting_shows_in_review(golden):
    presets = {name: load_preset(name).to_json() for name in PRESETS}
    golden.check("presets.json", json.dumps(presets, indent=1) + "\n")


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("gpus", [0, 8])
def test_every_preset_resolves_and_is_allowed_in_its_division(name, gpus):
    configuration = load_preset(name).resolved(
        gpus, keep_workers=False, cpus=2, cpu_precision="bf16"
    )
    assert configuration.step == ("auto" if configuration.device == "cuda" else "eager")
    configuration = with_step(configuration, "")
    assert configuration.step == ("fast" if configuration.device == "cuda" else "eager")
    # A preset for a GPU cluster stays one where there is no GPU.
    if configuration.device == "cuda":
        configuration.check()
        assert configuration.precision == "fp16"
    else:
        dataclasses.replace(configuration, bn_span=1).check()
        assert configuration.precision == "bf16"
        assert configuration.procs_per_node == min(2, load_preset(name).procs_per_node)
    assert configuration.preset == name
    benchmark = load_ruleset().benchmark(configuration.benchmark)
    assert configuration.model in benchmark.models
    violations = benchmark.closed_violations(configuration.to_json())
    assert configuration.division == ("open" if name in OPEN else "closed")
    assert bool(violations) == (name in OPEN)
    assert Configuration.from_json(json.loads(json.dumps(configuration.to_json()))) == configuration


@pytest.mark.parametrize("name", PRESETS)
def test_the_last_epoch_is_evaluated(name):
    configuration = load_preset(name)
    benchmark = load_ruleset().benchmark(configuration.benchmark)
    scheduled = benchmark.scheduled(configuration.max_epochs, configuration.eval_offset)
    assert scheduled[-1] == configuration.max_epochs


@pytest.mark.parametrize("name", IMAGENET)
def test_the_description_names_its_sources_and_what_was_not_run(name):
    first, text = describe_preset(name)
    assert 20 < len(first) <= 100
    assert first.endswith(".")
    assert any(
        source in text for source in ("1706.02677", "1807.11205", "NVCaffe", "MLPerf", "fast.ai")
    )
    assert "Never run here" in text


def test_published_steps_are_those_of_the_benchmarks_images():
    assert load_ruleset().benchmark("resnet50").train_samples == TRAIN_IMAGES


def test_an_unknown_preset_names_the_known_ones():
    with pytest.raises(FourminError) as caught:
        load_preset("resnet50")
    assert caught.value.what == "no preset 'resnet50'"
    assert all(name in caught.value.why for name in PRESETS)
    assert "fourmin presets" in caught.value.next_step
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("name", "nodes", "workers", "images", "shared"),
    [
        ("resnet50-256", 1, 8, 32, 32),
        ("resnet50-8k", 32, 256, 32, 32),
        ("resnet50-32k", 128, 1024, 32, 128),
        ("resnet50-64k", 256, 2048, 32, 128),
        ("alexnet-512", 1, 8, 64, 64),
        ("alexnet-32k", 1, 8, 1024, 1024),
        ("alexnet-64k", 128, 1024, 64, 64),
    ],
)
def test_the_batch_arithmetic_of_each_source(name, nodes, workers, images, shared):
    """Workers, images a worker and pass, and images that share batch statistics."""
    configuration = load_preset(name).resolved(8, keep_workers=False)
    assert (configuration.nodes, configuration.workers) == (nodes, workers)
    assert configuration.local_batch_size == images
    assert configuration.bn_span * configuration.local_batch_size == shared


# What a machine makes of a preset.


@pytest.mark.parametrize("name", ["digits", "fashion-mnist", "tiny-imagenet", "fractals-resnet50"])
def test_a_campaign_on_a_cpu_records_what_it_always_did(name):
    preset = load_preset(name)
    decided = {"device": "cpu", "precision": "bf16", "decoder": "cpu", "step": "eager"}
    expected = preset.to_json() | decided
    resolved = preset.resolved(0, keep_workers=False, cpus=2, cpu_precision="bf16")
    assert resolved.to_json() == expected


def test_the_typical_call_of_the_papers_machine():
    preset = load_preset("resnet50-64k").with_overrides({"nodes": 256})
    for gpus in (0, 4, 8):  # what the node that plans has does not decide for 256
        configuration = preset.resolved(gpus, keep_workers=False, cpus=2)
        assert (configuration.workers, configuration.local_batch_size) == (2048, 32)
        assert (configuration.device, configuration.precision) == ("cuda", "fp16")


@pytest.mark.parametrize(
    ("cpus", "batch", "workers"),
    [(2, 256, 2), (8, 256, 8), (64, 256, 8), (1, 256, 1), (6, 256, 4), (6, 8, 4), (3, 8, 2),
     (12, 7, 7), (5, 7, 1)],
)  # fmt: skip
def test_a_cpu_gets_at_most_its_cores_and_a_number_that_fits(cpus, batch, workers):
    preset = dataclasses.replace(load_preset("resnet50-256"), global_batch_size=batch)
    configuration = preset.resolved(0, keep_workers=False, cpus=cpus)
    assert configuration.procs_per_node == workers
    configuration.check()


@pytest.mark.parametrize("name", ["digits", "fashion-mnist"])
def test_the_small_presets_keep_their_two_workers_on_two_cores(name):
    assert load_preset(name).resolved(0, keep_workers=False, cpus=2).procs_per_node == 2
    assert load_preset(name).resolved(0, keep_workers=False, cpus=64).procs_per_node == 2


def test_accumulation_counts_when_workers_share_the_cores():
    preset = dataclasses.replace(load_preset("alexnet-32k"), global_batch_size=8)
    configuration = preset.resolved(0, keep_workers=False, cpus=8)
    assert (configuration.procs_per_node, configuration.local_batch_size) == (2, 1)
    configuration.check()


def test_a_number_of_workers_that_was_asked_for_is_kept():
    configuration = load_preset("resnet50-256").resolved(0, keep_workers=True, cpus=2)
    assert configuration.procs_per_node == 8
    assert load_preset("resnet50-256").resolved(4, keep_workers=False).procs_per_node == 4


def test_batch_statistics_that_workers_cannot_share_are_refused():
    preset = dataclasses.replace(
        load_preset("resnet50-64k"), nodes=1, procs_per_node=6, global_batch_size=96
    )
    with pytest.raises(FourminError, match="bn_span=4 does not fit 6 workers") as caught:
        with_step(preset.resolved(8, keep_workers=True), "").check()
    assert "1, 2, 3, 6" in caught.value.next_step


@pytest.mark.parametrize(
    ("nodes", "gpus", "settings", "images"),
    [
        (256, 8, {}, 32),
        (128, 8, {"bn_span": 2}, 64),
        (64, 8, {"bn_span": 1}, 128),
        (8, 8, {"bn_span": 1, "gradient_accumulation_steps": 8}, 128),
        (1, 8, {"bn_span": 1, "gradient_accumulation_steps": 64}, 128),
        (1, 4, {"bn_span": 1, "gradient_accumulation_steps": 128}, 128),
    ],
)
def test_the_documented_ways_to_train_batch_64k_on_fewer_gpus(nodes, gpus, settings, images):
    preset = load_preset("resnet50-64k").with_overrides({"nodes": nodes, **settings})
    configuration = with_step(preset.resolved(gpus, keep_workers=False), "")
    configuration.check()
    assert configuration.local_batch_size == images
    assert configuration.local_batch_size * configuration.bn_span == 128
