"""Clocks that part slowly: no two records that follow each other tell, the whole run does."""

from __future__ import annotations

from pathlib import Path

import pytest
from campaign_factory import Clock, make_campaign

from fourmin.rules.engine import check_campaign
from fourmin.rules.rule import ERROR


@pytest.mark.parametrize(
    ("monotonic_per_wall", "codes"),
    [(1.02, {"CLK002"}), (0.98, {"CLK002"}), (1.0005, set()), (0.9995, set())],
)
def test_a_clock_that_runs_faster_than_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, monotonic_per_wall: float, codes: set[str]
) -> None:
    """A wall clock that is slowed down shortens a run; NTP may slew it by half a thousandth."""

    def pass_ms(self: Clock, milliseconds: float) -> None:
        self.now += int(milliseconds * 1e6)
        self.since_boot += int(milliseconds * 1e6 * monotonic_per_wall)

    monkeypatch.setattr(Clock, "pass_ms", pass_ms)
    folder = make_campaign(tmp_path, epoch_ms=3000)
    errors = [finding for finding in check_campaign(folder, "") if finding.severity == ERROR]
    assert {finding.code for finding in errors} == codes
    assert len(errors) == (5 if codes else 0), "one for each run"
