"""Honest restarts pass every rule; what could be gained by dishonest ones is found."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from campaign_factory import make_campaign
from tamper import STEPS, read_ledger, read_records, reseal, write_records

from fourmin.base.canonical import canonical_bytes, sha256_hex
from fourmin.log.reader import read_log
from fourmin.log.timeline import Timeline
from fourmin.rules.engine import check_campaign
from fourmin.rules.rule import ERROR

Records = list[dict[str, Any]]
KEPT = ("file", "lineno", "monotonic_ms")
"""What the metadata of every record have."""


def errors(folder: Path) -> set[str]:
    return {finding.code for finding in check_campaign(folder, "") if finding.severity == ERROR}


@pytest.mark.parametrize(
    "story",
    [
        {"restarts": [[1, 0]]},
        {"restarts": [[2, 4], [2, 4], [2, 6], [5, 10]]},
        {"restarts": [[2, 8]], "another_boot": True},
        {"restarts": [[3, 2]], "retried": [3]},
        {"restarts": [[3, 2]], "not_converged": [3]},
        {"restarts": [[3, 2]], "practice": True, "configuration": {"max_steps": 100}},
        {"restarts": [[1, 4]], "benchmark": "resnet50", "epochs": 36},
    ],
    ids=str,
)
def test_an_honest_restart_has_no_error(story: dict[str, Any], tmp_path: Path) -> None:
    folder = make_campaign(tmp_path, **story)
    assert errors(folder) == set()
    notes = [f for f in check_campaign(folder, "") if f.code == "RUN012"]
    assert len(notes) == len(story["restarts"])


def test_what_was_trained_again_counts_once_and_its_time_counts(tmp_path: Path) -> None:
    again = make_campaign(tmp_path, restarts=[[2, 4], [2, 4]])
    once = make_campaign(tmp_path)
    restarted, plain = (
        json.loads((folder / "run-2/result.json").read_bytes()) for folder in (again, once)
    )
    assert [e["epoch"] for e in restarted["evaluations"]] == [2, 4, 6, 8, 10, 12]
    assert restarted["epochs"] == plain["epochs"] == 12
    log = read_log(again / "run-2/events.log")
    epochs = [interval.epoch for interval in Timeline(log).epoch_intervals]
    assert epochs == list(range(1, 13))
    assert sum(record.key == "epoch_start" for record in log.records) == 14
    assert restarted["restarts"][0]["lost_minutes"] * 60 == pytest.approx(4.0, abs=0.1)
    # From the end of epoch 4's evaluation, through the first restart and its workers' start.
    assert restarted["restarts"][1]["lost_minutes"] * 60 == pytest.approx(9.0, abs=0.2)
    assert (restarted["minutes"] - plain["minutes"]) * 60 > 9


def staging(like: dict[str, Any], *names: str) -> Records:
    """Records of staging with the clocks of `like`."""
    types = {"staging_start": "INTERVAL_START", "staging_stop": "INTERVAL_END"}
    return [
        {**like, "key": name, "event_type": types[name], "namespace": "", "value": None,
         "metadata": {k: v for k, v in like["metadata"].items() if k in KEPT}}
        for name in names
    ]  # fmt: skip


def test_staging_cut_off_and_made_again_is_honest_and_off_the_clock_it_is_not(
    tmp_path: Path,
) -> None:
    both = ("staging_start", "staging_stop")

    def cut_off(records: Records, at: int) -> Records:
        """Killed while the images were copied; the next start copies them again."""
        start = next(i for i, r in enumerate(records) if r["key"] == "run_start")
        again = [*records[: at + 1], *staging(records[at], *both), *records[at + 1 :]]
        return [*again[: start + 1], *staging(again[start], "staging_start"), *again[at:]]

    def before(records: Records, at: int) -> Records:
        stop = next(i for i, r in enumerate(records) if r["key"] == "init_stop")
        return [*records[: stop + 1], *staging(records[stop], *both), *records[stop + 1 :]]

    assert cheat(tmp_path / "cut", cut_off, restarts=[[2, 0]]) == set()
    assert cheat(tmp_path / "before", before) == {"LOG003"}


def cheat(
    tmp_path: Path,
    change: Callable[[Records, int], Records],
    steps: tuple[str, ...] = STEPS,
    **story: Any,
) -> set[str]:
    """The errors after `change` of run 2's records (the second argument: the restart's place)."""
    folder = make_campaign(tmp_path, **{"restarts": [[2, 4]], **story})
    log = folder / "run-2/events.log"
    records = read_records(log)
    at = next(i for i, record in enumerate(records) if record["key"] == "run_restart")
    write_records(log, change(records, at))
    reseal(folder, steps)
    return errors(folder)


def shifted(records: Records, ms: int, *names: str) -> Records:
    for record in records:
        for name in names:
            holder = record if name == "time_ms" else record["metadata"]
            holder[name] += ms
    return records


def test_the_gap_cannot_be_taken_out(tmp_path: Path) -> None:
    def wall(records: Records, at: int) -> Records:
        return records[:at] + shifted(records[at:], -3900, "time_ms")

    def both(records: Records, at: int) -> Records:
        return records[:at] + shifted(records[at:], -3900, "time_ms", "monotonic_ms")

    assert {"CLK002", "CLK007"} <= cheat(tmp_path / "wall", wall)
    assert "CLK007" in cheat(tmp_path / "both", both)


def test_the_clock_cannot_start_anew(tmp_path: Path) -> None:
    def moved(records: Records, at: int) -> Records:
        start = next(r for r in records if r["key"] == "run_start")
        records.remove(start)
        start["time_ms"] = records[at]["time_ms"]
        records.insert(at, start)
        return records

    def late(records: Records, at: int) -> Records:
        """A log that begins where the restart was, as if nothing had been before."""
        lost = records[at]["time_ms"] + 60_000 - records[30]["time_ms"]
        del records[31 : at + 1]
        return shifted(records, lost, "time_ms", "monotonic_ms")

    assert {"LOG003"} <= cheat(tmp_path / "moved", moved)
    assert {"LED014", "CLK004"} <= cheat(tmp_path / "late", late)


@pytest.mark.parametrize("removed", ["epoch_start", "run_restart", "checkpoint"])
def test_a_record_around_the_restart_cannot_be_taken_out(tmp_path: Path, removed: str) -> None:
    def without(records: Records, at: int) -> Records:
        places = range(at + 1, len(records)) if removed == "epoch_start" else range(at, -1, -1)
        del records[next(i for i in places if records[i]["key"] == removed)]
        return records

    found = cheat(tmp_path, without)
    assert found & {"LOG003", "LOG008"}


def test_epochs_cannot_be_skipped_with_a_forged_checkpoint(tmp_path: Path) -> None:
    def forged(records: Records, at: int) -> Records:
        """The restart claims epoch 6, of which a checkpoint is written into the log."""
        records[at]["value"]["epoch"] = 6
        saved = next(r for r in reversed(records[:at]) if r["key"] == "checkpoint")
        extra = json.loads(json.dumps(saved))
        extra["metadata"]["epoch_num"] = 6
        skipped = [r for r in records[at + 1 :] if r["metadata"].get("epoch_num") not in (5, 6)]
        return [*records[:at], extra, records[at], *skipped]

    assert "LOG008" in cheat(tmp_path, forged)


def test_an_evaluation_that_counts_is_not_taken_again(tmp_path: Path) -> None:
    def again(records: Records, at: int) -> Records:
        """After the restart epoch 4 is trained and evaluated once more."""
        fourth = [r for r in records[:at] if r["metadata"].get("epoch_num") == 4]
        moved = shifted(json.loads(json.dumps(fourth)), 5000, "time_ms", "monotonic_ms")
        later = shifted(records[at + 1 :], 600, "time_ms", "monotonic_ms")
        return [*records[: at + 1], *moved, *later]

    assert "LOG003" in cheat(tmp_path, again)


def test_what_was_logged_before_the_restart_stays(tmp_path: Path) -> None:
    def better(records: Records, at: int) -> Records:
        del records[at - 1]  # the start of the epoch that was cut off
        return records

    steps = tuple(step for step in STEPS if step != "restarts")
    assert "LED014" in cheat(tmp_path, better, steps)


def test_an_outcome_cannot_be_tried_again_by_a_restart(tmp_path: Path) -> None:
    def after_the_end(records: Records, at: int) -> Records:
        stop = next(r for r in records if r["key"] == "run_stop")
        earlier = json.loads(json.dumps(stop))
        earlier["time_ms"] = records[at - 1]["time_ms"]
        earlier["metadata"].update(
            status="aborted", monotonic_ms=records[at - 1]["metadata"]["monotonic_ms"]
        )
        records.insert(at, earlier)
        return records

    assert {"LOG002", "LOG003"} <= cheat(tmp_path, after_the_end)


@pytest.mark.parametrize("torn", [b":::ML", b":::MLLOG {", b"\n"])
def test_a_line_that_the_kill_cut_off_is_no_error_before_a_restart(
    tmp_path: Path, torn: bytes
) -> None:
    folder = make_campaign(tmp_path, restarts=[[2, 4]])
    log = folder / "run-2/events.log"
    lines = log.read_bytes().splitlines(True)
    at = next(i for i, line in enumerate(lines) if b'"run_restart"' in line)
    whole = torn if torn.endswith(b"\n") else torn + b"\n"
    log.write_bytes(b"".join([*lines[:at], whole, *lines[at:]]))
    ledger = read_ledger(folder / "ledger.jsonl")
    data = next(r for r in ledger if r["kind"] == "run-restart")["data"]
    before = b"".join(lines[:at]) + torn
    data.update(events_bytes=len(before), events_sha256=sha256_hex(before))
    (folder / "ledger.jsonl").write_bytes(b"".join(canonical_bytes(r) + b"\n" for r in ledger))
    reseal(folder, ("results", "summary", "ledger"))
    assert errors(folder) == set()


def test_checkpoints_are_part_of_a_campaign_only_while_it_goes_on(tmp_path: Path) -> None:
    under_way = make_campaign(tmp_path / "a", killed_in=2)
    closed = make_campaign(tmp_path / "b")
    for folder in (under_way, closed):
        (folder / "run-2/checkpoints/epoch-4").mkdir(parents=True)
        (folder / "run-2/checkpoints/epoch-4/.metadata").write_bytes(b"anything")
    assert errors(under_way) == set()
    assert errors(closed) == {"SCH003"}
