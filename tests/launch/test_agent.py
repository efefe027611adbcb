"""The environment in which an agent starts its workers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from fourmin.launch.agent import start_agent
from fourmin.launch.job import JOB_VARIABLE

ASK = """
import os, sys
names = "CUDA_DEVICE_MAX_CONNECTIONS", "OMP_NUM_THREADS"
open(sys.argv[1], "w").write(" ".join(os.environ[name] for name in names))
"""


@pytest.mark.parametrize(("theirs", "expected"), [(None, "32"), ("1", "1")])
def test_workers_have_hardware_queues_enough_unless_the_user_says_otherwise(
    theirs: str | None, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUDA_DEVICE_MAX_CONNECTIONS", raising=False)
    if theirs:
        monkeypatch.setenv("CUDA_DEVICE_MAX_CONNECTIONS", theirs)
    said = tmp_path / "said"
    job = SimpleNamespace(
        write=lambda: None,
        path=tmp_path / "job",
        scratch=tmp_path,
        configuration=SimpleNamespace(threads=3),
    )
    agent = start_agent([sys.executable, "-c", ASK, str(said)], job, {})
    while agent.exit_code() is None:
        time.sleep(0.01)
    assert said.read_text().split() == [expected, "3"]


def test_a_number_that_somebody_else_has_by_now_is_spared(tmp_path: Path) -> None:
    job = SimpleNamespace(
        write=lambda: None,
        path=tmp_path / "job",
        scratch=tmp_path,
        configuration=SimpleNamespace(threads=1),
    )
    sleep = [sys.executable, "-c", "import time; time.sleep(60)"]
    agent = start_agent([sys.executable, "-c", ""], job, {})
    while agent.exit_code() is None:
        time.sleep(0.01)
    mine = subprocess.Popen(sleep, env={**os.environ, JOB_VARIABLE: str(job.path)})
    with subprocess.Popen(sleep) as other:
        agent._process.pid = other.pid
        wait_until_started(mine.pid)
        agent.kill([mine.pid, other.pid])
        assert mine.wait(10) == -signal.SIGKILL
        assert other.poll() is None
        other.kill()


def wait_until_started(pid: int) -> None:
    """Its environment is its own only after exec."""
    while b"sleep" not in Path(f"/proc/{pid}/cmdline").read_bytes():
        time.sleep(0.01)
