"""A run that was cut off comes to the same end as one that was not, later."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from finished_runs import FinishedRun
from processes import FOUR_EPOCHS, FOUR_EPOCHS_OVER_A_RING, REPEATABLE, fourmin, running

from fourmin.datasets.digits import ensure_digits
from fourmin.datasets.prepare import prepare

STAGED = ("staging_start", "staging_stop")


def result(root: Path) -> dict[str, Any]:
    return json.loads(next(root.glob("*/run-1/result.json")).read_bytes())


def logged(root: Path, key: str) -> dict[int, Any]:
    """The last value of a key for each epoch."""
    lines = next(root.glob("*/run-1/events.log")).read_text().splitlines()
    records = [json.loads(line.removeprefix(":::MLLOG ")) for line in lines]
    return {r["metadata"].get("epoch_num"): r["value"] for r in records if r["key"] == key}


def losses(root: Path) -> dict[int, float]:
    return {epoch: stats["train_loss"] for epoch, stats in logged(root, "tracked_stats").items()}


def staging(root: Path) -> list[str]:
    """Where in the log the images were copied."""
    lines = next(root.glob("*/run-1/events.log")).read_text().splitlines()
    found = [json.loads(line.removeprefix(":::MLLOG "))["key"] for line in lines]
    return [key for key in found if key in (*STAGED, "run_start", "run_restart", "run_stop")]


def digits_in_shards(root: Path) -> Path:
    """The benchmark's images as several shards."""
    prepare([ensure_digits()], root / "shards", shard_bytes=1 << 20, workers=1)
    return root / "shards"


def assert_same_training(plain: Path, again: Path) -> None:
    one, other = result(plain), result(again)
    for name in ("initial_weights_digest", "data_order_digest", "first_losses", "quality"):
        assert one[name] == other[name], name
    assert [(e["epoch"], e["accuracy"]) for e in one["evaluations"]] == [
        (e["epoch"], e["accuracy"]) for e in other["evaluations"]
    ]
    assert logged(plain, "weights_digest") == logged(again, "weights_digest")
    assert losses(plain) == losses(again)


def assert_audited(root: Path, *options: str) -> None:
    """A replay gives weights, order and losses of the run as it was when it first started."""
    (campaign,) = root.glob("practice-*")
    done = fourmin("audit", str(campaign), "--json", *options, state=root)
    assert done.returncode == 0, done.stdout + done.stderr
    verdicts = {one["name"]: one["verdict"] for one in json.loads(done.stdout)["comparisons"]}
    assert verdicts == dict.fromkeys(("initial weights", "data order", "first losses"), "same")


BF16 = [*FOUR_EPOCHS, "--precision", "bf16"]
LAMB = [*FOUR_EPOCHS, "--precision", "fp32"]
for setting in ("optimizer=lamb", "division=open", "base_learning_rate=0.01"):
    LAMB += ["--set", setting]

PHASES = [*FOUR_EPOCHS, "--precision", "fp32", "--set", "division=open"]
PHASES += ["--set", 'phases=["1:global_batch_size=96,image_size=12,eval_resize=14"]']

COMPRESSED = [*FOUR_EPOCHS, "--precision", "fp32"]
for setting in ("optimizer=sgd", "division=open", "base_learning_rate=0.1"):
    COMPRESSED += ["--set", setting]
COMPRESSED += ["--set", "gradient_density=0.01", "--set", "density_warmup_epochs=2"]


@pytest.mark.parametrize(
    ("options", "victim", "staged_shards"),
    [
        pytest.param(FOUR_EPOCHS_OVER_A_RING, "worker", False, marks=pytest.mark.slow),
        (FOUR_EPOCHS_OVER_A_RING, "agent", True),
        pytest.param(BF16, "worker", False, marks=pytest.mark.slow),
        pytest.param(LAMB, "worker", False, marks=pytest.mark.slow),
        pytest.param(PHASES, "worker", False, marks=pytest.mark.slow),
        pytest.param(COMPRESSED, "worker", False, marks=pytest.mark.slow),
    ],
    ids=["worker", "agent, with staged shards", "bf16", "lamb", "phases", "compressed"],
)
def test_what_was_killed_changes_the_time_and_nothing_else(
    tmp_path: Path,
    finished_run: Callable[..., FinishedRun],
    options: list[str],
    victim: str,
    staged_shards: bool,
) -> None:
    """Order, crops, losses and weights: those of a run on the tree that nothing happened to."""
    plain, again, stage = finished_run(*options).results, tmp_path / "again", tmp_path / "stage"
    options = [*options, "--results-dir", str(again)]
    if staged_shards:
        options += ["--data-dir", str(digits_in_shards(tmp_path)), "--stage", str(stage)]
    with running(*options, state=tmp_path / "a") as run:
        run.wait_for(lambda e: e.get("key") == "epoch_stop" and e["metadata"]["epoch_num"] == 3)
        killed = run.workers()[1]
        if victim == "agent":
            # Workers may come to their end in the second that their agent's death leaves them.
            os.kill(killed, signal.SIGSTOP)
            killed = run.agent()
        began = time.time()
        os.kill(killed, signal.SIGKILL)
        told = run.wait_for(lambda e: e["event"] == "run-restarting")
        resumed = run.wait_for(lambda e: e.get("key") == "run_restart")
        assert json.loads(run.process.communicate()[0].splitlines()[-1])["valid"] is True
    if victim == "worker":
        assert told["why"] == f"worker 1 (process {killed}) died without a word"
    assert (told["restart"], told["epoch"]) == (1, 2)
    assert_same_training(plain, again)
    (restart,) = result(again)["restarts"]
    assert (restart["restart"], restart["epoch"]) == (1, 2)
    # The clock ran through: at least from the kill to the restart, and through epoch 3 again.
    gap = resumed["time_ms"] / 1000 - began
    assert restart["lost_minutes"] * 60 > gap > 0
    assert result(again)["minutes"] * 60 > restart["minutes"] * 60 + 0.1
    assert not list(again.glob("*/run-1/checkpoints"))
    if staged_shards:
        assert staging(again) == ["run_start", *STAGED, "run_restart", *STAGED, "run_stop"]
        assert list(stage.iterdir()) == []


