"""Runs left out, shown twice, mixed, tuned, or judged by another target."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from attack import attack, edited
from campaign_factory import CREATED_MS, make_campaign
from forger import FOLLOWING, LOGS, forge
from tamper import apply, read_ledger, read_records, write_ledger, write_records

RUN_2 = "run-2/events.log"


def record(key: str, nth: int | None = None, file: str = RUN_2, **change: Any) -> dict[str, Any]:
    """An edit of one record of a log, or of all of its key."""
    place = {"file": file, "key": key} | ({} if nth is None else {"nth": nth})
    return place | change


def configured(name: str, to: Any) -> list[dict[str, Any]]:
    return [
        {"file": "campaign.json", "set": f"/configuration/{name}", "to": to},
        {"file": LOGS, "key": "configuration", "set": f"/value/{name}", "to": to},
    ]


@attack("campaign", "RUN001")
def a_slow_run_left_out(folder: Path) -> None:
    ledger = read_ledger(folder / "ledger.jsonl")
    write_ledger(folder / "ledger.jsonl", [r for r in ledger if r["data"].get("run") != 5])
    shutil.rmtree(folder / "run-5")
    forge(folder, [{"file": "campaign.json", "set": "/runs", "to": 4}])


@attack("campaign", "LED002")
def a_slow_run_dropped_and_the_others_moved_up(folder: Path) -> None:
    shutil.rmtree(folder / "run-3")
    ledger = [r for r in read_ledger(folder / "ledger.jsonl") if r["data"].get("run") != 3]
    for run in (4, 5):
        (folder / f"run-{run}").rename(folder / f"run-{run - 1}")
    for line in ledger:
        if line["data"].get("run", 0) > 3:
            line["data"]["run"] -= 1
    write_ledger(folder / "ledger.jsonl", ledger)
    forge(folder)


@attack("campaign", "LED002")
def a_run_killed_after_its_start_and_tried_again(folder: Path) -> None:
    ledger = read_ledger(folder / "ledger.jsonl")
    at = next(i for i, r in enumerate(ledger) if r["kind"] == "run-start" and r["data"]["run"] == 2)
    again = json.loads(json.dumps(ledger[at - 1 : at + 1]))
    for line in (*again, ledger[at + 1]):
        line["data"]["attempt"] = 2
    for line in again:
        line["time_ms"] = ledger[at]["time_ms"]
    write_ledger(folder / "ledger.jsonl", ledger[: at + 1] + again + ledger[at + 1 :])
    forge(folder)


@attack("campaign", "LED002")
def a_result_without_a_start(folder: Path) -> None:
    ledger = read_ledger(folder / "ledger.jsonl")
    write_ledger(
        folder / "ledger.jsonl",
        [r for r in ledger if (r["kind"], r["data"].get("run")) != ("run-start", 3)],
    )
    forge(folder)


@attack("campaign", "RUN004")
def one_run_under_two_numbers(folder: Path) -> None:
    shutil.copyfile(folder / RUN_2, folder / "run-4/events.log")
    for key in ("initial_weights_digest", "data_order_digest"):
        apply(folder, [record(key, file="run-4/events.log", set="/value", to="9" * 64)])
    forge(folder)


@attack("campaign", "RUN004")
def one_learning_curve_in_two_runs(folder: Path) -> None:
    """With times of its own."""
    curve = [r["value"] for r in read_records(folder / RUN_2) if r["key"] == "tracked_stats"]
    records = read_records(folder / "run-4/events.log")
    own = [r for r in records if r["key"] == "tracked_stats"]
    for mine, theirs in zip(own, curve, strict=True):
        mine["value"]["train_loss"] = theirs["train_loss"]
    write_records(folder / "run-4/events.log", records)
    forge(folder)


@attack("empty", "RUN011")
def a_run_picked_from_another_campaign(root: Path) -> None:
    first = make_campaign(root)
    other = make_campaign(root, created_ms=CREATED_MS + 10**6, beacon="ee" * 32)
    shutil.copyfile(other / "run-1/events.log", first / "run-1/events.log")
    forge(first, keep={FOLLOWING, "logs"})


@attack("campaign", "CLK004")
def a_log_that_is_older_than_its_campaign(folder: Path) -> None:
    records = read_records(folder / "run-1/events.log")
    for one in records:
        one["time_ms"] -= 10**6
    write_records(folder / "run-1/events.log", records)
    forge(folder)


edited(
    "a harness changed between runs", "SYS003",
    record("package_digest", file="run-4/events.log", set="/value", to="1" * 64), keep={FOLLOWING},
)  # fmt: skip
edited(
    "mixed settings", "RUN003",
    record("configuration", file="run-5/events.log", set="/value/warmup_epochs", to=1.5),
    keep={FOLLOWING},
)  # fmt: skip
edited(
    "mixed systems", "SYS002",
    record("system", file="run-5/events.log", set="/value/hardware/processor/cpus", to=64),
    keep={FOLLOWING},
)  # fmt: skip
edited("tuned beyond the limits", "HYP002", *configured("momentum", 0.5))
edited("a schedule cut short", "HYP002", *configured("max_steps", 100))
edited(
    "a hidden setting", "HYP003",
    record("lars_opt_momentum", file=LOGS, set="/value", to=0.95), keep={FOLLOWING},
)  # fmt: skip
edited(
    "a setting that was not registered", "HYP001",
    {"file": "campaign.json", "set": "/settings", "to": ["momentum=0.95"]},
)  # fmt: skip
edited(
    "another model", "HYP001", *configured("model", "resnet18"),
)  # fmt: skip
edited(
    "other training data", "DAT001",
    {"file": "campaign.json", "set": "/dataset/train_digest", "to": "2" * 64},
)  # fmt: skip
edited(
    "another validation set", "DAT001",
    {"file": "campaign.json", "set": "/dataset/eval_digest", "to": "2" * 64},
)  # fmt: skip
edited(
    "fewer validation images", "DAT001",
    {"file": "campaign.json", "set": "/dataset/eval_samples", "to": 350},
)  # fmt: skip
edited(
    "fewer images an epoch", "DAT004", record("epoch_stop", set="/metadata/samples_count", to=704)
)
edited(
    "images left out of an evaluation", "EVA002",
    record("eval_accuracy", -1, set="/metadata/samples_count", to=350),
)  # fmt: skip
edited(
    "an evaluation after every epoch", "EVA001",
    *(record(key, 0, set="/metadata/epoch_num", to=1)
      for key in ("eval_start", "eval_accuracy", "eval_stop")),
)  # fmt: skip
edited("an accuracy made up", "EVA002", record("eval_accuracy", -1, set="/value", to=0.999))
edited(
    "success without the target", "EVA003",
    record("eval_accuracy", -1, set="/value", to=0.5),
    record("eval_accuracy", -1, set="/metadata/correct_count", to=180),
)  # fmt: skip
edited(
    "the target reached at an earlier evaluation", "EVA003",
    record("eval_accuracy", -2, set="/value", to=1.0),
    record("eval_accuracy", -2, set="/metadata/correct_count", to=360),
)  # fmt: skip
edited(
    "a run given up because it looked slow", "EVA003",
    *(record(key, -1, delete=True)
      for key in ("eval_start", "eval_accuracy", "eval_stop", "epoch_start", "epoch_stop",
                  "tracked_stats")),
    record("run_stop", set="/metadata/status", to="aborted"),
)  # fmt: skip
edited(
    "a better score in the summary", "RUN008",
    {"file": "summary.json", "set": "/minutes", "to": 0.001}, keep={"summary"},
)  # fmt: skip
edited(
    "a better confidence interval in the summary", "RUN008",
    {"file": "summary.json", "set": "/ci95", "to": [0.001, 0.002]}, keep={"summary"},
)  # fmt: skip
edited(
    "a better result of a run", "LOG004",
    {"file": "run-1/result.json", "set": "/minutes", "to": 0.001}, keep={"results"},
)  # fmt: skip
edited(
    "a run that did not converge called converged in the ledger", "RUN008",
    {"file": "summary.json", "set": "/runs/0/status", "to": "not-converged"}, keep={"summary"},
)  # fmt: skip


@attack("campaign", "LED003")
def a_plan_rewritten_after_the_runs(folder: Path) -> None:
    edit = {"file": "campaign.json", "set": "/settings", "to": ["momentum=0.9"]}
    forge(folder, [edit], keep={"campaign", "seeds"})


@attack("campaign", "SEE001")
def chosen_seeds(folder: Path) -> None:
    seeds = {"file": "ledger.jsonl", "line": 2, "set": "/data/seeds", "to": [11, 12, 13, 14, 15]}
    forge(folder, [seeds], keep={"seeds"})


@attack("campaign", "SEE002")
def a_seed_that_was_not_assigned(folder: Path) -> None:
    forge(folder, [record("seed", set="/value", to=7)], keep={"logs"})


@attack("campaign", "SEE003", "SEE004")
def one_start_for_all_runs(folder: Path) -> None:
    forge(folder, [record("initial_weights_digest", file=LOGS, set="/value", to="9" * 64),
                   record("data_order_digest", file=LOGS, set="/value", to="8" * 64)])  # fmt: skip


@attack("campaign", "LED001")
def a_ledger_line_taken_out(folder: Path) -> None:
    lines = (folder / "ledger.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "ledger.jsonl").write_bytes(b"".join(lines[:5] + lines[6:]))


@attack("campaign", "LED004")
def a_log_edited_and_nothing_else(folder: Path) -> None:
    apply(folder, [record("eval_accuracy", -1, set="/value", to=0.999)])


@attack("campaign", "SCH003")
def a_second_log_beside_the_first(folder: Path) -> None:
    shutil.copyfile(folder / RUN_2, folder / "run-2/events.old.log")


@attack("campaign", "SCH001")
def two_values_under_one_key(folder: Path) -> None:
    path = folder / "run-1/result.json"
    path.write_text(path.read_text().replace("{", '{"minutes": 0.001,', 1))
    forge(folder, keep={"results", "summary"})


@attack("campaign", "SCH004")
def a_result_that_is_a_link(folder: Path) -> None:
    path = folder / "run-1/result.json"
    path.rename(folder.parent / "result.json")
    path.symlink_to(folder.parent / "result.json")


@attack("campaign", "LOG001")
def a_second_record_hidden_in_a_log(folder: Path) -> None:
    path = folder / RUN_2
    path.write_bytes(path.read_bytes() + b'{"key": "run_stop", "time_ms": 1}\n')
    forge(folder, keep={FOLLOWING, "logs", "campaign"})


@attack("empty", "LED008")
def a_failed_campaign_made_anew_after_another_has_seen_it(root: Path) -> None:
    from fourmin.ledger.campaign import Campaign

    failed = make_campaign(root, not_converged=[1, 2])
    seen = Campaign(failed)
    make_campaign(root, created_ms=CREATED_MS + 10**6,
                  earlier=[(seen.digest, "digits", False, seen.head)])  # fmt: skip
    forge(failed, [
        record("eval_accuracy", -1, "run-1/events.log", set="/value", to=1.0),
        record("eval_accuracy", -1, "run-1/events.log", set="/metadata/correct_count", to=360),
        record("run_stop", None, "run-1/events.log", set="/metadata/status", to="success"),
    ])  # fmt: skip
