"""Real campaigns of `digits`, one after another on this machine: no honest one is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from processes import fourmin

CAMPAIGNS = 20


@pytest.mark.slow
@pytest.mark.timeout(3 * 3600)
def test_fresh_campaigns_are_valid_and_nothing_is_unchecked(tmp_path: Path) -> None:
    results = tmp_path / "results"
    for number in range(CAMPAIGNS):
        done = fourmin("run", "--results-dir", str(results), state=tmp_path, timeout=900)
        assert done.returncode == 0, (number, done.stdout, done.stderr)
    checked = fourmin("validate", "--format", "json", str(results), state=tmp_path)
    said = json.loads(checked.stdout)
    assert checked.returncode == 0, said["findings"]
    assert len(said["checked"]) == CAMPAIGNS
    assert {(one["status"], *one["unchecked"]) for one in said["checked"]} == {("valid",)}