@pytest.mark.slow
def test_another_node_stages_anew_and_what_a_kill_left_is_replaced(
    tmp_path: Path, finished_run: Callable[..., FinishedRun]
) -> None:
    """A resumed command has another folder of its node's, or the one with what was left."""
    results, here, elsewhere = tmp_path / "results", tmp_path / "here", tmp_path / "elsewhere"
    data = ["--data-dir", str(digits_in_shards(tmp_path))]
    options = [*FOUR_EPOCHS_OVER_A_RING, "--results-dir", str(results), *data]
    for stage in (here, elsewhere):
        with running(*options, "--stage", str(stage), state=tmp_path) as run:
            run.wait_for(lambda e: e.get("key") == "epoch_stop" and e["metadata"]["epoch_num"] == 3)
            for pid in [run.process.pid, run.agent(), *run.workers()]:
                os.kill(pid, signal.SIGKILL)
            options = ["--resume", str(run.campaign), *data]
    (left,) = here.iterdir()
    for shard in left.glob("*.tar"):
        shard.unlink()
    done = fourmin("run", *options, "--stage", str(here), "--quiet", state=tmp_path)
    assert done.returncode == 0, done.stderr
    assert_same_training(finished_run(*FOUR_EPOCHS_OVER_A_RING).results, results)
    again = ["run_restart", *STAGED]
    assert staging(results) == ["run_start", *STAGED, *again, *again, "run_stop"]
    assert list(here.iterdir()) == []
    assert fourmin("validate", str(results), state=tmp_path).returncode == 0
    assert_audited(results, *data)


@pytest.mark.slow
def test_the_whole_command_killed_late_comes_to_the_same_end(tmp_path: Path) -> None:
    options = [*REPEATABLE, "--precision", "fp32"]
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
    with running(*REPEATABLE, "--results-dir", str(tmp_path), state=tmp_path) as run:
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
    assert_audited(tmp_path)


@pytest.mark.slow
def test_a_hang_is_found_and_the_run_goes_on(tmp_path: Path) -> None:
    options = [*REPEATABLE, "--set", "collective_timeout_seconds=3"]
    with running(*options, "--results-dir", str(tmp_path), state=tmp_path) as run:
        run.wait_for_training()
        os.kill(run.workers()[0], signal.SIGSTOP)
        told = run.wait_for(lambda e: e["event"] == "run-restarting")
        assert "worker 1" in told["why"]
        assert json.loads(run.process.communicate()[0].splitlines()[-1])["valid"] is True
    assert result(tmp_path)["status"] == "converged"
    assert result(tmp_path)["restarts"][0]["lost_minutes"] * 60 > 3


@pytest.mark.slow
def test_a_hang_without_a_collective_is_found_too(tmp_path: Path) -> None:
    """The only worker waits for nobody, so that nobody waits for it."""
    options = [*REPEATABLE, "--procs-per-node", "1"]
    options += ["--set", "collective_timeout_seconds=2", "--results-dir", str(tmp_path)]
    with running(*options, state=tmp_path) as run:
        run.wait_for(lambda e: e.get("key") == "epoch_stop" and e["metadata"]["epoch_num"] == 3)
        os.kill(run.workers()[0], signal.SIGSTOP)
        told = run.wait_for(lambda e: e["event"] == "run-restarting")
        assert told["why"].startswith("no worker has come further for ")
        assert json.loads(run.process.communicate()[0].splitlines()[-1])["valid"] is True
    assert result(tmp_path)["restarts"][0]["epoch"] == 2
    assert result(tmp_path)["restarts"][0]["lost_minutes"] * 60 > 4
