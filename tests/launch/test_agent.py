"""The environment in which an agent starts its workers."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from fourmin.launch.agent import start_agent

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
