"""Campaigns that each are honest, chosen or arranged so that the report shows a better number.

No rule can forbid them: the report counts them, and here it is asked what it shows.
"""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from attacks_on_runs import record
from forger import forge, scale
from tamper import read_ledger, write_ledger
from worlds import known, land, make_repository, submit, turn_beacon

from fourmin.report import load_renderer
from fourmin.report.collect import collect

DAY_MS = 86_400_000


def report(root: Path) -> dict[str, Any]:
    """What `fourmin report --format json` says."""
    said: dict[str, Any] = json.loads(load_renderer("json")(collect([root])))
    return said


def row(root: Path, **wanted: Any) -> dict[str, Any]:
    """The one row of the results that has these values."""
    results = report(root)["results"]
    (found,) = (one for one in results if all(one[key] == wanted[key] for key in wanted))
    return dict(found)


def lab(root: Path, number: int, **story: Any) -> Path:
    return submit(root, "lab", "box", number, **story)


def minutes(folder: Path) -> float:
    taken: float = json.loads((folder / "summary.json").read_bytes())["scaled_minutes"]
    return taken


def test_the_best_of_three_campaigns(tmp_path: Path) -> None:
    """Three are run; the median one is shown, and how many there were."""
    paces = sorted(
        minutes(lab(tmp_path, n, epoch_ms=pace)) for n, pace in enumerate((200, 500, 300))
    )
    shown = row(tmp_path)
    assert (shown["scaled_minutes"], shown["campaigns"]) == (paces[1], 3)


def test_the_faster_of_two_campaigns(tmp_path: Path) -> None:
    slow = max(minutes(lab(tmp_path, n, epoch_ms=pace)) for n, pace in enumerate((200, 500)))
    assert row(tmp_path)["scaled_minutes"] == slow


def test_a_slow_campaign_abandoned(tmp_path: Path) -> None:
    """Before it closes; then another: the two have a failed median."""
    from fourmin.ledger.campaign import Campaign

    Campaign(lab(tmp_path, 0, closed=False)).abandon("it was slow")
    lab(tmp_path, 1, epoch_ms=200)
    shown = row(tmp_path)
    assert (shown["minutes"], shown["rank"], shown["failed_campaigns"]) == (None, None, 1)


def test_a_slow_campaign_never_closed(tmp_path: Path) -> None:
    lab(tmp_path, 0, killed_in=3)
    lab(tmp_path, 1, epoch_ms=200)
    shown = row(tmp_path)
    assert (shown["minutes"], shown["rank"], shown["failed_campaigns"]) == (None, None, 1)


def test_a_slow_campaign_made_invalid(tmp_path: Path) -> None:
    """One byte of its log spoilt: it counts as failed, not as none."""
    spoilt = lab(tmp_path, 0, epoch_ms=500)
    lab(tmp_path, 1, epoch_ms=200)
    with (spoilt / "run-1/events.log").open("ab") as file:
        file.write(b"\n")
    shown = row(tmp_path)
    assert (shown["status"], shown["rank"], shown["failed_campaigns"]) == ("invalid", None, 1)


def test_a_system_named_anew_for_each_campaign(tmp_path: Path) -> None:
    """The chips make the group, not the name."""
    slow = submit(tmp_path, "lab", "box", 0, epoch_ms=500)
    submit(tmp_path, "lab", "box-2", 1, epoch_ms=200)
    shown = row(tmp_path)
    assert (shown["campaigns"], shown["scaled_minutes"]) == (2, minutes(slow))


def test_a_version_changed_for_each_campaign(tmp_path: Path) -> None:
    from campaign_factory import SYSTEM

    slow = lab(tmp_path, 0, epoch_ms=500)
    system = SYSTEM | {"software": SYSTEM["software"] | {"numpy": "2.4.7"}}
    lab(tmp_path, 1, epoch_ms=200, system=system)
    shown = row(tmp_path)
    assert (shown["campaigns"], shown["scaled_minutes"]) == (2, minutes(slow))


def test_many_batches_of_which_one_pleases(tmp_path: Path) -> None:
    """Each is a row, says so, and without a name on the branch the slowest has the rank."""
    taken = {
        batch: minutes(lab(tmp_path, n, configuration={"global_batch_size": batch}, epoch_ms=pace))
        for n, (batch, pace) in enumerate(((32, 500), (64, 200)))
    }
    for batch in taken:
        shown = row(tmp_path, global_batch_size=batch)
        assert (shown["batches"], shown["campaigns"]) == (2, 2)
        assert (shown["rank"] is not None) == (taken[batch] == max(taken.values()))


def test_a_ranked_batch_named_when_all_results_are_known(tmp_path: Path) -> None:
    for n, (batch, pace) in enumerate(((32, 500), (64, 200))):
        lab(tmp_path, n, configuration={"global_batch_size": batch}, epoch_ms=pace, ranked_batch=64)
    assert row(tmp_path, global_batch_size=64)["rank"] is None
    assert row(tmp_path, global_batch_size=32)["rank"] == 1


