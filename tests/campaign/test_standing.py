"""What displays show of a campaign, made from events by hand."""

from __future__ import annotations

from typing import Any

import pytest

from fourmin.campaign.events import (
    CampaignOpened,
    Event,
    RecordLogged,
    RunFinished,
    RunRestarting,
    RunStarting,
)
from fourmin.campaign.standing import RunUnderWay, Standing

OPENED = CampaignOpened("r/c", 5, "digits", False, 2, "cpu", "bf16", 64, 16, 0.98)


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def logged(run: int, key: str, value: Any = None, **metadata: Any) -> RecordLogged:
    return RecordLogged(run, key, value, 1, "POINT_IN_TIME", metadata)


def finished(run: int, epochs: float | None, status: str = "converged") -> RunFinished:
    return RunFinished(run, status, 0.5, epochs, 0.99, None)


def after(*events: Event) -> Standing:
    standing = Standing(Clock())
    for event in (OPENED, *events):
        standing.take(event)
    return standing


def under_way(standing: Standing) -> RunUnderWay:
    assert standing.under_way is not None
    return standing.under_way


def test_before_anything_there_is_nothing() -> None:
    standing = Standing()
    assert (standing.campaign, standing.under_way, standing.finished) == (None, None, {})
    assert (standing.elapsed, standing.seconds_left) == (0, None)


def test_a_run_goes_through_its_phases() -> None:
    standing = after(RunStarting(1, 1, 7))
    assert under_way(standing).phase == "starting workers"
    standing.take(logged(1, "init_start"))
    assert under_way(standing).phase == "initializing"
    standing.take(logged(1, "run_start"))
    assert under_way(standing).phase == "training"
    standing.take(logged(1, "epoch_stop", epoch_num=2))
    standing.take(logged(1, "tracked_stats", {"throughput": 123.5}))
    standing.take(logged(1, "eval_accuracy", 0.75, epoch_num=2))
    run = under_way(standing)
    assert (run.epoch, run.images_per_second, run.accuracy) == (2, 123.5, 0.75)
    standing.take(RunRestarting(1, 1, 1, "it died"))
    assert (run.epoch, run.phase) == (1, "restarting")
    outcome = finished(1, 12)
    standing.take(outcome)
    assert standing.under_way is None
    assert standing.finished == {1: outcome}


def test_time_is_counted_from_the_intent_and_the_pace_from_the_start() -> None:
    clock = Clock()
    standing = Standing(clock)
    for event in (OPENED, RunStarting(1, 1, 7)):
        standing.take(event)
    clock.now += 10
    standing.take(logged(1, "run_start"))
    assert standing.elapsed == 10
    assert standing.seconds_left is None
    clock.now += 6
    standing.take(logged(1, "epoch_stop", epoch_num=3))
    assert standing.elapsed == 16
    assert standing.seconds_left == pytest.approx(2 * (16 - 3))


@pytest.mark.parametrize(
    ("earlier", "epoch", "expected"),
    [
        ([], 3, 16),
        ([finished(1, 12), finished(2, 10)], 3, 12),
        ([finished(1, 12)], 12, 12),
        # It needs more than those before it: no one knows how many.
        ([finished(1, 12)], 13, 16),
        # One that was cut off says nothing of what a run needs.
        ([finished(1, 2, "aborted")], 1, 16),
        ([finished(1, None, "aborted"), finished(2, 10)], 1, 10),
        ([finished(1, 16, "not-converged")], 1, 16),
    ],
)
def test_the_epochs_that_a_run_is_taken_to_need(
    earlier: list[RunFinished], epoch: int, expected: float
) -> None:
    standing = after(*earlier, RunStarting(3, 1, 7), logged(3, "epoch_stop", epoch_num=epoch))
    assert standing.expected_epochs == expected


def test_runs_that_an_earlier_job_finished_stay_when_the_next_one_opens_the_campaign() -> None:
    standing = after(finished(1, 12), OPENED, RunStarting(2, 1, 7))
    assert list(standing.finished) == [1]
    assert standing.expected_epochs == 12


@pytest.mark.parametrize(
    "record",
    [
        logged(1, "epoch_stop", epoch_num="2"),
        logged(1, "tracked_stats", [1]),
        logged(1, "tracked_stats", {"throughput": "fast"}),
        logged(1, "eval_accuracy", {"a": 1}),
        logged(1, "unknown", "x"),
    ],
)
def test_values_that_are_none_change_nothing(record: RecordLogged) -> None:
    standing = after(RunStarting(1, 1, 7))
    before = RunUnderWay(**vars(under_way(standing)))
    standing.take(record)
    assert under_way(standing) == before


def test_events_of_no_run_are_passed_by() -> None:
    standing = after(logged(1, "run_start"), RunRestarting(1, 1, 1, "why"))
    assert standing.under_way is None
