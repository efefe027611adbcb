"""Which values go with an algorithm whose workers do not wait for each other."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from processes import PRACTICE, fourmin

from fourmin.base.errors import FourminError
from fourmin.campaign.audit import replayable
from fourmin.recipe.algorithms import ALGORITHMS
from fourmin.recipe.configuration import Configuration
from fourmin.recipe.presets import load_preset
from fourmin.ruleset import load_ruleset


def configured(algorithm: str, **changes: Any) -> Configuration:
    digits = load_preset("digits").resolved(0, keep_workers=True)
    plain = {"optimizer": "sgd", "momentum": 0.0, "division": "open"}
    if algorithm == "sandblaster":
        searched = {"learning_rate_decay": "constant", "warmup_epochs": 0.0}
        plain |= {"precision": "fp32", **searched}
    return replace(digits, algorithm=algorithm, **plain | changes)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_each_goes_with_plain_sgd(algorithm: str) -> None:
    configured(algorithm).check()


@pytest.mark.parametrize(
    ("algorithm", "changes", "what", "better"),
    [
        ("synchronous", {"n_push": 2}, "does not read n_push", "n_push=1"),
        ("hogwild", {"servers": 2}, "does not read servers", "servers=1"),
        ("downpour", {"elastic_rate": 0.5}, "does not read elastic_rate", "elastic_rate=0.9"),
        ("downpour", {"deterministic": True}, "deterministic=True", "deterministic=false"),
        ("downpour", {"device": "cuda"}, "device=cuda", "device=cpu"),
        ("easgd", {"step": "fast"}, "step=fast", "step=eager"),
        ("downpour", {"gradient_density": 0.1}, "gradient_density=0.1", "gradient_density=1.0"),
        ("downpour", {"gradient_dtype": "bf16"}, "gradient_dtype=bf16", "gradient_dtype=fp32"),
        ("downpour", {"bn_span": 2}, "bn_span=2", "bn_span=1"),
        ("hogwild", {"optimizer": "lars"}, "optimizer=lars", "optimizer=sgd"),
        ("hogwild", {"momentum": 0.9}, "momentum=0.9", "momentum=0"),
        ("easgd", {"optimizer": "adagrad"}, "optimizer=adagrad", "optimizer=sgd"),
        ("hogwild", {"nodes": 2, "global_batch_size": 128}, "2 nodes", "nodes=1"),
        ("sandblaster", {"precision": "bf16"}, "precision=bf16", "precision=fp32"),
        ("sandblaster", {"learning_rate_decay": "poly"}, "=poly", "learning_rate_decay=constant"),
        ("sandblaster", {"warmup_epochs": 1.0}, "warmup_epochs=1.0", "warmup_epochs=0.0"),
        ("sandblaster", {"momentum": 0.9}, "momentum=0.9", "momentum=0"),
        ("sandblaster", {"optimizer": "lars"}, "optimizer=lars", "optimizer=sgd"),
        ("easgd", {"lbfgs_pairs": 2}, "does not read lbfgs_pairs", "lbfgs_pairs=20"),
        ("pipeline", {"model": "alexnet", "image_size": 227}, "AlexNet", "model=resnet50"),
        ("pipeline", {"phases": ("2:image_size=32",)}, "phases=", "phases="),
        ("pipeline", {"deterministic": True}, "deterministic=True", "deterministic=false"),
        ("downpour", {"servers": 3}, "3 servers of 2 workers", "servers=2"),
    ],
)
def test_what_does_not_go_together_is_refused(
    algorithm: str, changes: dict[str, Any], what: str, better: str
) -> None:
    with pytest.raises(FourminError) as caught:
        configured(algorithm, **changes).check()
    assert what in caught.value.what
    assert f"--set {better}" in caught.value.next_step


def test_a_worker_takes_whole_batches() -> None:
    assert configured("downpour").local_batch_size == 64
    assert configured("synchronous").local_batch_size == 32
    assert configured("pipeline").local_batch_size == 32


def test_the_closed_division_waits() -> None:
    digits = load_ruleset().benchmark("digits")
    for algorithm in ALGORITHMS:
        found = digits.closed_violations(configured(algorithm).to_json())
        told = any(one.startswith(f"algorithm is {algorithm!r}") for one in found)
        assert told == (algorithm != "synchronous")


def test_its_start_is_replayed_by_one_worker_that_waits_for_nobody() -> None:
    claimed = configured("downpour", n_push=4, servers=2, warm_start_epochs=1)
    here = replayable(claimed, gpus=0, cores=2, steps=3)
    assert here == replace(
        configured("synchronous"), procs_per_node=1, checkpoints=False, max_steps=3
    )
    here.check()


def test_a_trace_needs_ranks_that_train(tmp_path: Path) -> None:
    words = ["run", *PRACTICE, "--profile", "3", "--set", "algorithm=downpour"]
    done = fourmin(*words, state=tmp_path)
    assert done.returncode == 2
    assert "no trace of algorithm=downpour" in done.stderr
