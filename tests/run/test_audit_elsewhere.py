"""What an audit replays of a run of GPUs on a machine that has none, and how it compares."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from fourmin.campaign.audit import (
    DROPOUT_MODELS,
    LOOSE_TOLERANCE,
    STEPS_ON_A_CPU,
    TOLERANCE,
    compare_losses,
    replayable,
    tolerances,
)
from fourmin.log.keys import LOGGED_STEPS
from fourmin.recipe.configuration import Configuration
from fourmin.recipe.presets import load_preset


def on_gpus(preset: str = "tiny-imagenet", **changes: Any) -> Configuration:
    fields = {
        "device": "cuda", "precision": "fp16", "decoder": "mixed", "step": "fast",
        "gradient_dtype": "fp16", "nodes": 1, "procs_per_node": 1, **changes,
    }  # fmt: skip
    return dataclasses.replace(load_preset(preset), **fields)


def test_a_run_of_the_fast_step_on_gpus_is_replayed_on_the_cpu() -> None:
    claimed = on_gpus(threads=1)
    here = replayable(claimed, gpus=0, cores=6, steps=None)
    assert (here.device, here.precision, here.decoder, here.step) == ("cpu", "fp32", "cpu", "eager")
    assert (here.gradient_dtype, here.threads, here.max_steps) == ("fp32", 6, STEPS_ON_A_CPU)
    # It is one that can run, and the same training.
    assert Configuration.from_json(here.to_json()) == here
    here.check()
    assert here.global_batch_size == claimed.global_batch_size
    on_a_gpu = replayable(claimed, gpus=1, cores=6, steps=None)
    assert (on_a_gpu.device, on_a_gpu.decoder, on_a_gpu.step) == ("cuda", "mixed", "fast")
    assert (on_a_gpu.threads, on_a_gpu.max_steps) == (1, LOGGED_STEPS)


def test_workers_of_many_nodes_share_the_cores_of_one() -> None:
    here = replayable(on_gpus(nodes=2, procs_per_node=4), gpus=2, cores=16, steps=3)
    assert (here.nodes, here.procs_per_node, here.threads, here.max_steps) == (1, 8, 2, 3)


CLAIMED = [5.3, 5.2, 5.1]


@pytest.mark.parametrize(
    ("replayed", "tolerances", "verdict"),
    [
        ([5.3, 5.2, 5.1], (0.0, 0.0), "same"),
        ([5.3, 5.2], (0.0, 0.0), "same"),
        ([5.3, 5.2, 5.1000001], (0.0, 0.0), "different"),
        ([5.301, 5.2, 5.1], (1e-3, 1e-3), "close"),
        ([5.31, 5.2, 5.1], (1e-3, 0.02), "different"),
        ([5.301, 5.25, 5.1], (1e-3, 0.02), "close"),
        ([5.301, 5.25, 5.1], (1e-3, 1e-3), "different"),
        ([5.3, None, 5.1], (1e-3, 0.02), "different"),
    ],
)
def testcompare_losses_are_held_to_their_tolerance(
    replayed: list[float | None], tolerances: tuple[float, float], verdict: str
) -> None:
    assert compare_losses(CLAIMED, replayed, tolerances).verdict == verdict


def test_a_run_that_never_logged_itscompare_losses_is_not_compared() -> None:
    assert compare_losses(None, CLAIMED, (0.0, 0.0)).verdict == "not compared"


@pytest.mark.parametrize(
    ("claimed", "expected"),
    [
        (on_gpus(precision="bf16", gradient_dtype="bf16", decoder="cpu"), (TOLERANCE, TOLERANCE)),
        (on_gpus(decoder="cpu"), (TOLERANCE, LOOSE_TOLERANCE)),
        (on_gpus(decoder="mixed"), (LOOSE_TOLERANCE, LOOSE_TOLERANCE)),
        (on_gpus("alexnet-512", decoder="cpu"), (LOOSE_TOLERANCE, LOOSE_TOLERANCE)),
    ],
)
def test_the_tolerance_is_loose_only_where_the_replay_must_differ(
    claimed: Configuration, expected: tuple[float, float]
) -> None:
    assert tolerances(claimed, replayable(claimed, gpus=0, cores=2, steps=None)) == expected


def test_the_models_with_dropout_are_named() -> None:
    from torch import nn

    from fourmin.training.models import MODEL_NAMES, build_model

    def drops(name: str) -> bool:
        model = build_model(name, num_classes=10, bn_momentum=0.1, bn_epsilon=1e-5)
        return any(isinstance(module, nn.Dropout) for module in model.modules())

    assert tuple(filter(drops, MODEL_NAMES)) == DROPOUT_MODELS
