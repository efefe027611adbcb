"""Commands that are interrupted or killed: what is left, and how it goes on."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
from processes import PRACTICE, fourmin, kinds, running, wait_until_gone

ALONE = [*PRACTICE, "--procs-per-node", "1"]
"""A single worker: nothing here is about its peers."""


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)]
)
def test_an_interrupted_run_goes_on_with_its_clock_running(
    tmp_path: Path, number: signal.Signals
) -> None:
    options = [*ALONE, "--runs", "2", "--max-steps", "120", "--results-dir", str(tmp_path)]
    with running(*options, state=tmp_path) as run:
        run.wait_for_training()
        workers = run.workers()
        run.process.send_signal(number)
        code, errors, _ = run.end(timeout=60)
        assert code == 130, errors
        assert "interrupted in run 1" in errors
        wait_until_gone(workers)
        campaign = run.campaign
    again = fourmin("run", "--resume", str(campaign), "--quiet", state=tmp_path)
    assert again.returncode == 0, again.stderr
    summary = json.loads((campaign / "summary.json").read_bytes())
    assert [r["status"] for r in summary["runs"]] == ["not-converged", "not-converged"]
    assert kinds(campaign)[2:6] == ["run-intent", "run-start", "run-restart", "run-result"]
    (restart,) = json.loads((campaign / "run-1/result.json").read_bytes())["restarts"]
    assert summary["runs"][0]["minutes"] > restart["minutes"] >= restart["lost_minutes"] > 0
    assert fourmin("validate", str(campaign), state=tmp_path).returncode == 0


@pytest.mark.slow
def test_everything_killed_in_run_2_loses_nothing_and_resumes_in_run_2(tmp_path: Path) -> None:
    options = [*PRACTICE, "--runs", "3", "--max-steps", "24", "--results-dir", str(tmp_path)]
    with running(*options, state=tmp_path) as run:
        run.wait_for_training(run=2)
        campaign = run.campaign
        family = [run.process.pid, run.agent(), *run.workers()]
        for pid in family:
            os.kill(pid, signal.SIGKILL)
        wait_until_gone(family[1:])
    before = {path: path.read_bytes() for path in campaign.glob("run-1/*") if path.is_file()}
    assert len(before) == 2
    checked = fourmin("validate", str(campaign), "--format", "json", state=tmp_path)
    assert checked.returncode == 0, checked.stdout
    findings = json.loads(checked.stdout)["findings"]
    assert any(f["severity"] == "warning" and "unfinished" in f["name"] for f in findings)

    again = fourmin("run", "--resume", str(campaign), "--quiet", state=tmp_path)
    assert again.returncode == 0, again.stderr
    assert {path: path.read_bytes() for path in before} == before
    summary = json.loads((campaign / "summary.json").read_bytes())
    assert [r["status"] for r in summary["runs"]] == ["not-converged"] * 3
    assert kinds(campaign).count("run-intent") == 3
    assert kinds(campaign).count("run-restart") == 1
    assert fourmin("validate", str(campaign), state=tmp_path).returncode == 0
    closed = fourmin("run", "--resume", str(campaign), state=tmp_path)
    assert closed.returncode == 2
    assert "has ended" in closed.stderr
