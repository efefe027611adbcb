"""Workers that die or hang, and commands that are killed: what is left, how fast, what goes on."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
from processes import PRACTICE, kinds, running, wait_until_gone

pytestmark = pytest.mark.alone
"""They bound the time until a command and its workers are gone."""


def test_without_restarts_a_worker_that_dies_ends_the_run_with_its_error(tmp_path: Path) -> None:
    options = [*PRACTICE, "--runs", "2", "--max-restarts", "0", "--results-dir", str(tmp_path)]
    with running(*options, state=tmp_path) as run:
        run.wait_for_training()
        workers = run.workers()
        assert len(workers) == 2
        os.kill(workers[1], signal.SIGKILL)
        code, errors, seconds = run.end(timeout=20)
        assert code == 3, errors
        assert seconds < 5
        assert "run 1 failed" in errors
        assert f"worker 1 (process {workers[1]}) died" in errors
        assert f"--resume {run.campaign}" in errors
        wait_until_gone(workers, 2)
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
        code, errors, seconds = run.end(timeout=30)
        assert code == 3, errors
        assert 2 < seconds < 3 + 5
        assert "worker 1" in errors
        wait_until_gone(workers, 2)


def test_no_worker_outlives_a_command_that_was_killed(tmp_path: Path) -> None:
    with running(*PRACTICE, "--runs", "1", "--results-dir", str(tmp_path), state=tmp_path) as run:
        run.wait_for_training()
        family = [*run.workers(), run.agent()]
        assert len(family) == 3
        run.process.kill()
        wait_until_gone(family, 10)


def test_workers_without_their_agent_end_and_the_run_fails(tmp_path: Path) -> None:
    options = [*PRACTICE, "--runs", "1", "--max-restarts", "0", "--results-dir", str(tmp_path)]
    with running(*options, state=tmp_path) as run:
        run.wait_for_training()
        workers = run.workers()
        os.kill(run.agent(), signal.SIGKILL)
        code, errors, seconds = run.end(timeout=20)
        assert code == 3, errors
        assert seconds < 5
        wait_until_gone(workers, 2)
