from __future__ import annotations

import json
from typing import Any

import pytest

from fourmin.log.reader import read_log
from fourmin.log.timeline import BackwardStep, Timeline


def timeline(*events: tuple[Any, ...]) -> Timeline:
    """A log of (time_ms, key, value, metadata) events, read back."""
    lines = []
    for time_ms, key, *rest in events:
        value = rest[0] if rest else None
        metadata = rest[1] if len(rest) > 1 else {}
        record = {
            "namespace": "",
            "time_ms": time_ms,
            "event_type": "POINT_IN_TIME",
            "key": key,
            "value": value,
            "metadata": metadata,
        }
        lines.append(":::MLLOG " + json.dumps(record) + "\n")
    return Timeline(read_log("".join(lines).encode()))


def epoch(number: float) -> dict[str, float]:
    return {"epoch_num": number}


def test_an_empty_log() -> None:
    empty = timeline()
    assert empty.time_to_train_ms is None
    assert empty.status is None
    assert empty.evaluations == ()
    assert empty.value("seed") is None
    assert empty.count("seed") == 0
    assert empty.values("seed") == ()
    assert empty.first_reaching(0) is None
    assert empty.value("submission_org") is None


def test_times_and_repeats_stay_visible() -> None:
    run = timeline(
        (10, "init_start"), (11, "init_start"), (20, "init_stop"), (25, "init_stop"),
        (30, "run_start"), (40, "run_start"), (90, "run_stop", None, {"status": "aborted"}),
        (95, "run_stop", None, {"status": "success"}),
    )  # fmt: skip
    assert (run.init_start_ms, run.init_stop_ms) == (10, 25)
    assert (run.run_start_ms, run.run_stop_ms, run.time_to_train_ms) == (30, 95, 65)
    assert run.count("run_start") == 2
    assert [r.time_ms for r in run.all("run_start")] == [30, 40]
    assert run.status == "success"


def test_a_stop_before_the_start_gives_a_negative_time() -> None:
    assert timeline((9, "run_stop"), (10, "run_start")).time_to_train_ms == -1


@pytest.mark.parametrize(
    ("value", "metadata", "status"),
    [
        (None, {"status": "success"}, "success"),
        ({"status": "aborted"}, {}, "aborted"),
        ({"success": True}, {}, "success"),
        ({"success": "true"}, {}, "success"),
        ({"success": "false"}, {}, "aborted"),
        ({"success": 1}, {}, "aborted"),
        ({"success": True}, {"status": "aborted"}, "aborted"),
        (None, {}, None),
        (None, {"status": 1}, None),
    ],
)
def test_status(value: object, metadata: object, status: str | None) -> None:
    assert timeline((1, "run_stop", value, metadata)).status == status


def test_evaluations_are_paired_with_their_intervals() -> None:
    run = timeline(
        (1, "eval_start", None, epoch(4)),
        (2, "eval_accuracy", 0.1, {"epoch_num": 4, "samples_count": 7}),
        (3, "eval_stop", None, epoch(4)),
        (4, "eval_start", None, epoch(8)),
        (5, "eval_stop", None, {"epoch_num": 8, "samples_count": 9}),
        (6, "eval_accuracy", 0.2, epoch(8)),
        (7, "eval_accuracy", "NaN", epoch(12)),
        (8, "eval_accuracy", True, epoch(16)),
        (9, "eval_start"),
        (10, "eval_accuracy", 0.3),
        (11, "eval_stop"),
        (12, "eval_start", None, epoch(20)),
    )
    assert [(e.epoch, e.accuracy, e.samples, e.start_ms, e.stop_ms) for e in run.evaluations] == [
        (4, 0.1, 7, 1, 3),
        (8, 0.2, 9, 4, 5),
        (12, None, None, None, None),
        (16, None, None, None, None),
        (None, 0.3, None, 9, 11),
    ]
    assert [(i.epoch, i.stop and i.stop.line) for i in run.eval_intervals] == [
        (4, 3), (8, 5), (None, 11), (20, None),
    ]  # fmt: skip


def test_a_restart_evaluates_an_epoch_again() -> None:
    run = timeline(
        (1, "eval_start", None, epoch(4)),
        (5, "eval_start", None, epoch(4)),
        (6, "eval_accuracy", 0.5, epoch(4)),
        (7, "eval_stop", None, epoch(4)),
    )
    assert run.evaluations[0].start_ms == 5
    assert run.evaluations[0].stop_ms == 7
    assert [interval.stop_ms for interval in run.eval_intervals] == [None, 7]


def test_first_reaching() -> None:
    run = timeline(
        *((n, "eval_accuracy", accuracy, epoch(n))
          for n, accuracy in [(1, 0.7), (3, 0.76), (4, 0.755), (8, 0.759), (12, 0.8)])
    )  # fmt: skip
    reached = run.first_reaching(0.759)
    assert reached is not None
    assert reached.epoch == 3
    assert run.first_reaching(0.76) == reached
    assert run.first_reaching(0.9) is None


def test_epochs_and_blocks() -> None:
    run = timeline(
        (1, "block_start", None, {"first_epoch_num": 1, "epoch_count": 2}),
        (1, "epoch_start", None, epoch(1)),
        (2, "epoch_stop", None, epoch(1)),
        (2, "epoch_start", None, epoch(2)),
        (3, "epoch_stop", None, epoch(2)),
        (3, "block_stop", None, {"first_epoch_num": 1}),
        (4, "epoch_stop", None, epoch(9)),
    )
    assert [interval.epoch for interval in run.epoch_intervals] == [1, 2]
    assert [stop.metadata["epoch_num"] for stop in run.all("epoch_stop")] == [1, 2, 9]
    (block,) = run.block_intervals
    assert (block.epoch, block.epoch_count, block.start_ms, block.stop_ms) == (1, 2, 1, 3)


def test_hyperparameters_and_several_values() -> None:
    run = timeline(
        (1, "global_batch_size", 4096), (1, "global_batch_size", 4096.0),
        (1, "opt_name", "lars"), (1, "opt_name", "sgd"), (1, "opt_name", "lars"),
        (1, "gradient_accumulation_steps", 1), (1, "gradient_accumulation_steps", True),
        (1, "train_samples", 1281167), (1, "seed", 3), (1, "seed", 4), (1, "s_network", "x"),
    )  # fmt: skip
    assert run.hyperparameters == {
        "global_batch_size": 4096, "opt_name": "lars", "gradient_accumulation_steps": 1,
    }  # fmt: skip
    assert run.values("opt_name") == ("lars", "sgd")
    assert run.values("gradient_accumulation_steps") == (1, True)
    assert run.values("global_batch_size") == (4096,)
    assert run.value("train_samples") == 1281167
    assert run.value("eval_samples") is None
    assert run.values("seed") == (3, 4)


def test_clocks() -> None:
    run = timeline(
        (100, "a", None, {"monotonic_ms": 5}), (90, "b"), (95, "c", None, {"monotonic_ms": 6}),
        (95, "d", None, {"monotonic_ms": "x"}),
    )  # fmt: skip
    assert run.backward_steps == (BackwardStep(2, "b", 10),)
    assert [(s.line, s.time_ms, s.monotonic_ms) for s in run.clock_samples] == [
        (1, 100, 5), (3, 95, 6),
    ]  # fmt: skip


def test_submission() -> None:
    run = timeline((1, "submission_org", "A"), (1, "submission_org", "B"))
    assert run.value("submission_org") == "A"
    assert run.values("submission_org") == ("A", "B")
