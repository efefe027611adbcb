"""Deterministic runs: the same bits in another process and after a SIGKILL, and kept states."""

from __future__ import annotations

import hashlib
import json
import os
import signal
from pathlib import Path
from typing import Any

from processes import PRACTICE, fourmin, running

from fourmin.campaign.keeping import state_bytes
from fourmin.recipe.configuration import Configuration

DETERMINISTIC = [*PRACTICE, "--seed", "20181", "--runs", "1", "--max-steps", "88",
                 "--set", "deterministic=true"]  # fmt: skip


def states(root: Path) -> dict[int, dict[str, Any]]:
    """What the log tells of each epoch's state; the last word on each."""
    lines = next(root.glob("*/run-1/events.log")).read_text().splitlines()
    records = [json.loads(line.removeprefix(":::MLLOG ")) for line in lines]
    return {r["metadata"]["epoch_num"]: r["value"] for r in records if r["key"] == "state"}


def kept(folder: Path) -> dict[int, bytes]:
    """The files of kept states, by epoch."""
    found = folder.glob("*/run-1/epoch-*.state")
    return {int(path.stem.removeprefix("epoch-")): path.read_bytes() for path in found}


def trainings(files: dict[int, bytes]) -> dict[int, tuple[Any, bytes]]:
    """Progress and elements of each state: all but whose it is."""
    parts = {epoch: data.split(b"\n", 2) for epoch, data in files.items()}
    return {epoch: (json.loads(said)["progress"], rest) for epoch, (_, said, rest) in parts.items()}


def test_bits_are_the_same_in_other_processes_and_after_a_kill(tmp_path: Path) -> None:
    plain, cut = tmp_path / "plain", tmp_path / "cut"
    done = fourmin(
        "run", *DETERMINISTIC, "--results-dir", str(plain / "results"), "--keep-states",
        str(plain / "states"), state=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "checked: valid" in done.stdout
    options = ["--results-dir", str(cut / "results"), "--keep-states", str(cut / "states")]
    with running(*DETERMINISTIC, *options, state=tmp_path / "b") as run:
        run.wait_for(lambda e: e.get("key") == "epoch_stop" and e["metadata"]["epoch_num"] == 3)
        for pid in [run.process.pid, run.agent(), *run.workers()]:
            os.kill(pid, signal.SIGKILL)
        campaign = str(run.campaign)
    again = ["--resume", campaign, "--keep-states", str(cut / "states")]
    resumed = fourmin("run", *again, state=tmp_path / "b")
    assert resumed.returncode == 0, resumed.stderr
    assert "checked: valid" in resumed.stdout

    one, other = kept(plain / "states"), kept(cut / "states")
    assert sorted(one) == sorted(other) == [1, 2, 3, 4]
    assert trainings(one) == trainings(other)
    assert len(set(one.values())) == 4
    first = states(plain / "results")
    elements = {epoch: told["elements_sha256"] for epoch, told in first.items()}
    assert len(set(elements.values())) == 5
    for root, files in ((plain, one), (cut, other)):
        told = states(root / "results")
        assert sorted(told) == [0, 1, 2, 3, 4]
        assert {e: one["elements_sha256"] for e, one in told.items()} == elements
        for epoch, data in files.items():
            assert told[epoch]["sha256"] == hashlib.sha256(data).hexdigest()
            assert len(told[epoch]["step_loss"]) == 8
    # What the room was reckoned by: all but the header and a count for each normalization.
    plan = json.loads(next((plain / "results").glob("*/campaign.json")).read_bytes())
    expected = state_bytes(Configuration.from_json(plan["configuration"]))
    assert all(0 < len(data) - expected < 10_000 for data in one.values())
    assert "states: at most 1 x " in done.stderr


def test_states_of_other_runs_are_not_kept(tmp_path: Path) -> None:
    done = fourmin("run", *PRACTICE, "--keep-states", str(tmp_path / "s"), state=tmp_path)
    assert done.returncode == 2
    assert "--set deterministic=true" in done.stderr
    assert not (tmp_path / "s").exists()
