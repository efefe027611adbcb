"""Whole campaigns whose workers do not wait for each other: they converge, validate, go on."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import psutil
import pytest
from algorithm_runs import (
    ONE,
    assert_alike,
    ran,
    records,
    report_of,
    settings,
    values,
    verdicts_of_audit,
)
from processes import PRACTICE, running

ADAGRAD = {"optimizer": "adagrad", "base_learning_rate": "0.02"}
PLAIN = {"optimizer": "sgd", "momentum": "0", "base_learning_rate": "0.3"}
ELASTIC = {"optimizer": "sgd", "nesterov": "true", "base_learning_rate": "0.1"}


@pytest.mark.parametrize(
    ("algorithm", "same"), [("downpour", ADAGRAD), ("hogwild", PLAIN)], ids=["downpour", "hogwild"]
)
def test_one_worker_comes_to_what_synchronous_training_comes_to(
    tmp_path: Path, algorithm: str, same: dict[str, str]
) -> None:
    options = [*ONE, "--procs-per-node", "1", "--precision", "fp32", "--max-steps", "44"]
    plain = ran(tmp_path / "plain", *options, *settings(**same))
    other = ran(tmp_path / "other", *options, *settings(algorithm=algorithm, **same))
    assert_alike(plain, other, "initial_weights_digest", "data_order_digest", "eval_accuracy")
    assert values(plain, "staleness") == []
    assert values(other, "staleness")[0]["max"] == 0


def assert_never_audited(root: Path) -> None:
    """Weights and order follow from the seed, the training does not; and a report says so."""
    assert verdicts_of_audit(root) == ["same", "same", "not compared"]
    assert "cannot be replayed" in report_of(root)


@pytest.mark.parametrize(
    ("workers", "fields"),
    [
        ("2", {"algorithm": "downpour", **ADAGRAD}),
        pytest.param(
            "4",
            {"algorithm": "downpour", "servers": "2", "warm_start_epochs": "1", **ADAGRAD},
            marks=pytest.mark.slow,
        ),
        pytest.param("2", {"algorithm": "hogwild", **PLAIN}, marks=pytest.mark.slow),
        pytest.param("2", {"algorithm": "easgd", **ELASTIC}, marks=pytest.mark.slow),
    ],
    ids=["downpour", "four workers, two servers", "hogwild", "easgd"],
)
def test_digits_reaches_its_target(tmp_path: Path, workers: str, fields: dict[str, str]) -> None:
    fields = {"global_batch_size": "16", **fields}
    ran(tmp_path, *ONE, "--procs-per-node", workers, *settings(**fields))
    result = json.loads(next(tmp_path.glob("*/run-1/result.json")).read_bytes())
    assert (result["status"], result["failure"]) == ("converged", None)
    assert all(
        stop["metadata"]["samples_count"] == 1424 for stop in records(tmp_path, "epoch_stop")
    )
    told = values(tmp_path, "staleness")[0]
    assert told["lost_workers"] == told["repeated_steps"] == 0
    assert 0 < told["mean"] <= told["max"]
    assert_never_audited(tmp_path)
    traffic = values(tmp_path, "communication")[0]
    assert set(traffic["algorithms"]) == {fields["algorithm"]}
    assert (traffic["bytes"] > 0) == (fields["algorithm"] != "hogwild")


def downpour(root: Path) -> list[str]:
    options = [*PRACTICE, "--runs", "1", "--seed", "20181", "--results-dir", str(root)]
    return options + settings(algorithm="downpour", global_batch_size="16", **ADAGRAD)


def test_a_worker_that_is_killed_is_not_missed(tmp_path: Path) -> None:
    with running(*downpour(tmp_path), state=tmp_path) as run:
        run.wait_for(lambda e: e.get("key") == "epoch_stop")
        (worker,) = psutil.Process(run.workers()[1]).children()
        assert worker.name() == "fourmin-w1"
        worker.kill()
        assert json.loads(run.process.communicate()[0].splitlines()[-1])["valid"] is True
    result = json.loads(next(tmp_path.glob("*/run-1/result.json")).read_bytes())
    assert result["status"] == "converged"
    assert "restarts" not in result
    assert all(
        stop["metadata"]["samples_count"] == 1424 for stop in records(tmp_path, "epoch_stop")
    )
    assert values(tmp_path, "staleness")[0]["lost_workers"] == 1


def test_a_server_that_is_killed_goes_on_from_a_checkpoint_with_its_clock(tmp_path: Path) -> None:
    with running(*downpour(tmp_path), state=tmp_path) as run:
        run.wait_for(lambda e: e.get("key") == "epoch_stop" and e["metadata"]["epoch_num"] == 3)
        os.kill(run.workers()[0], signal.SIGKILL)
        assert json.loads(run.process.communicate()[0].splitlines()[-1])["valid"] is True
    result = json.loads(next(tmp_path.glob("*/run-1/result.json")).read_bytes())
    assert result["status"] == "converged"
    (restart,) = result["restarts"]
    assert restart["epoch"] % 2 == 0  # evaluations, and checkpoints with them, are every 2 epochs
    assert len(records(tmp_path, "run_start")) == 1
    assert result["minutes"] > restart["minutes"] > 0
