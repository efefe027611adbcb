"""Everything killed at random moments, again and again: nothing is lost, nothing vanishes."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import psutil
import pytest
from processes import PRACTICE, environment, fourmin

from fourmin.ledger import chain

RUNS = 60


def start(results: Path, campaign: Path | None, state: Path) -> subprocess.Popen[bytes]:
    options = [*PRACTICE, "--runs", str(RUNS), "--max-steps", "2", "--results-dir", str(results)]
    if campaign is not None:
        options = ["--resume", str(campaign)]
    return subprocess.Popen(
        [sys.executable, "-m", "fourmin", "run", "--quiet", *options],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=environment(state),
    )


def kill_everything(process: subprocess.Popen[bytes]) -> None:
    family = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
    for member in family:
        try:
            os.kill(member.pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    process.communicate()
    psutil.wait_procs(family, timeout=10)


def campaign_in(results: Path) -> Path | None:
    found = [path.parent for path in results.glob("*/ledger.jsonl")]
    assert len(found) <= 1
    return found[0] if found else None


def check(campaign: Path, before: bytes, state: Path) -> bytes:
    """The folder validates, and the ledger only grew; returns the ledger."""
    done = fourmin("validate", str(campaign), state=state)
    assert done.returncode == 0, done.stdout
    ledger = (campaign / "ledger.jsonl").read_bytes()
    assert ledger.startswith(before)
    whole = ledger[: ledger.rfind(b"\n") + 1]
    entries, problems = chain.parse(whole)
    assert not problems
    results = Counter(e.data["run"] for e in entries if e.kind == "run-result")
    assert all(count == 1 for count in results.values())
    for entry in entries:
        if entry.kind == "run-result":
            assert (campaign / f"run-{entry.data['run']}" / "events.log").exists()
    return whole


def torture(tmp_path: Path, kills: int) -> None:
    chance = random.Random(os.environ.get("FOURMIN_TEST_SEED", "4"))
    results, ledger = tmp_path / "results", b""
    for _ in range(kills):
        process = start(results, campaign_in(results), tmp_path)
        # From the first import to well into a second run.
        deadline = time.monotonic() + chance.uniform(0.2, 9.0)
        while time.monotonic() < deadline and process.poll() is None:
            time.sleep(0.01)
        assert process.poll() is None, process.communicate()[1]
        kill_everything(process)
        campaign = campaign_in(results)
        if campaign is not None:
            ledger = check(campaign, ledger, tmp_path)
    campaign = campaign_in(results)
    assert campaign is not None
    kinds = Counter(json.loads(line)["kind"] for line in ledger.splitlines())
    assert kinds["run-intent"] >= kinds["run-start"] >= kinds["run-result"]
    assert fourmin("abandon", str(campaign), state=tmp_path).returncode == 0
    assert b"campaign-abandon" in check(campaign, ledger, tmp_path)


def test_three_kills(tmp_path: Path) -> None:
    torture(tmp_path, 3)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_fifty_kills(tmp_path: Path) -> None:
    torture(tmp_path, 50)
