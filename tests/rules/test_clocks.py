"""Clocks that part: slowly, so that no two records that follow each other tell, or in a step."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from campaign_factory import Clock, make_campaign
from tamper import STEPS, read_records, reseal, write_records

from fourmin.base.files import json_bytes
from fourmin.rules.engine import check_campaign
from fourmin.rules.rule import ERROR, Finding

EPOCH_MS = 10_000.0
"""Twelve of them make two minutes: clocks may part by 120 ms."""


def wrong(folder: Path) -> list[Finding]:
    """The errors, and what is said of clocks that part."""
    return [f for f in check_campaign(folder, "") if f.severity == ERROR or f.code == "CLK010"]


def minutes(folder: Path) -> list[float]:
    """By the results, run by run."""
    paths = sorted(folder.glob("run-*/result.json"))
    return [json.loads(path.read_bytes())["minutes"] for path in paths]


@pytest.mark.parametrize(
    ("monotonic_per_wall", "epoch_ms", "codes"),
    [
        (1.02, EPOCH_MS, {"CLK002"}),
        (0.98, EPOCH_MS, {"CLK002"}),
        (1.002, EPOCH_MS, {"CLK010"}),
        (0.998, EPOCH_MS, {"CLK010"}),
        (1.0005, EPOCH_MS, set()),
        (0.9995, EPOCH_MS, set()),
        (1.0005, 100 * EPOCH_MS, set()),
        (0.9995, 100 * EPOCH_MS, set()),
        (1.002, 100 * EPOCH_MS, {"CLK002"}),
        (0.998, 100 * EPOCH_MS, {"CLK002"}),
    ],
)
def test_a_clock_that_runs_faster_than_the_other(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    monotonic_per_wall: float,
    epoch_ms: float,
    codes: set[str],
) -> None:
    """A wall clock that is slowed down shortens a run; NTP may slew it by half a thousandth."""

    def pass_ms(self: Clock, milliseconds: float) -> None:
        self.now += int(milliseconds * 1e6)
        self.since_boot += int(milliseconds * 1e6 * monotonic_per_wall)

    plain = make_campaign(tmp_path / "plain", chance=1, epoch_ms=epoch_ms)
    monkeypatch.setattr(Clock, "pass_ms", pass_ms)
    folder = make_campaign(tmp_path / "parted", chance=1, epoch_ms=epoch_ms)
    found = wrong(folder)
    assert {finding.code for finding in found} == codes
    assert len(found) == (5 if codes else 0), "one for each run"
    # Times are in ms, and one more may be lost by each reading.
    longer = [value * max(1, monotonic_per_wall) for value in minutes(plain)]
    assert minutes(folder) == pytest.approx(longer, abs=2 / 60_000)


@pytest.mark.parametrize("step_ms", [300, 900, 1000, -300, -900, -1000])
@pytest.mark.parametrize("restarts", [[], [[2, 4]]], ids=["", "resumed"])
def test_a_clock_that_is_set_during_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step_ms: int, restarts: list[list[int]]
) -> None:
    """As NTP does on an honest machine: the ledger's clock and the log's jump, nothing else does.

    Forwards the wall clock says more; backwards the monotonic one does, and nothing is gained.
    """
    story: dict[str, Any] = {"chance": 1, "epoch_ms": EPOCH_MS, "restarts": restarts}
    plain = make_campaign(tmp_path / "plain", **story)
    moment = Clock().since_boot + 175 * 10**9  # in run 2's third epoch
    honest = Clock.pass_ms

    def pass_ms(self: Clock, milliseconds: float) -> None:
        before = self.since_boot
        honest(self, milliseconds)
        if before <= moment < self.since_boot:
            self.now += step_ms * 1_000_000

    monkeypatch.setattr(Clock, "pass_ms", pass_ms)
    folder = make_campaign(tmp_path / "set", **story)
    assert [(f.code, f.path) for f in wrong(folder)] == [("CLK010", "run-2/events.log")]
    expected = minutes(plain)
    expected[1] += max(0, step_ms) / 60_000
    assert minutes(folder) == pytest.approx(expected, abs=1e-9)


def edited(folder: Path, shift: dict[str, int], steps: tuple[str, ...] = STEPS) -> list[str]:
    """The codes, with clocks of run 2 shifted from an epoch's end on."""
    path = folder / "run-2/events.log"
    records = read_records(path)
    at = [i for i, record in enumerate(records) if record["key"] == "epoch_stop"][5]
    for record in records[at:]:
        for clock, by in shift.items():
            (record if clock == "time_ms" else record["metadata"])[clock] += by
    write_records(path, records)
    reseal(folder, steps)
    return [f.code for f in wrong(folder)]


@pytest.mark.parametrize(
    ("shift", "codes"),
    [
        # The ledger has the true time: 0.5 s less is found, and less than that gains nothing.
        ({"time_ms": -900}, ["CLK007", "CLK010"]),
        ({"time_ms": -450}, ["CLK010"]),
        ({"time_ms": -1500}, ["CLK002", "CLK007"]),
        ({"monotonic_ms": -900}, ["CLK010"]),
        ({"monotonic_ms": -1500}, ["CLK002"]),
    ],
)
def test_one_clock_made_shorter_afterwards_does_not_shorten_the_run(
    tmp_path: Path, shift: dict[str, int], codes: list[str]
) -> None:
    folder = make_campaign(tmp_path, epoch_ms=EPOCH_MS)
    before = minutes(folder)
    assert sorted(edited(folder, shift)) == codes
    assert minutes(folder) == before


def test_both_clocks_made_shorter_afterwards(tmp_path: Path) -> None:
    folder = make_campaign(tmp_path, epoch_ms=EPOCH_MS)
    assert set(edited(folder, {"time_ms": -900, "monotonic_ms": -900})) == {"CLK006", "CLK007"}


def test_a_result_by_the_wall_clock_alone_is_not_the_logs(tmp_path: Path) -> None:
    """result.json is made anew from the log: what it says must be the longer time."""
    folder = make_campaign(tmp_path, epoch_ms=EPOCH_MS)
    path = folder / "run-2/result.json"
    shorter = json.loads(path.read_bytes())
    shorter["minutes"] -= 450 / 60_000
    edited(folder, {"time_ms": -450})
    path.write_bytes(json_bytes(shorter))
    reseal(folder, ["summary", "ledger"])
    assert {f.code for f in wrong(folder)} == {"CLK010", "LOG004"}
