"""The limits of the closed division as data: each kind, and ResNet-50's as MLPerf has them."""

from __future__ import annotations

import dataclasses
import json

import jsonschema
import pytest

from fourmin.base.errors import FourminError
from fourmin.recipe.presets import load_preset
from fourmin.ruleset import Benchmark, load_ruleset


def limited(**closed: dict) -> Benchmark:
    return dataclasses.replace(load_ruleset().benchmark("resnet50"), closed=closed)


@pytest.mark.parametrize("n", [-8, -2, -1, 0, 1, 5])
def test_a_power_of_two_times_the_number_is_allowed(n):
    benchmark = limited(weight_decay={"power_of_two_multiple_of": 1e-4})
    assert benchmark.closed_violations({"weight_decay": 1e-4 * 2.0**n}) == []


@pytest.mark.parametrize("value", [3e-4, 1.1e-4, 9.9999e-5, 0, -1e-4, 1e400, "1e-4", True, None])
def test_anything_else_is_not(value):
    benchmark = limited(weight_decay={"power_of_two_multiple_of": 1e-4})
    (violation,) = benchmark.closed_violations({"weight_decay": value})
    assert violation == (
        f"weight_decay is {value!r}; the closed division allows 0.0001 times a power of two"
    )


def test_when_a_field_has_a_value():
    benchmark = limited(lars_epsilon={"choices": [0], "when": {"optimizer": "lars"}})
    assert benchmark.closed_violations({"optimizer": "sgd", "lars_epsilon": 1e-8}) == []
    assert benchmark.closed_violations({"optimizer": "lars", "lars_epsilon": 0.0}) == []
    assert benchmark.closed_violations({"optimizer": "lars", "lars_epsilon": 1e-8}) == [
        "lars_epsilon is 1e-08; the closed division allows 0 where optimizer is lars"
    ]
    # Leaving the field out is no way around the limit.
    assert len(benchmark.closed_violations({"lars_epsilon": 1e-8})) == 1


def test_when_a_field_keeps_a_limit_and_several_fields():
    benchmark = limited(
        momentum={
            "choices": [0.9],
            "when": {"global_batch_size": {"maximum": 32767}, "optimizer": {"choices": ["lars"]}},
        }
    )
    small = {"momentum": 0.95, "global_batch_size": 32767, "optimizer": "lars"}
    (violation,) = benchmark.closed_violations(small)
    assert "0.9 where global_batch_size is at most 32767 and optimizer is lars" in violation
    assert benchmark.closed_violations(small | {"global_batch_size": 32768}) == []
    assert benchmark.closed_violations(small | {"optimizer": "sgd"}) == []


def test_a_range_has_both_ends():
    benchmark = limited(momentum={"minimum": 0.8, "maximum": 0.99})
    for allowed in (0.8, 0.99):
        assert benchmark.closed_violations({"momentum": allowed}) == []
    for refused in (0.79, 1, None, "0.9", True, float("nan")):
        assert len(benchmark.closed_violations({"momentum": refused})) == 1


RESNET50_CHANGES = [
    ("resnet50-64k", {"optimizer": "adam"}, "optimizer"),
    ("resnet50-64k", {"model": "resnet50-small"}, "model"),
    ("resnet50-64k", {"lars_epsilon": 1e-9}, "lars_epsilon"),
    ("resnet50-64k", {"lars_eta": 0.01}, "lars_eta"),
    ("resnet50-64k", {"lars_clip": True}, "lars_clip"),
    ("resnet50-64k", {"end_learning_rate": 0.0}, "end_learning_rate"),
    ("resnet50-64k", {"decay_poly_power": 1.0}, "decay_poly_power"),
    ("resnet50-64k", {"learning_rate_decay": "constant"}, "learning_rate_decay"),
    ("resnet50-64k", {"weight_decay": 3e-4}, "weight_decay"),
    ("resnet50-64k", {"exclude_bias_and_bn": False}, "exclude_bias_and_bn"),
    ("resnet50-64k", {"label_smoothing": 0.05}, "label_smoothing"),
    ("resnet50-64k", {"warmup_shape": "quadratic"}, "warmup_shape"),
    ("resnet50-64k", {"image_size": 192}, "image_size"),
    ("resnet50-64k", {"eval_resize": 288}, "eval_resize"),
    ("resnet50-64k", {"augmentation": "none"}, "augmentation"),
    ("resnet50-64k", {"eval_offset": 4}, "eval_offset"),
    ("resnet50-64k", {"global_batch_size": 16384}, "momentum"),
    ("resnet50-8k", {"momentum": 0.95}, "momentum"),
]


