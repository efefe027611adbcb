"""Clocks set, stopped, started late, and logs that were shortened afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from attack import attack, edited, not_preventable
from attacks_on_runs import RUN_2, record
from campaign_factory import make_campaign
from forger import LOGS, forge, scale
from tamper import read_ledger, read_records, write_ledger, write_records


def _slow(folder: Path, *clocks: str) -> None:
    """Halve the time since run_start by some clocks, in every log."""
    for path in folder.glob(LOGS):
        records = read_records(path)
        start = next(r for r in records if r["key"] == "run_start")
        for one in records[records.index(start) :]:
            for clock in clocks:
                holder, first = one, start
                if clock == "monotonic_ms":
                    holder, first = one["metadata"], start["metadata"]
                holder[clock] = first[clock] + (holder[clock] - first[clock]) // 2
        write_records(path, records)
    forge(folder)


def _shifted(folder: Path, milliseconds: int, keys: Sequence[str] = ()) -> None:
    """Move a whole run's log, or its records of some keys."""
    records = read_records(folder / RUN_2)
    for one in records:
        if not keys or one["key"] in keys:
            one["time_ms"] += milliseconds
    write_records(folder / RUN_2, records)
    forge(folder)


@attack("campaign", "CLK002")
def the_wall_clock_slowed(folder: Path) -> None:
    _slow(folder, "time_ms")


@attack("campaign", "CLK002")
def the_monotonic_clock_slowed(folder: Path) -> None:
    _slow(folder, "monotonic_ms")


@attack("campaign", "CLK002")
def no_monotonic_clock_where_it_counts(folder: Path) -> None:
    ends = ("run_start", "run_stop")
    forge(folder, [record(key, remove="/metadata/monotonic_ms") for key in ends])


@attack("campaign", "CLK002")
def a_monotonic_clock_beyond_all_clocks(folder: Path) -> None:
    forge(folder, [record("run_stop", set="/metadata/monotonic_ms", to=1e308)])


@attack("campaign", "CLK006")
def both_clocks_slowed(folder: Path) -> None:
    _slow(folder, "time_ms", "monotonic_ms")


