"""The report in a repository of submissions: landings, what is proved, which batch is ranked."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from campaign_factory import make_campaign
from git_history import History
from tamper import apply, reseal

from fourmin.ledger.landings import BEACON_FILE
from fourmin.report.collect import collect

HOUR_MS = 3_600_000
BATCHES = (64, 32)


class Submissions:
    """Plans that land one after the other, each with its beacon, and are run then."""

    def __init__(self, root: Path) -> None:
        self.history = History(root / "repository")
        self.root = root
        self.folder = self.history.root / "submissions"
        self.now_ms = time.time_ns() // 1_000_000 - 100 * HOUR_MS

    def register(self, batch: int, name: str, **story: Any) -> Path:
        """Land a plan without seeds; its place."""
        made = make_campaign(
            self.root / name, submitter="lab", system_name="box", created_ms=self.now_ms,
            nonce=f"{len(list(self.root.iterdir())):032x}",
            configuration={"global_batch_size": batch}, **story,
        )  # fmt: skip
        place = self.folder / "lab/box/digits" / made.name
        place.mkdir(parents=True)
        shutil.copyfile(made / "campaign.json", place / "campaign.json")
        ledger = (made / "ledger.jsonl").read_bytes()
        (place / "ledger.jsonl").write_bytes(ledger.splitlines(True)[0])
        self.history.commit({})
        self.made = made
        return place

    def run(self, place: Path, beacon: str) -> None:
        shutil.copytree(self.made, place, dirs_exist_ok=True)
        apply(place, [
            {"file": "ledger.jsonl", "line": 2, "set": "/data/beacon", "to": beacon},
            {"file": "ledger.jsonl", "line": 2, "set": "/data/registration", "to": "registered"},
        ])  # fmt: skip
        reseal(place)
        self.history.commit({})

    def beacon(self) -> str:
        self.beacons = getattr(self, "beacons", 0) + 1
        return self.history.commit({BEACON_FILE: b"%064d\n" % self.beacons})


@pytest.fixture
def submissions(tmp_path: Path) -> Submissions:
    return Submissions(tmp_path)


def test_a_plan_waits_then_counts_and_is_proved_by_its_beacon(submissions: Submissions) -> None:
    place = submissions.register(64, "a")
    waiting = collect([submissions.folder])
    assert [r.state for r in waiting.pending] == ["pending"]
    assert (waiting.results, waiting.failed) == ((), ())
    submissions.run(place, submissions.beacon())
    (result,) = collect([submissions.folder]).results
    assert (result.registration, result.evidence[0]) == ("registered", "registered")
    # Elsewhere, and in a clone that does not know all, it is what the files claim.
    shutil.copytree(submissions.folder, submissions.root / "copy" / "submissions")
    (result,) = collect([submissions.root / "copy"]).results
    assert (result.registration, result.evidence[0]) == ("claimed", "claims registration")
    clone = submissions.root / "clone"
    submissions.history.git(
        "clone", "--quiet", "--depth", "1", f"file://{submissions.history.root}", str(clone)
    )
    (result,) = collect([clone]).results
    assert result.registration == "claimed"


def test_a_beacon_that_is_not_the_plans_proves_nothing(submissions: Submissions) -> None:
    early = submissions.beacon()
    place = submissions.register(64, "a")
    submissions.beacon()
    submissions.run(place, early)
    (result,) = collect([submissions.folder]).results
    assert result.registration == "claimed"


def test_the_first_landed_plan_names_the_ranked_batch(submissions: Submissions) -> None:
    for batch, name in zip(BATCHES, "ab", strict=True):
        place = submissions.register(
            batch, name, ranked_batch=batch, epoch_ms=300.0 if name == "b" else 100.0
        )
        submissions.run(place, submissions.beacon())
    rows = {r.global_batch_size: r for r in collect([submissions.folder]).results}
    assert {batch: row.standing.ranked for batch, row in rows.items()} == {64: True, 32: False}
    assert rows[64].standing.batches == 2
    # Without the repository nobody knows which was first: the slowest.
    shutil.copytree(submissions.folder, submissions.root / "copy" / "submissions")
    rows = {r.global_batch_size: r for r in collect([submissions.root / "copy"]).results}
    assert {batch: row.standing.ranked for batch, row in rows.items()} == {64: False, 32: True}
