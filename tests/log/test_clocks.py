"""The score's clock: the longer of both within a boot, the wall clock between boots."""

from __future__ import annotations

import json
from itertools import groupby, pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fourmin.log.reader import read_log
from fourmin.log.timeline import Timeline

TIMES = st.integers(0, 10**7)
STEPS = st.lists(
    st.tuples(st.sampled_from([None, "a", "b", "?"]), TIMES, st.integers(-(10**6), 10**6)),
    min_size=1, max_size=12,
)  # fmt: skip
"""Of each record after the first: where a restart goes on (None: no restart, ?: it does not say),
by how much the monotonic clock advances, and how much more or less the wall clock."""
Reading = tuple[str, int, int]
"""Boot, wall and monotonic clock (ms)."""


def timeline(*events: tuple[str, Any, Any, dict[str, Any]]) -> Timeline:
    """Of (key, time_ms, monotonic_ms, other metadata); without a clock where it is None."""
    lines = []
    for key, wall, monotonic, metadata in events:
        clock = {} if monotonic is None else {"monotonic_ms": monotonic}
        record = {
            "namespace": "fourmin" if key == "run_restart" else "", "time_ms": wall,
            "event_type": "POINT_IN_TIME", "key": key, "value": None,
            "metadata": {**clock, **metadata},
        }  # fmt: skip
        lines.append(f":::MLLOG {json.dumps(record)}\n")
    return Timeline(read_log("".join(lines).encode()))


def played(steps: list[tuple[str | None, int, int]]) -> tuple[Timeline, list[Reading]]:
    """A log from run_start to run_stop, and what its records say; each boot's clock runs on."""
    clocks = {"a": 5000, "b": 10**9}
    boot, wall = "a", 10**10
    readings = [(boot, wall, clocks[boot])]
    events = [("run_start", wall, clocks[boot], {"boot": boot})]
    for number, (restart, passed, more) in enumerate(steps):
        wall = max(0, wall + passed + more)
        for name in clocks:
            clocks[name] += passed
        key, metadata = "epoch_stop", {}
        if restart is not None:
            boot = f"? {number}" if restart == "?" else restart
            key, metadata = "run_restart", {"boot": None if restart == "?" else restart}
            clocks.setdefault(boot, 77)
        events.append((key, wall, clocks[boot], metadata))
        readings.append((boot, wall, clocks[boot]))
    events.append(("run_stop", wall, clocks[boot], {}))
    readings.append((boot, wall, clocks[boot]))
    return timeline(*events), readings


def parts(readings: list[Reading]) -> list[list[Reading]]:
    """What one boot wrote in one go."""
    return [list(group) for _, group in groupby(readings, key=lambda reading: reading[0])]


@given(STEPS)
def test_the_score_is_below_neither_clock(steps: list[tuple[str | None, int, int]]) -> None:
    run, readings = played(steps)
    score = run.time_to_train_ms
    assert score is not None
    for boot in {reading[0] for reading in readings}:
        monotonic = [reading[2] for reading in readings if reading[0] == boot]
        assert score >= monotonic[-1] - monotonic[0], "also where others ran in between"
    written = parts(readings)
    longer = [max(p[-1][1] - p[0][1], p[-1][2] - p[0][2]) for p in written]
    gaps = [b[0][1] - a[-1][1] for a, b in pairwise(written)]
    assert score >= sum(longer) + sum(max(0, gap) for gap in gaps), "each part counts in full"
    boots = [part[0][0] for part in written]
    if len(boots) == len(set(boots)):
        assert score == sum(longer) + sum(max(0, gap) for gap in gaps), "and nothing else"


@given(STEPS, st.integers(1, 10**5))
def test_setting_a_clock_back_shortens_nothing(
    steps: list[tuple[str | None, int, int]], set_back: int
) -> None:
    """Clocks that agreed until one of them was turned back, within a boot."""
    honest = [(None, passed, 0) for _, passed, _ in steps]
    at = len(steps) // 2
    turned = [(None, p, -set_back if n == at else 0) for n, (_, p, _) in enumerate(honest)]
    took = sum(passed for _, passed, _ in steps)
    assert played(honest)[0].time_to_train_ms == took
    assert played(turned)[0].time_to_train_ms == took
    start, stop = (10**10, 10**10 + took)
    for rate in (0.0, 0.5, 0.999):
        slowed = timeline(
            ("run_start", start, 0, {"boot": "a"}), ("run_stop", stop, round(took * rate), {})
        )
        assert slowed.time_to_train_ms == took, "nor does a slow monotonic clock"


A = {"boot": "a"}
B = {"boot": "b"}


@pytest.mark.parametrize(
    ("events", "score"),
    [
        ([("run_start", 0, 0, A), ("run_stop", 100, 90, {})], 100),
        ([("run_start", 0, 0, A), ("run_stop", 90, 100, {})], 100),
        # Each clock is longer in one half: the whole counts, not the halves.
        ([("run_start", 0, 0, A), ("x", 60, 50, {}), ("run_stop", 100, 100, {})], 100),
        ([("run_start", 0, 0, A), ("run_restart", 60, 50, A), ("run_stop", 100, 100, {})], 100),
        # Another boot: 60 by the monotonic clock, a gap of 10, 40 by the wall clock.
        ([("run_start", 0, 0, A), ("x", 50, 60, {}), ("run_restart", 60, 9, B),
          ("run_stop", 100, 10, {})], 60 + 10 + 40),
        # The same without the boot's name.
        ([("run_start", 0, 0, A), ("x", 50, 60, {}), ("run_restart", 60, 61, {"boot": None}),
          ("run_stop", 100, 62, {})], 60 + 10 + 40),
        # The other machine's wall clock is behind: nothing is given back.
        ([("run_start", 0, 0, A), ("x", 50, 50, {}), ("run_restart", 20, 9, B),
          ("run_stop", 60, 49, {})], 50 + 0 + 40),
        # Back on the first machine, which saw all of it.
        ([("run_start", 0, 0, A), ("x", 50, 50, {}), ("run_restart", 20, 9, B),
          ("run_restart", 60, 500, A), ("run_stop", 70, 510, {})], 510),
        # Before run_start and after run_stop nothing counts.
        ([("init_stop", 0, 0, {}), ("run_start", 50, 70, A), ("run_stop", 60, 80, {}),
          ("y", 90, 999, {})], 10),
        # Two starts and two stops: the first and the last.
        ([("run_start", 0, 0, A), ("run_start", 5, 5, B), ("run_stop", 90, 95, {}),
          ("run_stop", 91, 99, {})], 99),
        # A clock that is missing, or none: the wall clock alone.
        ([("run_start", 0, None, A), ("run_stop", 90, 100, {})], 90),
        ([("run_start", 0, 0, A), ("run_stop", 90, None, {})], 90),
        ([("run_start", 0, 0, A), ("x", 40, None, {}), ("run_stop", 90, 100, {})], 100),
        *(([("run_start", 0, 0, A), ("run_stop", 90, value, {})], 90)
          for value in (float("nan"), float("inf"), 10**400, 1e308, -1, True, "1", [1], {})),
        ([("run_start", -1, 0, A), ("run_stop", 90, 1, {})], None),
        ([("run_start", 9, 0, {"boot": [{}]}), ("run_stop", 90, 1, {})], 81),
        ([("run_stop", 9, 9, {}), ("run_start", 10, 10, A)], -1),
        ([("run_start", 0, 0, A)], None),
    ],
)  # fmt: skip
def test_by_hand(events: list[Any], score: float | None) -> None:
    assert timeline(*events).time_to_train_ms == score