@pytest.mark.parametrize(("preset", "changes", "named"), RESNET50_CHANGES)
def test_what_mlperf_does_not_allow_is_named(preset, changes, named):
    configuration = load_preset(preset).to_json() | changes
    (violation,) = load_ruleset().benchmark("resnet50").closed_violations(configuration)
    assert violation.startswith(f"{named} is ")


@pytest.mark.parametrize(
    "changes",
    [
        {"weight_decay": 5e-5},
        {"weight_decay": 2e-4},
        {"momentum": 0.97},
        {"base_learning_rate": 30.0},
        {"label_smoothing": 0.0},
        {"eval_offset": 3},
        # MLPerf's limits on LARS and on the polynomial bind nobody else.
        {"optimizer": "sgd", "lars_epsilon": 1e-8, "lars_eta": 1.0},
        {"optimizer": "sgd", "learning_rate_decay": "step", "end_learning_rate": 0.0},
    ],
)
def test_what_mlperf_allows_passes(changes):
    configuration = load_preset("resnet50-64k").to_json() | changes
    assert load_ruleset().benchmark("resnet50").closed_violations(configuration) == []


@pytest.mark.parametrize("changes", [{"lars_eta": 0.01}, {"image_size": 224}, {"momentum": 0.5}])
def test_alexnets_limits(changes):
    configuration = load_preset("alexnet-32k").to_json() | changes
    assert len(load_ruleset().benchmark("alexnet").closed_violations(configuration)) == 1


def test_the_imagenet_benchmarks():
    resnet50, alexnet = (load_ruleset().benchmark(name) for name in ("resnet50", "alexnet"))
    for benchmark in (resnet50, alexnet):
        assert (benchmark.train_samples, benchmark.eval_samples) == (1_281_167, 50_000)
        assert benchmark.dataset["classes"] == 1000
        assert benchmark.dataset["train_digest"] is benchmark.dataset["eval_digest"] is None
        assert (benchmark.eval_every, benchmark.eval_offsets) == (4, (0, 1, 2, 3))
        assert benchmark.runs == 5
    assert (resnet50.quality_target, alexnet.quality_target) == (0.759, 0.58)


@pytest.mark.parametrize("name", load_ruleset().benchmark_names())
def test_every_benchmark_fits_its_schema_and_its_fields_exist(name):
    ruleset = load_ruleset()
    schema = ruleset.schema("benchmark")
    data = json.loads((ruleset.folder / "benchmarks" / f"{name}.json").read_text())
    jsonschema.Draft202012Validator(schema).validate(data)
    fields = set(load_preset("digits").to_json())
    for field, limit in data["closed"].items():
        assert {field, *limit.get("when", {})} <= fields


@pytest.mark.parametrize(
    "limit",
    [
        {"when": {"optimizer": "lars"}},
        {"choices": [1], "minimum": 0},
        {"choices": [1], "when": {}},
        {"choices": [1], "when": {"optimizer": {"power_of_two_multiple_of": 1}}},
        {"power_of_two_multiple_of": 0},
        {"multiple_of": 2},
    ],
)
def test_the_schema_refuses_limits_that_mean_nothing(limit):
    ruleset = load_ruleset()
    data = json.loads((ruleset.folder / "benchmarks" / "resnet50.json").read_text())
    data["closed"]["momentum"] = limit
    assert not jsonschema.Draft202012Validator(ruleset.schema("benchmark")).is_valid(data)


def test_an_unknown_benchmark_names_the_known_ones():
    with pytest.raises(
        FourminError,
        match="alexnet, digits, fashion-mnist, fractals-resnet50, resnet50, tiny-imagenet",
    ):
        load_ruleset().benchmark("resnet18")
