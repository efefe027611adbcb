"""What else runs on the machine is seen, and what this command does is not."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from fourmin.campaign import load
from fourmin.campaign.events import RunFinished, RunStarting
from fourmin.campaign.load import LoadWatch, busy_seconds
from fourmin.results.run_result import CONVERGED

STAT = """cpu  100 0 100 9000 0 0 0 0 0 0
cpu0 300 50 100 9000 70 5 5 40 0 0
cpu1 1000 0 0 0 0 0 0 0 0 0
intr 12345
"""


def test_busy_seconds_are_those_of_the_processors_that_may_be_used() -> None:
    tick = 1 / os.sysconf("SC_CLK_TCK")
    assert busy_seconds(STAT, {0}) == pytest.approx(500 * tick)
    assert busy_seconds(STAT, {0, 1}) == pytest.approx(1500 * tick)
    assert busy_seconds(STAT, {7}) == 0


def story(monkeypatch: pytest.MonkeyPatch, readings: list[tuple[float, float]]) -> list[str]:
    """What is said of a run with (seconds, seconds of others) at its start and its end."""
    told: list[str] = []
    watch = LoadWatch(told.append)
    monkeypatch.setattr(watch, "_processors", {0, 1})
    monkeypatch.setattr(watch, "_now", lambda: readings.pop(0))
    watch.take(RunStarting(3, 1, 7))
    watch.take(RunFinished(3, CONVERGED, 1.0, 12.0, 0.98, None, 1.0))
    return told


def test_a_run_that_others_disturb_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    # Others had 4 of the 2 x 10 seconds; then 1 of them, which is nothing to speak of.
    (said,) = story(monkeypatch, [(100.0, 50.0), (110.0, 54.0)])
    assert "took 20% of the processors in run 3" in said
    assert story(monkeypatch, [(100.0, 50.0), (110.0, 51.0)]) == []


def test_own_work_is_not_that_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    if not load._STAT.is_file():
        pytest.skip("no /proc/stat here")
    watch = LoadWatch(lambda text: None)
    before = watch._now()
    spin = "import time; end = time.process_time() + 0.5\nwhile time.process_time() < end: pass"
    started = time.monotonic()
    subprocess.run([sys.executable, "-c", spin], check=True)
    after = watch._now()
    # Whatever others did meanwhile, the half second of the child is not counted among it.
    most = (time.monotonic() - started) * len(watch._processors) - 0.5
    assert after[1] - before[1] <= most + 0.1
