"""What two runs cannot have in common, and which chip a name means."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from campaign_factory import make_campaign

from fourmin.ledger.view import RunView
from fourmin.rules import physics
from fourmin.rules.runs import time_series


def test_a_copy_that_was_moved_in_time_has_the_same_times(tmp_path: Path) -> None:
    folder = make_campaign(tmp_path)
    first, second = ((folder / f"run-{run}/events.log").read_bytes() for run in (1, 2))
    moved = re.sub(rb'"time_ms": (\d+)', lambda m: b'"time_ms": %d' % (int(m[1]) + 7777), first)
    assert moved != first

    def of(events: bytes) -> dict[str, str]:
        return dict(time_series(RunView("run", None, events=events)))

    assert of(moved) == of(first)
    assert not set(of(first).values()) & set(of(second).values())
    assert set(of(first)) == {"times", "first losses", "training losses"}


@pytest.mark.parametrize("order", [1, -1])
def test_the_longest_name_is_the_chip_s(monkeypatch: pytest.MonkeyPatch, order: int) -> None:
    chips = [{"match": "X1", "peak": 1.0}, {"match": "X1 PCIe", "peak": 2.0}][::order]
    limits = {"chips": chips, "accelerator": {"boost": 1.0}}
    monkeypatch.setattr(physics, "limits_of", lambda _: limits)
    found = [
        physics.peak_of("1.0", model)
        for model in ("NVIDIA X1-SXM", "NVIDIA X1 PCIe 80GB", "x1-pcie", "X10 PCIe", "")
    ]
    assert found == [1.0, 2.0, 2.0, None, None]
