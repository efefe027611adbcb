"""From a merged registration to a submission, and the replay of a run's start."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from campaign_factory import make_campaign
from finished_runs import FinishedRun
from processes import SHORT, fourmin
from tamper import apply, reseal

from fourmin.base.errors import FourminError
from fourmin.campaign.prepare import prepare
from fourmin.campaign.publish import prepare_publication, publish
from fourmin.campaign.registration import opened
from fourmin.campaign.request import Existing
from fourmin.ledger.campaign import Campaign
from fourmin.ledger.seeds import assign_seeds
from fourmin.rules import engine
from fourmin.rules.waivers import Waiver


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-c", "user.name=t", "-c", "user.email=t@example.org", *arguments],
        cwd=folder, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout.strip()


@pytest.fixture
def registered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A plan registered by the command, in a repository that has not merged it yet."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    repository = tmp_path / "repository"
    repository.mkdir()
    git(repository, "init", "-q", "-b", "main")
    (repository / "README").write_text("a repository of submissions\n")
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "start")
    done = fourmin(
        "register", "--preset", "digits", "--submitter", "example", "--system", "laptop",
        "--into", str(repository / "submissions"), "--set", "device=cpu", state=tmp_path / "state",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (folder,) = (repository / "submissions/example/laptop/digits").iterdir()
    assert f"fourmin run --campaign {folder}" in done.stdout
    return folder


def test_a_registered_plan_has_no_seeds_and_cannot_run_before_it_is_merged(
    registered: Path,
) -> None:
    lines = (registered / "ledger.jsonl").read_text().splitlines()
    assert [json.loads(line)["kind"] for line in lines] == ["campaign-open"]
    assert "seed" not in (registered / "campaign.json").read_text()
    with pytest.raises(FourminError, match="has not been merged"):
        prepare(Existing(registered, "main")).require()
    assert Campaign(registered).history.seeds is None


def test_the_seeds_come_from_the_first_beacon_after_the_merge(registered: Path) -> None:
    repository = registered.parents[4]
    git(repository, "checkout", "-qb", "register")
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "a plan")
    git(repository, "checkout", "-q", "main")
    git(repository, "merge", "-q", "--no-ff", "-m", "merge the plan", "register")
    merge = git(repository, "rev-parse", "main")

    done = fourmin("run", "--campaign", str(registered), state=repository.parent / "state")
    assert done.returncode == 2
    assert "has no beacon yet" in done.stderr
    assert merge[:12] in done.stderr
    assert "fetch the base branch" in " ".join(done.stderr.split())
    assert Campaign(registered).history.seeds is None

    (repository / "rules").mkdir()
    for content in ("ab", "cd"):
        (repository / "rules" / "beacon").write_text(f"{content * 32}\n")
        git(repository, "add", "-A")
        git(repository, "commit", "-qm", "a beacon")
    beacon = git(repository, "rev-parse", "main~1")
    with opened(prepare(Existing(registered, "main"))) as (campaign, _):
        pass
    assert campaign.entries[1].data["registration"] == "registered"
    assert campaign.entries[1].data["beacon"] == beacon
    assert campaign.entries[1].data["seeds"] == assign_seeds(beacon, campaign.digest, 5)
    assert [slot.seed for slot in campaign.slots()] == campaign.entries[1].data["seeds"]


def test_a_plan_that_was_taken_back_gets_no_seeds(registered: Path) -> None:
    repository = registered.parents[4]
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "a plan")
    git(repository, "revert", "--no-edit", "HEAD")
    git(repository, "branch", "taken-back")
    git(repository, "checkout", "-q", "HEAD~1")
    with pytest.raises(FourminError, match="was taken back"):
        prepare(Existing(registered, "taken-back")).require()


def test_a_plan_that_was_changed_after_the_merge_gets_no_seeds(registered: Path) -> None:
    repository = registered.parents[4]
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "a plan")
    plan = registered / "campaign.json"
    changed = plan.read_bytes().replace(b'"created_ms": ', b'"created_ms": 1')
    assert changed != plan.read_bytes()
    plan.write_bytes(changed)
    with pytest.raises(FourminError, match="broken"):
        prepare(Existing(registered, "main"))


def test_an_abandoned_campaign_ends_visibly(tmp_path: Path) -> None:
    folder = make_campaign(tmp_path, killed_in=2)
    done = fourmin("abandon", str(folder), "--reason", "wrong node", state=tmp_path)
    assert done.returncode == 0, done.stderr
    checked = fourmin("validate", str(folder), "--format", "json", state=tmp_path)
    assert checked.returncode == 0, checked.stdout
    assert "abandoned" in fourmin("report", str(folder), state=tmp_path).stdout
    again = fourmin("abandon", str(folder), state=tmp_path)
    assert again.returncode == 2
    assert "has ended already" in again.stderr


def test_a_closed_campaign_is_packed_and_the_package_validates(tmp_path: Path) -> None:
    folder = make_campaign(tmp_path / "results", submitter="example", system_name="laptop")
    into = tmp_path / "submissions"
    shown = fourmin("submit", str(folder), "--into", str(into), "--dry-run", state=tmp_path)
    assert shown.returncode == 0, shown.stderr
    assert not into.exists()
    done = fourmin("submit", str(folder), "--into", str(into), state=tmp_path)
    assert done.returncode == 0, done.stderr
    place = into / "example/laptop/digits" / folder.name
    assert {p.relative_to(place) for p in place.rglob("*") if p.is_file()} == {
        p.relative_to(folder) for p in folder.rglob("*") if p.is_file() and p.name != ".lock"
    }
    description = into / "example/laptop/system.json"
    system = json.loads(description.read_bytes())
    assert system["host_processor_model_name"] == "Test CPU"
    # Nothing captures the storage: whoever submits tells it, and until then it is no submission.
    assert f"tell host_storage_type in {description}" in " ".join(done.stdout.split())
    checked = fourmin("validate", str(into), "--format", "json", state=tmp_path)
    assert checked.returncode == 1
    findings = json.loads(checked.stdout)["findings"]
    errors = [(f["code"], f["message"]) for f in findings if f["severity"] == "error"]
    assert errors == [("SUB001", 'host_storage_type is not told yet: ""')]
    description.write_text(json.dumps(system | {"host_storage_type": "NVMe SSD"}))
    checked = fourmin("validate", str(into), "--format", "json", state=tmp_path)
    assert checked.returncode == 0, checked.stdout
    kinds = [item["kind"] for item in json.loads(checked.stdout)["checked"]]
    assert sorted(kinds) == ["campaign", "submission"]
    # A description that was completed by hand stays as it is.
    again = fourmin("submit", str(folder), "--into", str(into), state=tmp_path)
    assert again.returncode == 0, again.stderr
    assert "NVMe SSD" in description.read_text()


def test_a_campaign_is_packed_by_its_name_without_what_lies_beside(tmp_path: Path) -> None:
    folder = make_campaign(tmp_path / "results", submitter="example", name="mine")
    moved = folder.rename(folder.with_name("renamed"))
    for name in (".DS_Store", ".lock", "run-1/.nfs0000"):
        (moved / name).write_text("x")
    publication = prepare_publication(moved, tmp_path / "submissions")
    names = {path.relative_to(publication.place) for path in publication.files
             if path.is_relative_to(publication.place)}  # fmt: skip
    assert {name.parts[0] for name in names} == {"mine"}
    assert not any(name.name.startswith(".") for name in names)
    assert publication.untold == ("host_storage_type",)


def test_a_registered_plans_ledger_may_go_on_and_no_other_file(tmp_path: Path) -> None:
    folder = make_campaign(tmp_path / "results", submitter="example", name="mine")
    into = tmp_path / "submissions"
    publication = prepare_publication(folder, into)
    there = into / publication.place / "mine"
    there.mkdir(parents=True)
    shutil.copyfile(folder / "campaign.json", there / "campaign.json")
    ledger = (folder / "ledger.jsonl").read_bytes()
    (there / "ledger.jsonl").write_bytes(ledger[: ledger.index(b"\n") + 1])
    publish(publication, into)
    assert (there / "ledger.jsonl").read_bytes() == ledger
    (there / "ledger.jsonl").write_bytes(ledger + b"x")
    with pytest.raises(FourminError, match="another content"):
        publish(publication, into)


def test_a_waived_error_does_not_stop_a_submission(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_campaign(tmp_path / "results", submitter="example")
    apply(folder, [{"file": "summary.json", "set": "/minutes", "to": 0.001}])
    reseal(folder, ["ledger"])
    with pytest.raises(FourminError, match="does not validate"):
        prepare_publication(folder, tmp_path / "s")
    view = engine.load_campaign(folder)
    waiver = Waiver("RUN008", view.digest, view.head, "a known fault", "a maintainer")
    monkeypatch.setattr(engine, "load_waivers", lambda: (waiver,))
    assert prepare_publication(folder, tmp_path / "s").files


@pytest.mark.parametrize("there", ["Example", "example/2CPU-x86_64", "example/2cpu-x86_64/Digits"])
def test_a_folder_that_differs_by_case_alone_is_not_made(tmp_path: Path, there: str) -> None:
    folder = make_campaign(tmp_path / "results", submitter="example")
    (tmp_path / "submissions" / there).mkdir(parents=True)
    with pytest.raises(FourminError, match="differ by case alone"):
        prepare_publication(folder, tmp_path / "submissions")


@pytest.mark.parametrize(
    ("story", "message"),
    [
        ({"killed_in": 3}, "is no closed campaign"),
        ({}, "has no submitter"),
        ({"practice": True, "runs": 2, "submitter": "example"}, "SUB003"),
        ({"submitter": "a/../b"}, "cannot name a folder"),
    ],
)
def test_what_cannot_be_submitted_is_refused(
    story: dict[str, object], message: str, tmp_path: Path
) -> None:
    folder = make_campaign(tmp_path / "results", **story)
    done = fourmin("submit", str(folder), "--into", str(tmp_path / "s"), state=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr
    assert not (tmp_path / "s").exists()


def test_an_edited_campaign_is_refused_with_the_rule(tmp_path: Path) -> None:
    folder = make_campaign(tmp_path / "results", submitter="example")
    summary = folder / "summary.json"
    summary.write_bytes(summary.read_bytes().replace(b'"minutes": 0.0', b'"minutes": 0.1', 1))
    done = fourmin("submit", str(folder), "--into", str(tmp_path / "s"), state=tmp_path)
    assert done.returncode == 2
    assert "does not validate" in done.stderr
    assert "summary.json" in done.stderr


def test_a_host_name_in_the_files_stops_the_submission(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fourmin.system import privacy

    folder = make_campaign(tmp_path / "results", submitter="example")
    monkeypatch.setattr(privacy, "private_words", lambda: {"Test CPU": "<host>"})
    found = prepare_publication(folder, tmp_path / "s").private
    assert any("events.log: 'Test CPU'" in one for one in found)


def test_the_start_of_a_run_is_replayed_to_the_bit_and_a_lie_is_seen(
    tmp_path: Path, finished_run: Callable[..., FinishedRun]
) -> None:
    made = finished_run(*SHORT)
    folder = made.campaign
    audited = fourmin("audit", str(folder), "--json", state=tmp_path)
    assert audited.returncode == 0, audited.stderr
    outcome = json.loads(audited.stdout)
    assert outcome["ok"] is outcome["same_machine"] is True
    assert {c["name"]: c["verdict"] for c in outcome["comparisons"]} == {
        "initial weights": "same", "data order": "same", "first losses": "same",
    }  # fmt: skip

    lie = made.copied_to(tmp_path)
    events = lie / "run-1/events.log"
    seed = made.run_results()[0]["seed"]
    events.write_text(events.read_text().replace(f'"value": {seed},', f'"value": {seed ^ 1},'))
    audited = fourmin("audit", str(lie), "--json", "--steps", "3", state=tmp_path)
    assert audited.returncode == 1, audited.stderr
    comparisons = json.loads(audited.stdout)["comparisons"]
    assert {c["verdict"] for c in comparisons} == {"different"}
    assert comparisons[-1]["replayed"].endswith("off in 3 of 8)")
    assert "replaying 3 steps of" in audited.stderr
