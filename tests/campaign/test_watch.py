"""When a silence of the workers is too long."""

from __future__ import annotations

import pytest

from fourmin.campaign import watch
from fourmin.launch.control import ControlMessage


class Clock:
    now = 100.0

    def monotonic(self) -> float:
        return self.now


def said(within: float | None) -> ControlMessage:
    return ControlMessage("progress", 0, 1, {"doing": "batch 5 of epoch 3", "within": within}, "n1")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(watch, "time", made)
    return made


def looks(silence: watch._Silence, clock: Clock, seconds: float, times: int) -> bool:
    """Whether it is too long after looking so often, with so many seconds between."""
    for _ in range(times):
        clock.now += seconds
        too_long = silence.too_long()
    return too_long


def test_silence_is_too_long_when_more_was_promised(clock: Clock) -> None:
    silence = watch._Silence()
    assert not looks(silence, clock, 0.5, 1000)
    silence.broken_by(said(60.0))
    assert not looks(silence, clock, 0.5, 120)
    silence.broken_by(said(60.0))
    assert not looks(silence, clock, 0.5, 120)
    assert looks(silence, clock, 0.5, 1)
    failure = silence.told()
    assert failure.summary == "no worker has come further for 60 s"
    assert "worker 0 on node n1 was last heard of at batch 5 of epoch 3" in failure.details
    assert not failure.final
    silence.broken_by(said(None))
    assert not looks(silence, clock, 0.5, 1000)


def test_a_command_that_was_stopped_itself_has_not_listened(clock: Clock) -> None:
    silence = watch._Silence()
    silence.broken_by(said(60.0))
    assert not looks(silence, clock, 3600.0, 60)
    assert looks(silence, clock, 3600.0, 1)
