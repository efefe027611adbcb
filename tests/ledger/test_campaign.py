"""A campaign on disk: registration, the order of writing, and what a kill leaves."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from campaign_factory import Clock, Story, _deterministic, _plan, make_campaign
from durability import recorded

from fourmin.base.canonical import sha256_hex
from fourmin.base.errors import FourminError
from fourmin.base.files import json_bytes
from fourmin.ledger import campaign as module
from fourmin.ledger.campaign import Campaign, RunState
from fourmin.ledger.seeds import assign_seeds
from fourmin.log.writer import EventLogWriter
from fourmin.results.run_result import RunFacts
from fourmin.rules.engine import check_campaign
from fourmin.rules.rule import ERROR


@pytest.fixture
def campaign(tmp_path: Path) -> Any:
    """A campaign that has been registered and nothing more."""
    story = Story(runs=2, practice=True)
    with _deterministic(Clock(), story):
        yield Campaign.create(tmp_path, _plan(story))


def _errors(folder: Path) -> list[str]:
    return [f"{f.code} {f.path}" for f in check_campaign(folder, "") if f.severity == ERROR]


def test_registration_holds_plan_and_seeds(campaign: Campaign) -> None:
    plan_bytes = (campaign.folder / "campaign.json").read_bytes()
    plan = json.loads(plan_bytes)
    assert [entry.kind for entry in campaign.entries] == ["campaign-open", "seeds-assigned"]
    assert campaign.digest == sha256_hex(plan_bytes)
    assert campaign.entries[0].data == {"campaign_sha256": campaign.digest}
    seeds = campaign.entries[1].data
    assert seeds["seeds"] == assign_seeds(seeds["beacon"], campaign.digest, 2)
    assert not any(str(seed) in plan_bytes.decode() for seed in seeds["seeds"])
    assert seeds["beacon"] not in plan_bytes.decode()
    assert plan["configuration_digest"] == campaign.configuration.digest()
    assert campaign.folder.name.startswith("practice-digits-")
    assert not campaign.closed
    assert _errors(campaign.folder) == []


def test_nothing_is_left_when_registration_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> Any:
        raise RuntimeError("no entropy")

    monkeypatch.setattr(module, "new_beacon", fail)
    with pytest.raises(RuntimeError):
        Campaign.create(tmp_path, _plan(Story()))
    assert list(tmp_path.iterdir()) == []


def test_an_intent_comes_before_everything(campaign: Campaign) -> None:
    slot = campaign.slots()[0]
    assert campaign.intend(slot) == 1
    again = Campaign(campaign.folder).slots()[0]
    assert again == RunState(1, slot.seed, attempts=1)
    campaign.start(again, 1)
    assert Campaign(campaign.folder).slots()[0].started
    assert _errors(campaign.folder) == []


def test_the_log_of_an_attempt_that_never_started_is_kept(campaign: Campaign) -> None:
    slot = campaign.slots()[0]
    campaign.intend(slot)
    (campaign.run_folder(1) / "events.log").write_bytes(b"first\n")
    slot.attempts = 1
    assert campaign.intend(slot) == 2
    assert campaign.entries[-1].data["earlier_events_sha256"] == sha256_hex(b"first\n")
    assert (campaign.run_folder(1) / "events.attempt-1.log").read_bytes() == b"first\n"
    assert not (campaign.run_folder(1) / "events.log").exists()


def test_a_kill_between_keeping_a_log_and_recording_it(campaign: Campaign) -> None:
    slot = campaign.slots()[0]
    campaign.intend(slot)
    folder = campaign.run_folder(1)
    kept = folder / "events.attempt-1.log"  # renamed, then killed
    with EventLogWriter(kept) as log:
        log.start("init_start", None)
    assert _errors(campaign.folder) == []
    slot.attempts = 1
    campaign.intend(slot)
    assert campaign.entries[-1].data["earlier_events_sha256"] == sha256_hex(kept.read_bytes())
    assert _errors(campaign.folder) == []


def test_what_the_ledger_vouches_for_is_written_then_recorded_then_named(
    campaign: Campaign, monkeypatch: pytest.MonkeyPatch
) -> None:
    slot = campaign.slots()[0]
    attempt = campaign.intend(slot)
    folder = campaign.run_folder(1)
    (folder / "events.log").write_bytes(b"what happened\n")

    def ledger() -> str:
        return f"sync ledger.jsonl {(campaign.folder / 'ledger.jsonl').stat().st_size}"

    told = recorded(monkeypatch)
    campaign.start(slot, attempt)
    # The start is durable before the first batch is read.
    assert told == ["sync run-1/", ledger()]
    told.clear()
    facts = RunFacts(run=1, status="converged")
    result = json_bytes(facts.to_json())
    campaign.finish(slot, attempt, facts)
    assert told == [
        f"sync .result.json.pending.tmp {len(result)}",
        ".result.json.pending.tmp -> result.json.pending",
        "sync run-1/",
        ledger(),
        "result.json.pending -> result.json",
        "sync run-1/",
    ]
    assert campaign.entries[-1].data["events_sha256"] == sha256_hex(b"what happened\n")
    assert campaign.entries[-1].data["result_sha256"] == sha256_hex(result)


def _finished(folder: Path) -> Path:
    return make_campaign(folder, runs=2, practice=True)


@pytest.mark.parametrize("name", ["run-2/result.json", "summary.json"])
def test_a_kill_between_record_and_rename_is_mended(tmp_path: Path, name: str) -> None:
    folder = _finished(tmp_path)
    path = folder / name
    path.rename(path.with_name(path.name + ".pending"))
    found = check_campaign(folder, "")
    assert [f.code for f in found if f.severity == ERROR] == []
    assert ("LED006", f"{name}.pending") in [(f.code, f.path) for f in found]
    Campaign.reopen(folder)
    assert path.is_file()
    assert "LED006" not in [f.code for f in check_campaign(folder, "")]


def test_a_pending_file_without_a_record_is_removed(campaign: Campaign) -> None:
    pending = campaign.folder / "summary.json.pending"
    pending.write_bytes(b"{}")
    Campaign.reopen(campaign.folder)
    assert not pending.exists()


@pytest.mark.parametrize("torn", [b"{", b'{"data":{},"hash":"0"}', b"\xff"])
def test_a_torn_line_is_dropped(campaign: Campaign, torn: bytes) -> None:
    ledger = campaign.folder / "ledger.jsonl"
    whole = ledger.read_bytes()
    ledger.write_bytes(whole + torn)
    assert Campaign(campaign.folder).head == campaign.head
    assert ledger.read_bytes() == whole + torn  # only its one writer mends it
    assert Campaign.reopen(campaign.folder).head == campaign.head
    assert ledger.read_bytes() == whole


def test_closing_ends_it(tmp_path: Path) -> None:
    folder = _finished(tmp_path)
    closed = Campaign(folder)
    assert closed.closed
    assert [slot.status for slot in closed.slots()] == ["converged", "converged"]
    summary = (folder / "summary.json").read_bytes()
    assert closed.entries[-1].data == {"summary_sha256": sha256_hex(summary)}
    assert json.loads(summary)["ledger_head"] == closed.entries[-1].previous


def test_times_never_run_backwards_when_the_clock_does(tmp_path: Path) -> None:
    clock, story = Clock(), Story(runs=1, practice=True)
    with _deterministic(clock, story):
        campaign = Campaign.create(tmp_path, _plan(story))
        clock.pass_ms(-60_000)
        campaign.intend(campaign.slots()[0])
    times = [entry.time_ms for entry in campaign.entries]
    assert times == sorted(times)


def test_the_ledger_grows_and_nothing_else(campaign: Campaign) -> None:
    before = (campaign.folder / "ledger.jsonl").read_bytes()
    campaign.intend(campaign.slots()[0])
    after = (campaign.folder / "ledger.jsonl").read_bytes()
    assert after.startswith(before)
    assert after.count(b"\n") == before.count(b"\n") + 1


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("campaign.json", lambda data: data + b" "),
        ("campaign.json", lambda data: b"{}"),
        ("ledger.jsonl", lambda data: data[: data.index(b"\n") + 1][::-1]),
        ("ledger.jsonl", lambda data: b""),
    ],
)
def test_a_campaign_that_cannot_go_on(campaign: Campaign, name: str, change: Any) -> None:
    path = campaign.folder / name
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(FourminError) as raised:
        Campaign(campaign.folder)
    assert raised.value.exit_code == 2
    assert raised.value.next_step


def test_a_folder_that_is_no_campaign(tmp_path: Path) -> None:
    with pytest.raises(FourminError, match="not a campaign"):
        Campaign(tmp_path)


def test_a_registered_campaign_gets_its_seeds_from_the_merge(tmp_path: Path) -> None:
    clock, story = Clock(), Story(runs=2, practice=True)
    with _deterministic(clock, story):
        campaign = Campaign.create(tmp_path, _plan(story), seeds=False)
        assert campaign.history.seeds is None
        assert _errors(campaign.folder) == []
        campaign.assign_registered_seeds("12" * 20)
    assert campaign.history.seeds is not None
    assert campaign.entries[1].data == {
        "beacon": "12" * 20,
        "registration": "registered",
        "seeds": assign_seeds("12" * 20, campaign.digest, 2),
    }
    assert _errors(campaign.folder) == []


def test_an_abandoned_campaign_has_ended_and_shows(campaign: Campaign) -> None:
    campaign.intend(campaign.slots()[0])
    campaign.abandon("the disk failed")
    assert Campaign(campaign.folder).closed
    assert _errors(campaign.folder) == []
    assert "RUN007" in [f.code for f in check_campaign(campaign.folder, "")]


def test_a_plan_has_one_folder_and_another_nonce_is_another_plan(tmp_path: Path) -> None:
    plan = _plan(Story())
    first = Campaign.create(tmp_path, plan)
    assert first.folder == tmp_path / plan.name
    before = read_tree(tmp_path)
    with pytest.raises(OSError):
        Campaign.create(tmp_path, plan)
    assert read_tree(tmp_path) == before
    second = Campaign.create(tmp_path / "other", replace(plan, nonce="1d" * 16))
    assert first.digest != second.digest
    assert [s.seed for s in first.slots()] != [s.seed for s in second.slots()]


def read_tree(folder: Path) -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_results_are_written_as_people_read_them(tmp_path: Path) -> None:
    folder = _finished(tmp_path)
    data = (folder / "run-1" / "result.json").read_bytes()
    assert data == json_bytes(json.loads(data))
