"""Whole runs that several tests read: each is made once, by the first test that asks for it.

The workers of pytest-xdist share them, through a folder that is theirs together and a lock. Who
wants to damage one takes a copy.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from processes import fourmin


@dataclass(frozen=True)
class FinishedRun:
    """A `fourmin run` that has ended; `results` is its results folder, to be read alone."""

    results: Path
    process: subprocess.CompletedProcess[str]

    @property
    def campaign(self) -> Path:
        """The campaign's folder."""
        (found,) = self.results.glob("*/campaign.json")
        return found.parent

    def run_results(self) -> list[dict[str, Any]]:
        """Each run's result.json, in order."""
        paths = sorted(self.results.glob("*/run-*/result.json"))
        return [json.loads(path.read_bytes()) for path in paths]

    def copied_to(self, results: Path) -> Path:
        """The campaign in another results folder, to be damaged there."""
        return Path(shutil.copytree(self.campaign, results / self.campaign.name))


@pytest.fixture(scope="session")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., FinishedRun]:
    """`finished_run(*options)`: the run with these options, which has ended well."""
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent

    def made(*options: str) -> FinishedRun:
        name = "-".join(options).replace("/", "_").replace("=", "-").replace("--", "")
        root = shared / f"run-{name}"
        root.mkdir(exist_ok=True)
        told = root / "process.json"
        with (root / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not told.exists():
                results = ["--results-dir", str(root / "results")]
                ended = fourmin("run", *options, *results, state=root)
                told.write_text(json.dumps([ended.returncode, ended.stdout, ended.stderr]))
        code, output, errors = json.loads(told.read_text())
        assert code == 0, errors
        assert "checked: valid" in output or json.loads(output.splitlines()[-1])["valid"], output
        return FinishedRun(
            root / "results", subprocess.CompletedProcess(options, code, output, errors)
        )

    return made
