"""A run result by hand: from a log whose every time and count is known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fourmin.log import keys
from fourmin.log.writer import EventLogWriter
from fourmin.results.run_result import RunFacts


def result_of(folder: Path, *ends: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    """Two epochs of 640 images in 2 s each, evaluations of 1 s each, then `ends`, 6 s later."""
    now = [1_800_000_000 * 10**9]

    def clock() -> int:
        return now[0]

    def wait(seconds: float) -> None:
        now[0] += int(seconds * 10**9)

    with EventLogWriter(folder / "events.log", wall_clock=clock, monotonic=clock) as log:
        log.start(keys.INIT_START)
        wait(100)
        log.end(keys.INIT_STOP)
        log.start(keys.RUN_START)
        for epoch, correct in ((1, 9), (2, 7)):
            log.start(keys.EPOCH_START, epoch_num=epoch)
            wait(2)
            log.end(keys.EPOCH_STOP, epoch_num=epoch, samples_count=640)
            log.start(keys.EVAL_START, epoch_num=epoch)
            wait(1)
            log.point(keys.EVAL_ACCURACY, correct / 10, epoch_num=epoch, samples_count=10)
            log.end(keys.EVAL_STOP, epoch_num=epoch)
        wait(6)
        for key, metadata in ends:
            log.point(key, "why", **metadata)
    return RunFacts.read(folder / "events.log").to_json()


ENDED = (keys.RUN_STOP, {"status": keys.SUCCESS})


def test_times_counts_and_the_last_evaluation(tmp_path: Path) -> None:
    result = result_of(tmp_path, ENDED)
    assert result["minutes"] == 12 / 60, "from run_start to run_stop, not from init_start"
    assert result["images_per_second"] == 1280 / 4, "evaluation is not training"
    assert (result["epochs"], result["quality"]) == (2, 0.7), "the last evaluation, not the best"
    assert [(e["epoch"], e["minutes"] * 60) for e in result["evaluations"]] == [(1, 3), (2, 6)]
    assert "restarts" not in result


@pytest.mark.parametrize(
    ("ends", "status"),
    [
        ([ENDED], "converged"),
        ([(keys.RUN_STOP, {"status": keys.ABORTED})], "not-converged"),
        ([(keys.ABORT, {}), (keys.RUN_STOP, {"status": keys.ABORTED})], "aborted"),
        ([(keys.ABORT, {}), ENDED], "aborted"),
        ([ENDED, (keys.ABORT, {})], "aborted"),
        ([], "aborted"),
    ],
)
def test_only_what_ended_of_itself_has_converged_or_not(
    tmp_path: Path, ends: list[Any], status: str
) -> None:
    assert result_of(tmp_path, *ends)["status"] == status
