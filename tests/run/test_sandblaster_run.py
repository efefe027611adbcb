"""Whole runs by Sandblaster: who did which portion makes no difference, and digits is learned."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import psutil
import pytest
from algorithm_runs import ONE, ran, records, settings, values, verdicts_of_audit
from processes import running

from fourmin.training.models import build_model
from fourmin.training.models.init import initialize
from fourmin.training.optim.build import split_parameters

SEARCHED = {
    "algorithm": "sandblaster", "optimizer": "sgd", "momentum": "0", "base_learning_rate": "1",
    "learning_rate_decay": "constant", "warmup_epochs": "0", "precision": "fp32",
}  # fmt: skip
COME_TO = ("step_loss", "weights_digest", "eval_accuracy", "data_order_digest")


def options(root: Path, workers: str = "2", **fields: str) -> list[str]:
    where = ["--procs-per-node", workers, "--results-dir", str(root)]
    return [*ONE, *where, *settings(**SEARCHED, **fields)]


def test_a_worker_that_is_killed_changes_no_bit(tmp_path: Path) -> None:
    fields = {"servers": "2", "max_epochs": "6"}
    plain, other = tmp_path / "plain", tmp_path / "other"
    ran(plain, *options(plain, **fields))
    with running(*options(other, **fields), state=other) as run:
        run.wait_for(lambda e: e.get("key") == "epoch_stop")
        (worker,) = psutil.Process(run.workers()[1]).children()
        worker.kill()
        assert json.loads(run.process.communicate()[0].splitlines()[-1])["valid"] is True
    for key in COME_TO:
        assert values(plain, key) == values(other, key), key
    assert len(values(other, "weights_digest")) == 3
    assert values(other, "staleness")[0]["lost_workers"] == 1
    counts = [one["metadata"]["samples_count"] for one in records(other, "epoch_stop")]
    assert counts == [22 * 64] * 6
    losses = [one["train_loss"] for one in values(plain, "tracked_stats")]
    assert min(losses) < losses[0]
    assert verdicts_of_audit(other) == ["same", "same", "not compared"]


def test_a_run_that_was_cut_off_goes_on_with_the_same_batches(tmp_path: Path) -> None:
    with running(*options(tmp_path, max_epochs="6"), state=tmp_path) as run:
        run.wait_for(lambda e: e.get("key") == "epoch_stop" and e["metadata"]["epoch_num"] == 3)
        os.kill(run.workers()[0], signal.SIGKILL)
        assert json.loads(run.process.communicate()[0].splitlines()[-1])["valid"] is True
    result = json.loads(next(tmp_path.glob("*/run-1/result.json")).read_bytes())
    (restart,) = result["restarts"]
    assert restart["epoch"] % 2 == 0  # checkpoints come with evaluations, every 2 epochs


def test_the_first_loss_is_the_synchronous_one_with_the_penalty(tmp_path: Path) -> None:
    """Of the same batch at the same weights, which are those of the seed."""
    decay, one = 0.1, ["--procs-per-node", "1", "--precision", "fp32", "--max-steps", "22"]
    plain = ran(tmp_path / "plain", *ONE, *one)
    other = tmp_path / "other"
    ran(other, *options(other, "1", weight_decay=str(decay)), "--max-steps", "22")
    model = build_model("resnet8", num_classes=10, bn_momentum=0.1, bn_epsilon=1e-5)
    result = json.loads(next(plain.glob("*/run-1/result.json")).read_bytes())
    config = result["configuration"]
    initialize(model, result["seed"], config["initialization"], config["zero_last_gamma"])
    decayed = split_parameters(model)[0]
    penalty = decay / 2 * sum(float(one.detach().double().square().sum()) for one in decayed)
    found, expected = values(other, "step_loss")[0][0], values(plain, "step_loss")[0][0]
    assert penalty > 1
    assert found == pytest.approx(expected + penalty, rel=1e-6)
    assert values(other, "opt_name") == ["lbfgs"]


@pytest.mark.slow
def test_digits_reaches_its_target(tmp_path: Path) -> None:
    ran(tmp_path, *options(tmp_path, max_epochs="90"))
    assert values(tmp_path, "eval_accuracy")[-1] >= 0.98
    assert max(values(tmp_path, "eval_accuracy")[:3]) < 0.5
