"""Each cheat that the rules are for, carried out on a whole campaign as an attacker would.

Whatever he can recompute is recomputed: digests, seeds, results, summary, hashes and chain. What
no file can give away is told in docs/security.md, and a test here shows it passing.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from campaign_factory import CREATED_MS, SYSTEM, make_campaign
from tamper import STEPS, apply, read_ledger, read_records, reseal, write_records

from fourmin.base.canonical import canonical_bytes
from fourmin.ledger.campaign import Campaign
from fourmin.ledger.known import KnownCampaign
from fourmin.rules.engine import check
from fourmin.rules.rule import ERROR

ALL_LOGS = "run-*/events.log"


def _errors(*folders: Path) -> set[str]:
    return {f.code for f in check(folders, waivers=()).findings if f.severity == ERROR}


def _edit(edits: Sequence[dict[str, Any]]) -> Callable[[Path], None]:
    def cheat(folder: Path) -> None:
        apply(folder, edits)
        reseal(folder, STEPS)

    return cheat


def _shorten(folder: Path, factor: float, keys: Sequence[str]) -> None:
    """Shrink the time since run_start, by the clocks named, in every log."""
    for path in folder.glob(ALL_LOGS):
        records = read_records(path)
        start = next(r for r in records if r["key"] == "run_start")
        for record in records[records.index(start) :]:
            for key in keys:
                holder = record["metadata"] if key == "monotonic_ms" else record
                zero = (start["metadata"] if key == "monotonic_ms" else start)[key]
                holder[key] = zero + int((holder[key] - zero) * factor)
        write_records(path, records)
    reseal(folder)


def _skip_a_slow_run(folder: Path) -> None:
    ledger = [r for r in read_ledger(folder / "ledger.jsonl") if r["data"].get("run") != 5]
    _write_ledger(folder, ledger)
    shutil.rmtree(folder / "run-5")
    apply(folder, [{"file": "campaign.json", "set": "/runs", "to": 4}])
    reseal(folder)


def _keep_the_fastest_of_six(folder: Path) -> None:
    """Drop run 3, and move the later ones up."""
    shutil.rmtree(folder / "run-3")
    for run in (4, 5):
        (folder / f"run-{run}").rename(folder / f"run-{run - 1}")
        apply(folder, [{"file": f"run-{run - 1}/events.log", "key": "campaign",
                        "set": "/value/run", "to": run - 1}])  # fmt: skip
    ledger = [r for r in read_ledger(folder / "ledger.jsonl") if r["data"].get("run") != 3]
    for record in ledger:
        if record["data"].get("run", 0) > 3:
            record["data"]["run"] -= 1
    _write_ledger(folder, ledger)
    reseal(folder)


def _try_again_after_the_start(folder: Path) -> None:
    ledger = read_ledger(folder / "ledger.jsonl")
    at = next(i for i, r in enumerate(ledger) if r["kind"] == "run-start" and r["data"]["run"] == 2)
    again = [json.loads(json.dumps(record)) for record in ledger[at - 1 : at + 1]]
    for record in (*again, ledger[at + 1]):
        record["data"]["attempt"] = 2
        record["time_ms"] = ledger[at]["time_ms"]
    ledger[at + 1]["time_ms"] += 10_000
    _write_ledger(folder, ledger[: at + 1] + again + ledger[at + 1 :])
    apply(folder, [{"file": "run-2/events.log", "key": "campaign", "set": "/value/attempt",
                    "to": 2}])  # fmt: skip
    reseal(folder)


def _write_ledger(folder: Path, ledger: Sequence[dict[str, Any]]) -> None:
    lines = b"".join(canonical_bytes(record) + b"\n" for record in ledger)
    (folder / "ledger.jsonl").write_bytes(lines)


def _show_a_run_twice(folder: Path) -> None:
    log = folder / "run-4" / "events.log"
    shutil.copyfile(folder / "run-2" / "events.log", log)
    apply(folder, [{"file": "run-4/events.log", "key": "campaign", "set": "/value/run", "to": 4}])
    for key in ("initial_weights_digest", "data_order_digest"):
        apply(folder, [{"file": "run-4/events.log", "key": key, "set": "/value", "to": "9" * 64}])
    reseal(folder)


def _choose_seeds(folder: Path) -> None:
    apply(folder, [{"file": "ledger.jsonl", "line": 2, "set": "/data/seeds",
                    "to": [11, 12, 13, 14, 15]}])  # fmt: skip
    reseal(folder, [step for step in STEPS if step != "seeds"])


def _score(key: str, to: Any, file: str = "run-2/events.log") -> dict[str, Any]:
    return {"file": file, "key": key, "nth": -1, "set": "/value", "to": to}


def _configure(name: str, to: Any) -> list[dict[str, Any]]:
    return [
        {"file": "campaign.json", "set": f"/configuration/{name}", "to": to},
        {"file": ALL_LOGS, "key": "configuration", "set": f"/value/{name}", "to": to},
    ]


CHEATS: dict[str, tuple[Callable[[Path], None], str]] = {
    "a slow run left out": (_skip_a_slow_run, "RUN001"),
    "a slow run dropped and the others moved up": (_keep_the_fastest_of_six, "LED002"),
    "a run killed after its start and tried again": (_try_again_after_the_start, "LED002"),
    "one run under two numbers": (_show_a_run_twice, "RUN004"),
    "a harness changed between runs": (
        _edit([{"file": "run-4/events.log", "key": "package_digest", "set": "/value",
                "to": "1" * 64}]),
        "SYS003",
    ),
    "other data": (
        _edit([{"file": "campaign.json", "set": "/dataset/train_digest", "to": "2" * 64},
               {"file": ALL_LOGS, "key": "dataset", "set": "/value/train_digest",
                "to": "2" * 64}]),
        "DAT001",
    ),
    "fewer validation images": (
        _edit([{"file": "campaign.json", "set": "/dataset/eval_samples", "to": 350},
               {"file": ALL_LOGS, "key": "dataset", "set": "/value/eval_samples", "to": 350},
               {"file": ALL_LOGS, "key": "eval_samples", "set": "/value", "to": 350}]),
        "DAT001",
    ),
    "chosen seeds": (_choose_seeds, "SEE001"),
    "tuned beyond the limits": (_edit(_configure("momentum", 0.5)), "HYP002"),
    "a hidden setting": (
        _edit([{"file": ALL_LOGS, "key": "lars_opt_momentum", "set": "/value", "to": 0.95}]),
        "HYP003",
    ),
    "an evaluation after every epoch": (
        _edit([{"file": "run-2/events.log", "key": key, "nth": 0, "set": "/metadata/epoch_num",
                "to": 1} for key in ("eval_start", "eval_accuracy", "eval_stop")]),
        "EVA001",
    ),
    "an accuracy made up": (_edit([_score("eval_accuracy", 0.999)]), "EVA002"),
    "success without the target": (
        _edit([_score("eval_accuracy", 0.5),
               {"file": "run-2/events.log", "key": "eval_accuracy", "nth": -1,
                "set": "/metadata/correct_count", "to": 180}]),
        "EVA003",
    ),
    "a run given up because it looked slow": (
        _edit([{"file": "run-2/events.log", "key": key, "nth": -1, "delete": True}
               for key in ("eval_start", "eval_accuracy", "eval_stop", "epoch_start",
                           "epoch_stop", "tracked_stats")]
              + [{"file": "run-2/events.log", "key": "run_stop", "set": "/metadata/status",
                  "to": "aborted"}]),
        "EVA003",
    ),
    "the wall clock slowed": (
        lambda folder: _shorten(folder, 0.5, ["time_ms"]),
        "CLK002",
    ),
    "both clocks slowed": (
        lambda folder: _shorten(folder, 0.5, ["time_ms", "monotonic_ms"]),
        "CLK006",
    ),
    "training before the clock starts": (
        _edit([{"file": "run-2/events.log", "key": "run_start",
                "after": {"key": "epoch_stop", "nth": 0}}]),
        "LOG003",
    ),
    "the clock stopped early": (
        _edit([{"file": "run-2/events.log", "key": "run_stop",
                "after": {"key": "epoch_start", "nth": -1}}]),
        "LOG003",
    ),
    "mixed settings": (
        _edit([{"file": "run-5/events.log", "key": "configuration", "set": "/value/warmup_epochs",
                "to": 1.5}]),
        "RUN003",
    ),
    "mixed systems": (
        _edit([{"file": "run-5/events.log", "key": "system",
                "set": "/value/hardware/processor/cpus", "to": 64}]),
        "SYS002",
    ),
    "fewer images an epoch": (
        _edit([{"file": "run-2/events.log", "key": "epoch_stop", "set": "/metadata/samples_count",
                "to": 704}]),
        "DAT004",
    ),
    "a better score in the summary": (
        lambda folder: (
            apply(folder, [{"file": "summary.json", "set": "/minutes", "to": 0.001}]),
            reseal(folder, ["ledger"]),
        )[0],
        "RUN008",
    ),
    "a better result of a run": (
        lambda folder: (
            apply(folder, [{"file": "run-1/result.json", "set": "/minutes", "to": 0.001}]),
            reseal(folder, ["ledger"]),
        )[0],
        "LOG004",
    ),
    "a plan rewritten after the runs": (
        lambda folder: (
            apply(folder, [{"file": "campaign.json", "set": "/settings", "to": ["momentum=0.9"]}]),
            reseal(folder, ["ledger"]),
        )[0],
        "LED003",
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = make_campaign(tmp_path_factory.mktemp("cheats"))
    assert _errors(folder) == set()
    return folder


@pytest.mark.parametrize("name", CHEATS)
def test_a_cheat_is_found(name: str, honest: Path, tmp_path: Path) -> None:
    cheat, code = CHEATS[name]
    folder = tmp_path / "campaign"
    shutil.copytree(honest, folder)
    cheat(folder)
    assert code in _errors(folder)


def test_recomputing_everything_of_an_honest_campaign_changes_nothing(
    honest: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "campaign"
    shutil.copytree(honest, folder)
    reseal(folder)
    for path in honest.rglob("*.json*"):
        assert (folder / path.relative_to(honest)).read_bytes() == path.read_bytes()


def test_a_run_picked_from_another_campaign(honest: Path, tmp_path: Path) -> None:
    other = make_campaign(tmp_path / "other", created_ms=CREATED_MS + 10**6, beacon="ee" * 32)
    folder = tmp_path / "campaign"
    shutil.copytree(honest, folder)
    shutil.copyfile(other / "run-1" / "events.log", folder / "run-1" / "events.log")
    reseal(folder)
    assert "CLK004" in _errors(folder)
    assert "RUN011" in _errors(folder, other)


def test_an_earlier_campaign_made_anew(tmp_path: Path) -> None:
    earlier = make_campaign(tmp_path, not_converged=[1, 2])
    seen = Campaign(earlier)
    known = KnownCampaign(seen.digest, "digits", False, seen.head)
    later = make_campaign(tmp_path, created_ms=CREATED_MS + 10**6, earlier=(known,))
    assert _errors(tmp_path) == set()
    apply(earlier, [_score("eval_accuracy", 1.0, "run-1/events.log"),
                    {"file": "run-1/events.log", "key": "eval_accuracy", "nth": -1,
                     "set": "/metadata/correct_count", "to": 360},
                    {"file": "run-1/events.log", "key": "run_stop", "set": "/metadata/status",
                     "to": "success"}])  # fmt: skip
    reseal(earlier)
    assert _errors(earlier) == set()  # alone it passes
    assert "LED008" in _errors(earlier, later)


def test_a_run_faster_than_its_chips(tmp_path: Path) -> None:
    accelerators = [{"model": "Tesla P100-PCIE-16GB", "memory_gib": 16, "count": 2}]
    hardware = SYSTEM["hardware"] | {"accelerators": accelerators, "driver": "570"}
    system = SYSTEM | {"hardware": hardware}
    folder = make_campaign(
        tmp_path, benchmark="resnet50", epochs=36, system=system, epoch_ms=6,
        configuration={"device": "cuda", "precision": "fp16"},
    )  # fmt: skip
    assert _errors(folder) == {"PHY001"}


# What the files of a campaign that registers itself cannot show: docs/security.md says so.


def test_not_preventable_a_ledger_rolled_back_before_anybody_saw_it(tmp_path: Path) -> None:
    folder = make_campaign(tmp_path, killed_in=3)
    ledger = folder / "ledger.jsonl"
    lines = ledger.read_bytes().splitlines(keepends=True)
    ledger.write_bytes(b"".join(lines[:8]))  # as if run 3 had never been tried
    shutil.rmtree(folder / "run-3")
    assert _errors(folder) == set()


def test_not_preventable_a_log_made_up_as_a_whole(tmp_path: Path) -> None:
    # The factory trains nothing, and its logs pass. Only a replay can tell.
    assert _errors(make_campaign(tmp_path / "a", epochs=12, epoch_ms=15)) == set()
    # One that is greedy about epochs, too, is seen all the same.
    assert _errors(make_campaign(tmp_path / "b", epochs=2, epoch_ms=15)) == {"CNV002"}


def test_not_preventable_campaigns_deleted_and_forgotten(tmp_path: Path) -> None:
    for beacon in ("aa", "bb"):
        shutil.rmtree(make_campaign(tmp_path, beacon=beacon * 32))
    assert _errors(make_campaign(tmp_path, beacon="cc" * 32)) == set()
