"""Where the clock of a run went: hand-made times, with shares and seconds worked out by hand."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fourmin.log.reader import read_log
from fourmin.log.timeline import Timeline
from fourmin.results.clock_use import ClockUse, clock_use, mean_rest, outside
from fourmin.results.statistics import known_median, lower_quartile

Event = tuple[int, str] | tuple[int, str, int]


def timeline(*events: Event) -> Timeline:
    """A log of (time in ms, key, epoch) events; `run_restart` goes on after its epoch."""
    lines = []
    for time_ms, key, *epochs in events:
        metadata: dict[str, Any] = {"epoch_num": epochs[0]} if epochs else {}
        value = None
        if key == "run_restart":
            value = {"restart": 1, "epoch": epochs[0]}
        record = {
            "namespace": "fourmin" if key == "run_restart" else "",
            "time_ms": time_ms,
            "event_type": "POINT_IN_TIME",
            "key": key,
            "value": value,
            "metadata": metadata,
        }
        lines.append(f":::MLLOG {json.dumps(record)}\n")
    return Timeline(read_log("".join(lines).encode()))


def pair(what: str, number: int, start: int, stop: int) -> tuple[Event, Event]:
    return (start, f"{what}_start", number), (stop, f"{what}_stop", number)


# Five epochs of 1400, 1000, 1020, 1000, 1100 ms: sorted, the quartile is the second, 1000. Three
# evaluations of 600, 100, 140 ms: sorted 100, 140, 600, the quartile half way to the second, 120.
HONEST: tuple[Event, ...] = (
    (1000, "run_start"),
    *pair("epoch", 1, 3800, 5200),  # 2800 before it
    *pair("eval", 1, 5210, 5810),  # 10
    *pair("epoch", 2, 5850, 6850),  # 40
    *pair("epoch", 3, 6850, 7870),
    *pair("eval", 3, 7880, 7980),  # 10
    *pair("epoch", 4, 8000, 9000),  # 20
    *pair("epoch", 5, 9000, 10_100),
    *pair("eval", 5, 10_110, 10_250),  # 10
    (10_255, "run_stop"),  # 5
)


def test_the_share_and_the_rest_of_an_honest_run() -> None:
    used = clock_use(timeline(*HONEST))
    assert used is not None
    # (5 x 1000 + 3 x 120) / 9255
    assert used.steady_share == pytest.approx(5360 / 9255)
    assert used.rest_seconds == pytest.approx(
        {
            "before the first epoch": 2.8,
            "first epoch": 0.4,
            "first evaluation": 0.48,
            "other epochs": 0.12,
            "other evaluations": 0.0,  # 100 + 140 - 2 x 120
            "between": 0.09,
            "restart": 0.0,
            "end": 0.005,
        }
    )
    assert 5.36 + sum(used.rest_seconds.values()) == pytest.approx(9.255)


def test_no_moment_of_an_honest_run_is_blank() -> None:
    told = [(one.name, one.start_ms, one.stop_ms) for one in outside(timeline(*HONEST))]
    assert told == [
        ("before the first epoch", 1000, 3800),
        ("between", 5200, 5210),
        ("between", 5810, 5850),
        ("between", 7870, 7880),
        ("between", 7980, 8000),
        ("between", 10_100, 10_110),
        ("end", 10_250, 10_255),
    ]


def test_what_was_trained_in_vain_is_part_of_the_restart() -> None:
    run = timeline(
        (0, "run_start"),
        *pair("epoch", 1, 500, 1500),
        *pair("eval", 1, 1500, 1600),
        *pair("epoch", 2, 1600, 2600),  # trained again below
        (5600, "run_restart", 1),
        *pair("epoch", 2, 7600, 8600),
        *pair("eval", 2, 8600, 8700),
        (8700, "run_stop"),
    )
    assert [(one.name, one.start_ms, one.stop_ms) for one in outside(run)] == [
        ("before the first epoch", 0, 500),
        ("restart", 1600, 7600),
    ]
    used = clock_use(run)
    assert used is not None
    assert used.steady_share == pytest.approx((2 * 1000 + 2 * 100) / 8700)
    assert {name: s for name, s in used.rest_seconds.items() if s} == {
        "before the first epoch": 0.5,
        "restart": 6.0,
    }


def test_a_restart_from_the_beginning_leaves_nothing_before_the_first_epoch() -> None:
    run = timeline(
        (0, "run_start"),
        (500, "epoch_start", 1),
        (3000, "run_restart", 0),
        *pair("epoch", 1, 4000, 5000),
        *pair("eval", 1, 5000, 5100),
        (5100, "run_stop"),
    )
    assert [(one.name, one.start_ms, one.stop_ms) for one in outside(run)] == [("restart", 0, 4000)]


def test_a_run_that_ended_in_its_first_epoch_is_told_whole() -> None:
    run = timeline((0, "run_start"), (700, "epoch_start", 1), (900, "run_stop"))
    assert [(one.name, one.start_ms, one.stop_ms) for one in outside(run)] == [
        ("before the first epoch", 0, 900)
    ]
    assert clock_use(run) is None


BLOCKS: tuple[Event, ...] = (
    (0, "run_start"),
    (200, "block_start", 1),
    *pair("epoch", 1, 200, 1200),
    *pair("eval", 1, 1210, 1300),
    (1300, "block_stop", 1),
    (1300, "run_stop"),
)
"""As MLPerf's rounds log it: 10 of 1300 ms lie in the block and outside of what is in it."""


