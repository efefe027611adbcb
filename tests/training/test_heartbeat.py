"""What rank 0 reports of its batches."""

from __future__ import annotations

from typing import Any

import pytest

from fourmin.training import heartbeat


class Heard:
    """A line to the command, and a clock that the test moves."""

    def __init__(self) -> None:
        self.told: list[tuple[str, float] | None] = []
        self.now = 0.0

    def progress(self, doing: str, within: float) -> None:
        self.told.append((doing, within))

    def stopped(self) -> None:
        self.told.append(None)

    def monotonic(self) -> float:
        return self.now


def test_the_next_batch_may_take_two_timeouts_and_thrice_the_longest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    heard: Any = Heard()
    monkeypatch.setattr(heartbeat, "time", heard)
    report = heartbeat.Heartbeat(heard, timeout_seconds=60.0)
    report.took(1.0)
    batches = iter(report.through("ab", "epoch 1"))
    for took in (2.0, 7.0):
        next(batches)
        heard.now += took
    report.stop()
    heard.now += 1000
    assert list(report.through("c", "epoch 2")) == ["c"]
    assert heard.told == [
        ("waiting for the first batch of epoch 1", 123.0),
        ("batch 1 of epoch 1", 123.0),
        ("batch 2 of epoch 1", 126.0),
        None,
        ("waiting for the first batch of epoch 2", 126.0),
        ("batch 1 of epoch 2", 126.0),
    ]


def test_other_ranks_report_nothing() -> None:
    report = heartbeat.Heartbeat(None, timeout_seconds=60.0)
    assert list(report.through([1, 2], "epoch 1")) == [1, 2]
    report.stop()
