"""A run that was cut off comes to the same end as one that was not, later."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from processes import PRACTICE, fourmin, running

SEED = ["--seed", "20181", "--runs", "1"]
"""Same seed, same machine: same order, weights, losses and accuracies, to the last bit."""


def result(root: Path) -> dict[str, Any]:
    return json.loads(next(root.glob("*/run-1/result.json")).read_bytes())


def logged(root: Path, key: str) -> dict[int, Any]:
    """The last value of a key for each epoch."""
    lines = next(root.glob("*/run-1/events.log")).read_text().splitlines()
    records = [json.loads(line.removeprefix(":::MLLOG ")) for line in lines]
    return {r["metadata"].get("epoch_num"): r["value"] for r in records if r["key"] == key}


def losses(root: Path) -> dict[int, float]:
    return {epoch: stats["train_loss"] for epoch, stats in logged(root, "tracked_stats").items()}


def assert_same_training(plain: Path, again: Path) -> None:
    one, other = result(plain), result(again)
    for name in ("initial_weights_digest", "data_order_digest", "first_losses", "quality"):
        assert one[name] == other[name], name
    assert [(e["epoch"], e["accuracy"]) for e in one["evaluations"]] == [
        (e["epoch"], e["accuracy"]) for e in other["evaluations"]
    ]
    assert logged(plain, "weights_digest") == logged(again, "weights_digest")
    assert losses(plain) == losses(again)


@pytest.mark.parametrize("precision", ["fp32", pytest.param("bf16", marks=pytest.mark.slow)])
def test_a_killed_worker_changes_the_time_and_nothing_else(tmp_path: Path, precision: str) -> None:
    options = [*PRACTICE, *SEED, "--precision", precision, "--max-steps", "88"]
    plain, again = tmp_path / "plain", tmp_path / "again"
    done = fourmin("run", *options, "--results-dir", str(plain), state=tmp_path / "p")
    assert "checked: valid" in done.stdout, done.stderr
    with running(*options, "--results-dir", str(again), state=tmp_path / "a") as run:
        run.wait_for(lambda e: e.get("key") == "epoch_stop" and e["metadata"]["epoch_num"] == 3)
        worker = run.workers()[1]
        began = time.time()
        os.kill(worker, signal.SIGKILL)
        told = run.wait_for(lambda e: e["event"] == "run-restarting")
        resumed = run.wait_for(lambda e: e.get("key") == "run_restart")
        assert json.loads(run.process.communicate()[0].splitlines()[-1])["valid"] is True
    assert told["why"] == f"worker 1 (process {worker}) died without a word"
    assert (told["restart"], told["epoch"]) == (1, 2)
    assert_same_training(plain, again)
    (restart,) = result(again)["restarts"]
    assert (restart["restart"], restart["epoch"]) == (1, 2)
    # The clock ran through: at least from the kill to the restart, and through epoch 3 again.
    gap = resumed["time_ms"] / 1000 - began
    assert restart["lost_minutes"] * 60 > gap > 0
    assert result(again)["minutes"] * 60 > restart["minutes"] * 60 + 0.1
    assert not list(again.glob("*/run-1/checkpoints"))


@pytest.mark.slow
def test_the_whole_command_killed_late_comes_to_the_same_end(tmp_path: Path) -> None:
    options = [*PRACTICE, *SEED, "--precision", "fp32"]
    plain, again = tmp_path / "plain", tmp_path / "again"
    fourmin("run", *options, "--results-dir", str(plain), state=tmp_path / "p")
    with running(*options, "--results-dir", str(again), state=tmp_path / "a") as run:
        for last in (3, 7):
            run.wait_for(
                lambda e, last=last: (
                    e.get("key") == "epoch_stop" and e["metadata"]["epoch_num"] == last
                )
            )
            if last == 3:
                os.kill(run.workers()[0], signal.SIGKILL)
        campaign = run.campaign
        family = [run.process.pid, run.agent(), *run.workers()]
        for pid in family:
            os.kill(pid, signal.SIGKILL)
    saved = [path.name for path in campaign.glob("run-1/checkpoints/*")]
    assert "epoch-6" in saved
    checked = fourmin("validate", str(campaign), state=tmp_path)
    assert checked.returncode == 0, checked.stdout
    done = fourmin("run", "--resume", str(campaign), "--quiet", state=tmp_path)
    assert done.returncode == 0, done.stderr
    assert_same_training(plain, again)
    assert [(r["restart"], r["epoch"]) for r in result(again)["restarts"]] == [(1, 2), (2, 6)]


@pytest.mark.slow
def test_a_checkpoint_that_cannot_be_read_is_left_behind(tmp_path: Path) -> None:
    with running(*PRACTICE, *SEED, "--results-dir", str(tmp_path), state=tmp_path) as run:
        run.wait_for(lambda e: e.get("key") == "epoch_stop" and e["metadata"]["epoch_num"] == 3)
        campaign = run.campaign
        for pid in [run.process.pid, run.agent(), *run.workers()]:
            os.kill(pid, signal.SIGKILL)
    (campaign / "run-1/checkpoints/epoch-2/.metadata").write_bytes(b"\x80\x04.")
    done = fourmin("run", "--resume", str(campaign), state=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "from the start of training" in done.stderr
    assert [r["epoch"] for r in result(tmp_path)["restarts"]] == [2, 0]
    assert fourmin("validate", str(campaign), state=tmp_path).returncode == 0


@pytest.mark.slow
def test_a_hang_is_found_and_the_run_goes_on(tmp_path: Path) -> None:
    options = [*PRACTICE, *SEED, "--set", "collective_timeout_seconds=3"]
    with running(*options, "--results-dir", str(tmp_path), state=tmp_path) as run:
        run.wait_for_training()
        os.kill(run.workers()[0], signal.SIGSTOP)
        told = run.wait_for(lambda e: e["event"] == "run-restarting")
        assert "worker 1" in told["why"]
        assert json.loads(run.process.communicate()[0].splitlines()[-1])["valid"] is True
    assert result(tmp_path)["status"] == "converged"
    assert result(tmp_path)["restarts"][0]["lost_minutes"] * 60 > 3
