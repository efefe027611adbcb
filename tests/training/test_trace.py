"""The trace that `fourmin run --profile` leaves: of which steps, and what is said of it."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from fourmin.training.trace import SKIPPED, Trace


def traced(folder: Path, wanted: int, steps: int) -> tuple[list[str], list[Any]]:
    """What was said of a run of so many steps, and the trace's events."""
    said: list[str] = []
    job: Any = SimpleNamespace(profile=wanted, events_log=folder / "events.log")
    trace = Trace(job, said.append)
    for _ in range(steps):
        with trace.step():
            torch.ones(2, 2) @ torch.ones(2, 2)
    trace.close()
    path = folder / "trace.json.gz"
    read = gzip.decompress(path.read_bytes()) if path.exists() else b'{"traceEvents": []}'
    return said, json.loads(read)["traceEvents"]


@pytest.mark.parametrize(("wanted", "steps", "found"), [(2, 9, 2), (4, SKIPPED + 4, 4), (9, 5, 2)])
def test_it_holds_the_steps_after_the_first(
    tmp_path: Path, wanted: int, steps: int, found: int
) -> None:
    said, events = traced(tmp_path, wanted, steps)
    names = [event["name"] for event in events if event.get("cat") == "user_annotation"]
    assert [name for name in names if name.startswith("step ")] == [
        f"step {SKIPPED + number}" for number in range(1, found + 1)
    ]
    assert sum(event["name"] == "aten::mm" for event in events) == found
    (line,) = said
    assert line.startswith(f"{found} of {wanted} steps traced: {tmp_path / 'trace.json.gz'}; open")


def test_a_run_without_enough_steps_has_none_and_says_so(tmp_path: Path) -> None:
    said, events = traced(tmp_path, 2, SKIPPED)
    assert said == [f"no trace: the run had {SKIPPED} steps, of which {SKIPPED} are left out"]
    assert events == []
