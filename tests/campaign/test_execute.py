"""Campaigns run by a launcher whose workers only act: the ledger's order, failures, resumption."""

from __future__ import annotations

import errno
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from actors import ActingLauncher
from in_process import fourmin_run

from fourmin.base.errors import FourminError
from fourmin.campaign.events import (
    CampaignOpened,
    Event,
    RecordLogged,
    RunFinished,
    RunRestarting,
    RunStarting,
)
from fourmin.campaign.execute import execute
from fourmin.campaign.prepare import prepare
from fourmin.campaign.registration import opened
from fourmin.campaign.request import Existing, New, Placement, Request
from fourmin.ledger.campaign import Campaign
from fourmin.log.reader import read_log
from fourmin.rules.engine import check


class Watcher:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, Any]] = []

    def take(self, event: Event) -> None:
        if isinstance(event, RunStarting):
            self.told.append(("starting", (event.run, event.attempt)))
        elif isinstance(event, RunRestarting):
            self.told.append(("restarting", (event.run, event.restart, event.epoch, event.why)))
        elif isinstance(event, RecordLogged):
            self.told.append((event.key, event.run))
        elif isinstance(event, RunFinished):
            self.told.append(("finished", (event.run, event.status)))
        else:
            self.told.append((event.kind, event))

    def finished(self) -> list[tuple[int, str]]:
        return [what for kind, what in self.told if kind == "finished"]


@pytest.fixture
def request_(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Request:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return Request(
        preset="digits",
        practice=True,
        runs=3,
        options={"procs_per_node": 2},
        settings=("device=cpu",),
        results_dir=tmp_path / "results",
    )


def run(
    request: Request, launcher: ActingLauncher, max_restarts: int = 3
) -> tuple[Campaign, Watcher, Any]:
    watcher = Watcher()
    placement = Placement(max_restarts=max_restarts)
    with opened(prepare(New(request), placement)) as (campaign, materials):
        summary = execute(campaign, materials, launcher, watcher)
    return campaign, watcher, summary


def go_on(folder: Path, launcher: ActingLauncher, max_restarts: int = 3) -> Any:
    placement = Placement(max_restarts=max_restarts)
    with opened(prepare(Existing(folder), placement)) as (campaign, materials):
        return execute(campaign, materials, launcher, Watcher())


def kinds(folder: Path) -> list[str]:
    lines = (folder / "ledger.jsonl").read_text().splitlines()
    return [json.loads(line)["kind"] for line in lines]


def errors(folder: Path) -> set[str]:
    """What is wrong, but for the throughput: actors train nothing, in no time."""
    return {f.code for f in check([folder]).findings if f.severity == "error"} - {"CLK006"}


def test_the_ledger_has_every_step_in_order(request_: Request) -> None:
    campaign, watcher, summary = run(request_, ActingLauncher())
    assert kinds(campaign.folder) == [
        "campaign-open", "seeds-assigned", *(["run-intent", "run-start", "run-result"] * 3),
        "campaign-close",
    ]  # fmt: skip
    assert watcher.told[0] == ("campaign-opened", CampaignOpened.of(campaign))
    assert watcher.told[1] == ("starting", (1, 1))
    assert watcher.finished() == [(n, "converged") for n in (1, 2, 3)]
    assert [r["status"] for r in summary["runs"]] == ["converged"] * 3
    assert ("eval_accuracy", 3) in watcher.told
    assert campaign.closed
    # The start is in the ledger before the log has run_start.
    start = next(e for e in campaign.entries if e.kind == "run-start")
    log = (campaign.folder / "run-1/events.log").read_text().splitlines()
    begun = next(json.loads(line[9:]) for line in log if '"run_start"' in line)
    assert start.time_ms <= begun["time_ms"]


def test_the_ledger_has_when_the_command_heard_the_clock_stop(request_: Request) -> None:
    with pytest.raises(FourminError):
        run(request_, ActingLauncher({1: "vanishes", 2: "says"}))
    (folder,) = request_.results_dir.iterdir()
    go_on(folder, ActingLauncher())
    results = [e for e in Campaign(folder).entries if e.kind == "run-result"]
    for entry, stops in zip(results, [True, False, True], strict=True):
        assert ("run_stop_ms" in entry.data) == stops
        records = read_log(folder / f"run-{entry.data['run']}/events.log").records
        (logged,) = [record.time_ms for record in records if record.key == "run_stop"]
        assert not stops or logged <= entry.data["run_stop_ms"] <= entry.time_ms
    assert errors(folder) == set()


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ("says", "worker 1: the loss is not finite"),
        ("vanishes", "worker 1 (process 4194305) died without a word"),
        ("ends", "the workers ended early (the launcher's exit code is 1)"),
    ],
)
def test_a_failed_run_is_recorded_and_the_campaign_resumes_after_it(
    request_: Request, fault: str, told: str
) -> None:
    with pytest.raises(FourminError) as caught:
        run(request_, ActingLauncher({2: fault}), max_restarts=0)
    assert caught.value.exit_code == 3
    assert f"run 2 failed and counts as not converged: {told}" in caught.value.what
    (folder,) = request_.results_dir.iterdir()
    assert errors(folder) == set()
    result = json.loads((folder / "run-2/result.json").read_bytes())
    assert (result["status"], result["failure"]) == ("aborted", told)

    launcher = ActingLauncher()
    summary = go_on(folder, launcher)
    assert launcher.started == [3]
    assert [r["status"] for r in summary["runs"]] == ["converged", "aborted", "converged"]
    assert errors(folder) == set()
    with pytest.raises(FourminError, match="has ended"):
        go_on(folder, ActingLauncher())