def test_time_in_a_block_is_told_by_the_block() -> None:
    run = timeline(*BLOCKS)
    assert [(one.name, one.start_ms, one.stop_ms) for one in outside(run)] == [
        ("before the first epoch", 0, 200)
    ]
    used = clock_use(run)
    assert used is not None
    assert used.steady_share == pytest.approx(1090 / 1300)
    assert used.rest_seconds["between"] == pytest.approx(0.01)


@pytest.mark.parametrize(
    "events",
    [
        pytest.param((), id="nothing"),
        pytest.param(HONEST[1:], id="no run_start"),
        pytest.param(HONEST[:-1], id="no run_stop"),
        pytest.param(tuple(e for e in HONEST if "eval" not in e[1]), id="no evaluation"),
        pytest.param(tuple(e for e in HONEST if "epoch" not in e[1]), id="no epoch"),
        pytest.param(tuple(e for e in HONEST if e[1:] != ("epoch_stop", 3)), id="an open epoch"),
        pytest.param((*HONEST[:-1], (900, "run_stop")), id="a stop before the start"),
        pytest.param(
            ((0, "run_start"), *pair("epoch", 1, 0, 900), *pair("eval", 1, 700, 1000),
             (1000, "run_stop")), id="an evaluation within an epoch",
        ),
        pytest.param(
            ((0, "run_start"), (0, "block_start", 1), *pair("epoch", 1, 0, 20),
             *pair("eval", 1, 900, 1000), (1000, "block_stop", 1), (1000, "run_stop")),
            id="an epoch logged before the device was done",
        ),
        pytest.param(
            ((0, "run_start"), *pair("epoch", 1, 0, 900), *pair("eval", 1, 900, 900),
             (1000, "run_stop")), id="an evaluation of no time",
        ),
    ],
)  # fmt: skip
def test_events_that_do_not_allow_a_share_give_none(events: tuple[Event, ...]) -> None:
    assert clock_use(timeline(*events)) is None


@pytest.mark.parametrize(
    ("values", "quartile"),
    [([7], 7), ([4, 2], 2.5), ([3, 1, 2], 1.5), ([4, 3, 2, 1], 1.75), ([50, 40, 30, 20, 10], 20)],
)
def test_the_lower_quartile_is_that_of_numpy(values: list[float], quartile: float) -> None:
    # numpy.quantile(values, 0.25) and R's quantile(values, 0.25), whose default is type 7
    assert lower_quartile(values) == quartile


def test_a_median_is_of_what_is_known() -> None:
    assert known_median([]) is known_median([None]) is None
    assert known_median([5, None, 1, 3]) == 3
    assert known_median([4, 1, 2, 9]) == 3


def test_the_rest_of_several_runs_is_their_mean() -> None:
    assert mean_rest([]) == {}
    assert mean_rest([ClockUse(0.5, {"end": 1.0}), ClockUse(0.6, {"end": 2.0})]) == {"end": 1.5}
