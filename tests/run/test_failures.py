"""Workers that die or hang, and commands that are killed: what is left, how fast, what goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from processes import PRACTICE, fourmin, kinds, running, wait_until_gone

from fourmin.recipe.presets import load_preset

TIMEOUT = load_preset("digits").collective_timeout_seconds
"""Seconds after which a worker gives up on its peers, where nothing else tells it earlier."""


def test_without_restarts_a_worker_that_dies_ends_the_run_with_its_error(tmp_path: Path) -> None:
    options = [*PRACTICE, "--runs", "2", "--max-restarts", "0", "--results-dir", str(tmp_path)]
    with running(*options, state=tmp_path) as run:
        run.wait_for_training()
        workers = run.workers()
        assert len(workers) == 2
        os.kill(workers[1], signal.SIGKILL)
        code, errors, seconds = run.end(timeout=TIMEOUT)
        assert code == 3, errors
        assert seconds < TIMEOUT / 2
        assert "run 1 failed" in errors
        assert f"worker 1 (process {workers[1]}) died" in errors
        assert f"--resume {run.campaign}" in errors
        wait_until_gone(workers)
        result = json.loads((run.campaign / "run-1/result.json").read_bytes())
        assert result["status"] == "aborted"
        assert "died" in result["failure"]
        assert kinds(run.campaign)[-3:] == ["run-intent", "run-start", "run-result"]


def test_a_worker_that_hangs_ends_the_run_within_the_collective_timeout(tmp_path: Path) -> None:
    options = [*PRACTICE, "--runs", "1", "--set", "collective_timeout_seconds=3"]
    options += ["--max-restarts", "0"]
    with running(*options, "--results-dir", str(tmp_path), state=tmp_path) as run:
        run.wait_for_training()
        workers = run.workers()
        os.kill(workers[0], signal.SIGSTOP)
        code, errors, seconds = run.end(timeout=TIMEOUT)
        assert code == 3, errors
        assert 2 < seconds < TIMEOUT / 2
        assert "worker 1" in errors
        wait_until_gone(workers)


@dataclass(frozen=True)
class Killed:
    """A command that was killed in training: its family, and what a second one said before."""

    family: list[int]
    second: subprocess.CompletedProcess[str]


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Killed]:
    root = tmp_path_factory.mktemp("killed")
    with running(*PRACTICE, "--runs", "1", "--results-dir", str(root), state=root) as run:
        run.wait_for_training()
        family = [*run.workers(), run.agent()]
        # However long the second takes, the first has not ended.
        run.process.send_signal(signal.SIGSTOP)
        second = fourmin("run", "--resume", str(run.campaign), state=root)
        run.process.kill()
        yield Killed(family, second)


def test_a_second_command_on_the_same_campaign_is_refused(killed: Killed) -> None:
    assert killed.second.returncode == 2
    assert "is being written by another process" in killed.second.stderr
    assert "Traceback" not in killed.second.stderr


def test_no_worker_outlives_a_command_that_was_killed(killed: Killed) -> None:
    assert len(killed.family) == 3
    wait_until_gone(killed.family)


def test_workers_without_their_agent_end_and_the_run_fails(tmp_path: Path) -> None:
    options = [*PRACTICE, "--runs", "1", "--max-restarts", "0", "--results-dir", str(tmp_path)]
    with running(*options, state=tmp_path) as run:
        run.wait_for_training()
        workers = run.workers()
        os.kill(run.agent(), signal.SIGKILL)
        code, errors, seconds = run.end(timeout=TIMEOUT)
        assert code == 3, errors
        assert seconds < TIMEOUT / 2
        wait_until_gone(workers)