@pytest.mark.parametrize(
    ("failing", "next_step"), [(2, "goes on with the next run"), (3, "closes the campaign")]
)
def test_a_failed_run_says_what_is_left_to_do(
    request_: Request, failing: int, next_step: str
) -> None:
    with pytest.raises(FourminError) as caught:
        run(request_, ActingLauncher({failing: "says"}), max_restarts=0)
    (folder,) = request_.results_dir.iterdir()
    assert caught.value.next_step == f"fourmin run --resume {folder} {next_step}"
    go_on(folder, ActingLauncher())
    assert Campaign(folder).closed


def test_there_is_no_eleventh_attempt_before_a_start(request_: Request) -> None:
    counts = replace(request_, practice=False, runs=None)
    with pytest.raises(FourminError, match="could not start"):
        run(counts, ActingLauncher({1: "before-start"}))
    (folder,) = request_.results_dir.iterdir()
    for _ in range(9):
        with pytest.raises(FourminError, match="could not start"):
            go_on(folder, ActingLauncher({1: "before-start"}))
    with pytest.raises(FourminError, match="tried 10 times and never started") as refused:
        go_on(folder, ActingLauncher())
    assert f"fourmin abandon {folder}" in refused.value.next_step
    assert kinds(folder).count("run-intent") == 10
    assert not [f for f in check([folder]).findings if f.code == "LED020"]


def test_a_failure_before_the_start_may_be_tried_again_and_shows(request_: Request) -> None:
    with pytest.raises(FourminError) as caught:
        run(request_, ActingLauncher({1: "before-start"}))
    assert caught.value.exit_code == 2
    assert "run 1 could not start: worker 1: no such library" in caught.value.what
    (folder,) = request_.results_dir.iterdir()
    assert kinds(folder)[2:] == ["run-intent"]
    go_on(folder, ActingLauncher())
    assert kinds(folder)[2:6] == ["run-intent", "run-intent", "run-start", "run-result"]
    assert json.loads((folder / "run-1/result.json").read_bytes())["attempt"] == 2
    assert errors(folder) == set()


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ("vanishes", "worker 1 (process 4194305) died without a word"),
        ("ends", "the workers ended early (the launcher's exit code is 1)"),
        ("hangs", "no worker has come further for 1 s"),
    ],
)
def test_a_run_whose_workers_die_goes_on_in_the_same_attempt(
    request_: Request, fault: str, told: str
) -> None:
    campaign, watcher, summary = run(request_, ActingLauncher({2: fault}, times=2))
    assert kinds(campaign.folder)[5:10] == [
        "run-intent", "run-start", "run-restart", "run-restart", "run-result",
    ]  # fmt: skip
    restarts = [what for kind, what in watcher.told if kind == "restarting"]
    assert restarts == [(2, 1, 0, told), (2, 2, 0, told)]
    assert [r["status"] for r in summary["runs"]] == ["converged"] * 3
    result = json.loads((campaign.folder / "run-2/result.json").read_bytes())
    assert [(r["restart"], r["epoch"]) for r in result["restarts"]] == [(1, 0), (2, 0)]
    assert result["attempt"] == 1
    assert errors(campaign.folder) == set()
    # A watcher is told of each record once.
    assert watcher.told.count(("run_restart", 2)) == 2
    assert watcher.told.count(("run_start", 2)) == 1


def test_after_too_many_restarts_a_run_counts_as_not_converged(request_: Request) -> None:
    with pytest.raises(FourminError) as caught:
        run(request_, ActingLauncher({1: "vanishes"}, times=9), max_restarts=2)
    assert caught.value.exit_code == 3
    (folder,) = request_.results_dir.iterdir()
    assert kinds(folder)[2:] == [
        "run-intent", "run-start", "run-restart", "run-restart", "run-result",
    ]  # fmt: skip
    assert errors(folder) == set()


def test_an_error_that_would_come_again_is_no_reason_to_restart(request_: Request) -> None:
    with pytest.raises(FourminError):
        run(request_, ActingLauncher({1: "says"}))
    (folder,) = request_.results_dir.iterdir()
    assert kinds(folder)[2:] == ["run-intent", "run-start", "run-result"]


def test_a_full_disk_is_not_tried_again_and_the_run_can_go_on(request_: Request) -> None:
    launcher = ActingLauncher({1: "full disk"}, times=9)
    with pytest.raises(FourminError) as caught:
        run(request_, launcher)
    assert launcher.started == [1]
    assert caught.value.exit_code == 2
    assert "run 1 cannot go on: worker 0: no room" in caught.value.what
    (folder,) = request_.results_dir.iterdir()
    assert caught.value.next_step == f"make room, then: fourmin run --resume {folder}"
    assert kinds(folder)[-1] == "run-start"
    summary = go_on(folder, ActingLauncher(), max_restarts=0)
    assert summary["runs"][0]["status"] == "converged"
    assert errors(folder) == set()


