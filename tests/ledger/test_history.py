"""The state machine of a ledger: one order is right, and every step out of it is named."""

from __future__ import annotations

from typing import Any

import pytest

from fourmin.ledger.chain import Entry
from fourmin.ledger.history import History

Step = tuple[str, dict[str, Any]]

OPEN: Step = ("campaign-open", {})
SEEDS: Step = ("seeds-assigned", {"seeds": [5, 6]})
CLOSE: Step = ("campaign-close", {})
ABANDON: Step = ("campaign-abandon", {})


def of_run(kind: str, run: int, attempt: int = 1, **more: Any) -> Step:
    return f"run-{kind}", {"run": run, "attempt": attempt, **more}


def whole(run: int) -> list[Step]:
    return [of_run("intent", run), of_run("start", run), of_run("result", run)]


ONE, TWO = whole(1), whole(2)
RIGHT = [OPEN, SEEDS, *ONE, *TWO, CLOSE]


def contradictions(steps: list[Step], planned: int = 2) -> list[tuple[int, str]]:
    """Line and message of each."""
    entries = [
        Entry(line, line - 1, kind, line, "", data, "")
        for line, (kind, data) in enumerate(steps, start=1)
    ]
    return [(one.line, one.message) for one in History.of(entries, planned).contradictions]


@pytest.mark.parametrize(
    "steps",
    [
        RIGHT,
        [OPEN],
        [OPEN, SEEDS, *ONE, of_run("intent", 2)],
        [OPEN, SEEDS, *ONE, ABANDON],
        [OPEN, SEEDS, of_run("intent", 1), of_run("intent", 1, 2), of_run("start", 1, 2)],
        [OPEN, SEEDS, *ONE[:2], of_run("restart", 1, restart=1), of_run("restart", 1, restart=2),
         ONE[2], *TWO, CLOSE],
    ],
)  # fmt: skip
def test_what_may_happen(steps: list[Step]) -> None:
    assert contradictions(steps) == []


@pytest.mark.parametrize(
    ("steps", "line", "message"),
    [
        ([], 1, "no record"),
        ([SEEDS], 1, "the first record is not campaign-open"),
        ([OPEN, OPEN], 2, "a second campaign-open"),
        ([OPEN, *ONE[:1]], 2, "before the seeds were assigned"),
        ([OPEN, SEEDS, SEEDS], 3, "seeds are assigned once"),
        ([OPEN, ("seeds-assigned", {"seeds": [5]})], 2, "1 seeds for 2 runs"),
        ([OPEN, SEEDS, of_run("intent", 3)], 3, "that the plan does not have"),
        ([OPEN, SEEDS, of_run("intent", 0)], 3, "that the plan does not have"),
        ([OPEN, SEEDS, TWO[0]], 3, "before run 1 has its result"),
        ([OPEN, SEEDS, *ONE[:2], TWO[0]], 5, "before run 1 has its result"),
        ([OPEN, SEEDS, ONE[1]], 3, "without an intent"),
        ([OPEN, SEEDS, ONE[0], of_run("intent", 1)], 4, "is attempt 1, not 2"),
        ([OPEN, SEEDS, ONE[0], of_run("start", 1, 2)], 4, "names attempt 2, not 1"),
        ([OPEN, SEEDS, *ONE[:2], of_run("intent", 1, 2)], 5, "only that attempt may go on"),
        ([OPEN, SEEDS, *ONE[:2], ONE[1]], 5, "which had already started"),
        ([OPEN, SEEDS, ONE[0], ONE[2]], 4, "which never started"),
        ([OPEN, SEEDS, ONE[0], of_run("restart", 1, restart=1)], 4, "which never started"),
        ([OPEN, SEEDS, *ONE[:2], of_run("restart", 1, restart=2)], 5, "is not numbered 1"),
        ([OPEN, SEEDS, *ONE, ONE[2]], 6, "which already has its result"),
        ([OPEN, SEEDS, *ONE, of_run("restart", 1, restart=1)], 6, "which already has its result"),
        ([OPEN, SEEDS, *ONE, CLOSE], 6, "closed without an outcome of run 2"),
        ([OPEN, SEEDS, CLOSE], 3, "closed without an outcome of run 1, 2"),
        ([*RIGHT, ABANDON], 10, "campaign-abandon after the end"),
        ([*RIGHT, TWO[2]], 10, "run-result after the end"),
        ([OPEN, SEEDS, ABANDON, ONE[0]], 4, "run-intent after the end"),
    ],
)
def test_what_cannot_have_happened(steps: list[Step], line: int, message: str) -> None:
    assert (line, True) in [(at, message in told) for at, told in contradictions(steps)]