@attack("campaign", "CLK001")
def the_clock_set_back_in_the_middle(folder: Path) -> None:
    records = read_records(folder / RUN_2)
    for one in records[len(records) // 2 :]:
        one["time_ms"] -= 500
    write_records(folder / RUN_2, records)
    forge(folder)


@attack("campaign", "CLK007")
def logs_scaled_without_the_ledger(folder: Path) -> None:
    scale(folder, 0.5, ledger=False)
    forge(folder)


@attack("campaign", "CLK007")
def one_log_scaled_without_the_ledger(folder: Path) -> None:
    scale(folder, 0.5, logs=[RUN_2], ledger=False)
    forge(folder)


@not_preventable("campaign", "Half a second of a run")
def logs_half_a_second_shorter_than_the_ledger_says(folder: Path) -> None:
    scale(folder, 0.9, ledger=False)
    forge(folder)


@attack("campaign", "PHY001")
def everything_scaled_by_a_thousandth(folder: Path) -> None:
    scale(folder, 0.001)
    forge(folder)


@not_preventable("campaign", "Everything scaled")
def everything_scaled_by_half(folder: Path) -> None:
    scale(folder, 0.5)
    forge(folder)


edited(
    "training before the clock starts", "LOG003",
    record("run_start", after={"key": "epoch_stop", "nth": 0}),
)  # fmt: skip
edited(
    "the clock stopped early", "LOG003",
    record("run_stop", after={"key": "epoch_start", "nth": -1}),
)  # fmt: skip


@attack("campaign", "CLK003")
def work_between_init_stop_and_run_start(folder: Path) -> None:
    records = read_records(folder / RUN_2)
    start = next(i for i, r in enumerate(records) if r["key"] == "run_start")
    for one in records[start:]:
        one["time_ms"] += 5_000
        one["metadata"]["monotonic_ms"] += 5_000
    write_records(folder / RUN_2, records)
    forge(folder)


@attack("campaign", "CLK005")
def an_hour_of_initialization(folder: Path) -> None:
    records = read_records(folder / RUN_2)
    begun = next(i for i, r in enumerate(records) if r["key"] == "init_start")
    for one in records[: begun + 1]:
        one["time_ms"] -= 3_600_000
        one["metadata"]["monotonic_ms"] -= 3_600_000
    write_records(folder / RUN_2, records)
    forge(folder)


@attack("campaign", "CLK004")
def a_run_that_ends_after_its_result(folder: Path) -> None:
    _shifted(folder, 20_000)


@attack("campaign", "LED007")
def a_ledger_whose_times_run_backwards(folder: Path) -> None:
    lines = read_ledger(folder / "ledger.jsonl")
    lines[3]["time_ms"] -= 3_600_000
    write_ledger(folder / "ledger.jsonl", lines)
    forge(folder)


def _moved(folder: Path, milliseconds: int, but: Sequence[str] = ()) -> None:
    """Plan, ledger and logs at another time; without what `but` names."""
    import json

    from fourmin.base.files import json_bytes

    if "plan" not in but:
        plan = json.loads((folder / "campaign.json").read_bytes())
        plan["created_ms"] += milliseconds
        (folder / "campaign.json").write_bytes(json_bytes(plan))
    lines = read_ledger(folder / "ledger.jsonl")
    for line in lines if "ledger" not in but else []:
        line["time_ms"] += milliseconds
        if "run_stop_ms" in line["data"]:
            line["data"]["run_stop_ms"] += milliseconds
    write_ledger(folder / "ledger.jsonl", lines)
    for path in folder.glob(LOGS) if "logs" not in but else []:
        records = read_records(path)
        for one in records:
            one["time_ms"] += milliseconds
        write_records(path, records)
    forge(folder)


CENTURY_MS = 100 * 365 * 86_400_000


@attack("campaign", "CLK008")
def a_campaign_in_the_future(folder: Path) -> None:
    _moved(folder, CENTURY_MS)


@attack("campaign", "CLK004")
def logs_older_than_their_plan(folder: Path) -> None:
    _moved(folder, -30 * 86_400_000, but=["plan", "ledger"])


@attack("campaign", "LED007")
def a_ledger_older_than_its_plan(folder: Path) -> None:
    _moved(folder, -30 * 86_400_000, but=["plan"])


def _restarted(root: Path, **story: Any) -> Path:
    return make_campaign(root, restarts=[(2, 4)], **story)


@attack("empty", "LED014")
def a_restart_that_no_log_shows(root: Path) -> None:
    folder = _restarted(root)
    forge(folder, [record("run_restart", delete=True)])


@attack("empty", "LED014")
def a_restart_that_no_ledger_shows(root: Path) -> None:
    folder = _restarted(root)
    lines = read_ledger(folder / "ledger.jsonl")
    kept = [line for line in lines if line["kind"] != "run-restart"]
    write_ledger(folder / "ledger.jsonl", kept)
    forge(folder)


@attack("empty", "LOG008")
def a_restart_from_weights_of_elsewhere(root: Path) -> None:
    folder = _restarted(root)
    forge(folder, [record("run_restart", set="/value/epoch", to=6)])


@attack("empty", "LOG008")
def a_checkpoint_that_was_never_evaluated(root: Path) -> None:
    folder = _restarted(root)
    forge(folder, [record("checkpoint", 0, set="/metadata/epoch_num", to=3)])


def _without_the_lost_time(root: Path, boot: dict[str, Any], **story: Any) -> None:
    """Run 2 without the time that its restart cost; the restart says this of its boot."""
    folder = _restarted(root, **story)
    records = read_records(folder / RUN_2)
    at = next(i for i, r in enumerate(records) if r["key"] == "run_restart")
    del records[at]["metadata"]["boot"]
    records[at]["metadata"] |= boot
    for one in records[at:]:
        one["time_ms"] -= 3_500
        one["metadata"]["monotonic_ms"] -= 3_500
    write_records(folder / RUN_2, records)
    forge(folder)


@attack("empty", "CLK007")
def time_lost_at_a_restart_taken_out(root: Path) -> None:
    _without_the_lost_time(root, {"boot": "0" * 16})


@attack("empty", "CLK007")
def time_lost_at_a_restart_that_claims_another_boot_taken_out(root: Path) -> None:
    _without_the_lost_time(root, {"boot": "e" * 16})


@attack("empty", "CLK007")
def time_lost_at_a_restart_that_knows_no_boot_taken_out(root: Path) -> None:
    _without_the_lost_time(root, {"boot": None})


@attack("empty", "LOG009")
def a_restart_that_does_not_speak_of_its_boot(root: Path) -> None:
    folder = _restarted(root)
    forge(folder, [record("run_restart", remove="/metadata/boot")])


@attack("campaign", "LED014", "CLK007")
def another_boot_made_up_where_the_clock_was_set_back(folder: Path) -> None:
    """A restart that never was, so that two monotonic clocks need not agree."""
    records = read_records(folder / RUN_2)
    at = [i for i, r in enumerate(records) if r["key"] == "eval_stop"][1] + 1
    before = records[at - 1]
    for one in records[at:]:
        one["time_ms"] -= 900
        one["metadata"]["monotonic_ms"] += 10**9
    restart = {**before, "key": "run_restart", "namespace": "fourmin",
               "event_type": "POINT_IN_TIME", "value": {"restart": 1, "epoch": 4}}  # fmt: skip
    restart["metadata"] = {
        **{name: before["metadata"][name] for name in ("file", "lineno")},
        "monotonic_ms": 10**9,
        "boot": "e" * 16,
    }
    write_records(folder / RUN_2, [*records[:at], restart, *records[at:]])
    forge(folder)