# Where it is "start", the acting worker waits in vain.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("step", ["start", "finish", "close"])
def test_a_ledger_that_cannot_be_written_says_how_to_go_on(
    step: str, request_: Request, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "ledger.jsonl")

    with monkeypatch.context() as patch:
        patch.setattr(Campaign, step, full)
        with pytest.raises(FourminError) as caught:
            run(request_, ActingLauncher())
    (folder,) = request_.results_dir.iterdir()
    assert (caught.value.what, caught.value.exit_code) == ("cannot use ledger.jsonl", 2)
    assert caught.value.next_step == f"make room there, then: fourmin run --resume {folder}"
    assert len(go_on(folder, ActingLauncher())["runs"]) == 3
    assert errors(folder) == set()


def test_an_interrupt_ends_with_130_and_the_run_can_go_on(request_: Request) -> None:
    with pytest.raises(FourminError) as caught:
        run(request_, ActingLauncher({1: "interrupt"}))
    assert caught.value.exit_code == 130
    assert "its clock runs on" in caught.value.why
    (folder,) = request_.results_dir.iterdir()
    assert kinds(folder)[-1] == "run-start"
    assert errors(folder) == set()
    summary = go_on(folder, ActingLauncher(), max_restarts=0)
    assert kinds(folder)[2:6] == ["run-intent", "run-start", "run-restart", "run-result"]
    assert summary["runs"][0]["status"] == "converged"
    assert errors(folder) == set()


def test_a_run_that_ended_just_before_the_command_was_killed_needs_no_restart(
    request_: Request, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("fourmin.campaign.execute._SlotRun._record_outcome", killed)
        with pytest.raises(FourminError):
            run(request_, ActingLauncher())
    (folder,) = request_.results_dir.iterdir()
    launcher = ActingLauncher()
    summary = go_on(folder, launcher)
    assert launcher.started == [2, 3]
    assert [r["status"] for r in summary["runs"]] == ["converged"] * 3
    assert "run-restart" not in kinds(folder)
    assert errors(folder) == set()
    # The command that heard the first run's clock stop is gone.
    results = [e.data for e in Campaign(folder).entries if e.kind == "run-result"]
    assert ["run_stop_ms" in told for told in results] == [False, True, True]


def test_a_changed_harness_cannot_go_on(request_: Request, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FourminError):
        run(request_, ActingLauncher({2: "says"}))
    (folder,) = request_.results_dir.iterdir()
    monkeypatch.setattr("fourmin.campaign.existing.package_digest", lambda: "0" * 64)
    with pytest.raises(FourminError, match="cannot go on here") as caught:
        go_on(folder, ActingLauncher())
    assert "package_digest" in caught.value.why


def test_the_command_says_what_it_left(
    request_: Request, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    launcher = ActingLauncher()
    monkeypatch.setattr("fourmin.campaign.prepare.load_launcher", lambda name, around: launcher)
    fourmin_run(
        practice=True, runs=2, procs_per_node=2, settings=["device=cpu"], seed=5,
        results_dir=request_.results_dir,
    )  # fmt: skip
    told = capsys.readouterr()
    assert "practice, which never counts" in told.out
    assert "run 2/2  converged" in told.err
    assert "launcher local: this machine" in told.err
    assert launcher.closed
    (folder,) = request_.results_dir.iterdir()
    assert json.loads((folder / "ledger.jsonl").read_text().splitlines()[1])["data"]["seeds"] == [
        5, 6,
    ]  # fmt: skip


def test_missed_targets_end_with_3(request_: Request, monkeypatch: pytest.MonkeyPatch) -> None:
    import typer

    monkeypatch.setattr(
        "fourmin.campaign.prepare.load_launcher",
        lambda name, around: ActingLauncher(not_converged=[2]),
    )
    with pytest.raises(typer.Exit) as caught:
        fourmin_run(procs_per_node=2, settings=["device=cpu"], results_dir=request_.results_dir)
    assert caught.value.exit_code == 3


def test_a_dry_run_prints_and_does_nothing(
    request_: Request, capsys: pytest.CaptureFixture[str]
) -> None:
    fourmin_run(dry_run=True, results_dir=request_.results_dir)
    assert "steps_per_epoch = 22" in capsys.readouterr().out
    with pytest.raises(FourminError, match="things are missing"):
        fourmin_run(
            preset="resnet50-64k",
            nodes=256,
            dry_run=True,
            results_dir=request_.results_dir,
            launcher="local",
        )
    told = capsys.readouterr().out
    assert "workers = 2048" in told
    fourmin_run(dry_run=True, json_lines=True, results_dir=request_.results_dir)
    assert json.loads(capsys.readouterr().out)["runs"] == 5
    assert not request_.results_dir.exists()