def _registered(root: Path, number: int, **story: Any) -> Path:
    """A campaign of `lab` whose plan landed and got a beacon before it was run."""
    made = lab(root / "submissions", number, **story)
    whole = made.rename(root.parent / f"whole-{number}")
    made.mkdir()
    shutil.copyfile(whole / "campaign.json", made / "campaign.json")
    opening = (whole / "ledger.jsonl").read_bytes().splitlines(keepends=True)[0]
    (made / "ledger.jsonl").write_bytes(opening)
    land(root, hours=number)
    turned = turn_beacon(root, f"{number:064x}", hours=number)
    shutil.rmtree(made)
    whole.rename(made)
    forge(made, [
        {"file": "ledger.jsonl", "line": 2, "set": "/data/beacon", "to": turned},
        {"file": "ledger.jsonl", "line": 2, "set": "/data/registration", "to": "registered"},
    ])  # fmt: skip
    land(root)
    return made


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A repository without campaigns."""
    made = tmp_path / "repository"
    make_repository(made, empty=True)
    return made


def test_registered_campaigns_outvoted_by_others(root: Path) -> None:
    """Two fast ones that registered themselves never make the median of a slow registered one."""
    slow = _registered(root, 1, epoch_ms=500)
    for number in (2, 3):
        lab(root / "submissions", number, epoch_ms=200)
    shown = row(root / "submissions", registration="registered")
    assert (shown["campaigns"], shown["scaled_minutes"]) == (1, minutes(slow))
    assert row(root / "submissions", registration="self")["campaigns"] == 2


def test_a_ranked_batch_changed_by_a_later_plan(root: Path) -> None:
    batches = {"configuration": {"global_batch_size": 32}, "ranked_batch": 32}
    _registered(root, 1, epoch_ms=500, **batches)
    _registered(root, 2, epoch_ms=200, ranked_batch=64)
    assert row(root / "submissions", global_batch_size=32)["rank"] == 1
    assert row(root / "submissions", global_batch_size=64)["rank"] is None


def test_a_plan_that_landed_and_is_never_run(root: Path) -> None:
    """Pending for 30 days, then failed: by its creation, as there is no landing to see here."""
    for age, part in ((1, "pending"), (31, "failed")):
        folder = submit(root.parent / f"{age}", "lab", "box", 0,
                        created_ms=time.time_ns() // 10**6 - age * DAY_MS)  # fmt: skip
        for run in folder.glob("run-*"):
            shutil.rmtree(run)
        (folder / "summary.json").unlink()
        ledger = read_ledger(folder / "ledger.jsonl")
        write_ledger(folder / "ledger.jsonl", ledger[:1])
        said = report(root.parent / f"{age}")
        assert [len(said[name]) for name in ("pending", "failed")] == [
            int(part == name) for name in ("pending", "failed")
        ]


def test_a_plan_reverted_after_it_went_badly(root: Path) -> None:
    """What landed and was taken back is abandoned: it is no registered result any more."""
    slow = _registered(root, 1, epoch_ms=500)
    kept = root.parent / "kept"
    shutil.copytree(slow, kept)
    shutil.rmtree(slow)
    land(root)
    shutil.copytree(kept, slow)
    assert row(root / "submissions")["registration"] != "registered"


def test_earlier_campaigns_left_out(tmp_path: Path) -> None:
    """They are named by the one that is shown, and the report says how many are here."""
    earlier = [lab(tmp_path, number) for number in range(3)]
    lab(tmp_path, 3, earlier=known(*earlier))
    for folder in earlier:
        shutil.rmtree(folder)
    shown = row(tmp_path)
    assert (shown["shown_campaigns"], shown["known_campaigns"]) == (1, 4)
    assert "1 of 4 shown" in shown["evidence"]


def test_practice_until_it_pleases(tmp_path: Path) -> None:
    practised = [lab(tmp_path / "results", number, practice=True, runs=2) for number in range(2)]
    lab(tmp_path / "submissions", 3, earlier=known(*practised))
    shown = row(tmp_path / "submissions")
    assert shown["practice_campaigns"] == 2
    assert "2 practice campaigns" in shown["evidence"]


def test_starts_until_the_nodes_please(tmp_path: Path) -> None:
    lab(tmp_path, 0, retried=[1, 1, 2])
    assert row(tmp_path)["attempts_before_start"] == 3


def test_an_invalid_result_stands_below_and_has_no_rank(tmp_path: Path) -> None:
    spoilt = lab(tmp_path, 0)
    submit(tmp_path, "rival", "rack", 1, epoch_ms=900)
    scale(spoilt, 0.5, ledger=False)
    forge(spoilt, [record("eval_accuracy", -1, set="/value", to=0.999)])
    results = report(tmp_path)["results"]
    assert [(one["submitter"], one["rank"]) for one in results] == [("rival", 1), ("lab", None)]


def test_fewer_epochs_than_the_reference_do_not_win(tmp_path: Path) -> None:
    """A time is scaled to the reference's epochs before it is ranked."""
    quick = lab(tmp_path, 0, epochs=8, epoch_ms=300)
    said = json.loads((quick / "summary.json").read_bytes())
    assert said["scaled_minutes"] is None or said["scaled_minutes"] > said["minutes"]
    shown = row(tmp_path)
    assert shown["scaled_minutes"] == said["scaled_minutes"]
