"""Jobs as the command outside shows them: what they print is played from a real campaign."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from campaign_factory import make_campaign

from fourmin.base.errors import FourminError
from fourmin.campaign.events import (
    CampaignClosed,
    CampaignOpened,
    Note,
    RecordLogged,
    RunFinished,
    RunStarting,
)
from fourmin.campaign.jobs import Submission, run_in_jobs
from fourmin.cli.display import JsonDisplay, PlainDisplay
from fourmin.cli.output import stderr
from fourmin.launch.sbatch import slurm_state
from fourmin.launch.submit import JobState
from fourmin.ledger.campaign import Campaign
from fourmin.log.reader import read_log
from fourmin.results.run_result import RunFacts

DONE = slurm_state("COMPLETED")


def printed(folder: Path, capsys: pytest.CaptureFixture[str], runs: tuple[int, ...]) -> list[bytes]:
    """What a job that made these runs of a campaign printed."""
    display, campaign = JsonDisplay(), Campaign(folder)
    display.take(CampaignOpened.of(campaign))
    for slot in campaign.slots():
        if slot.run in runs:
            display.take(RunStarting(slot.run, 1, slot.seed))
            for record in read_log(campaign.run_folder(slot.run) / "events.log").records:
                display.take(RecordLogged.of(slot, record))
            facts = RunFacts.read(campaign.run_folder(slot.run) / "events.log")
            display.take(RunFinished.of(facts, 1.5))
    return capsys.readouterr().out.encode().splitlines()


class PlayedJob:
    """Stands for a job of Slurm's; each submission plays the next list."""

    def __init__(self, number: int, events: list[Any]) -> None:
        self.name = f"Slurm job {number}"
        self.events = events
        self.cancelled = False
        self.asked_soon = 0

    def follow(self) -> Iterator[bytes | JobState]:
        for event in self.events:
            if event is KeyboardInterrupt:
                raise KeyboardInterrupt
            yield event

    def ask_soon(self) -> None:
        self.asked_soon += 1

    def cancel(self) -> None:
        self.cancelled = True

    def errors(self, lines: int = 20) -> list[str]:
        return ["error: no such thing", " next: do it"]


class PlayedJobs:
    """Submits jobs that play these lists, one after the other."""

    root = Path("/")
    files_here = True
    gpus_per_node = None

    def __init__(self, *jobs: list[Any]) -> None:
        self._jobs = jobs
        self.submitted: list[PlayedJob] = []
        self.options: list[tuple[str, ...]] = []

    def describe(self, configuration: Any, options: Sequence[str], folder: Path) -> str:
        return " ".join(options)

    def submit(self, configuration: Any, options: Sequence[str], folder: Path) -> PlayedJob:
        number = len(self.submitted)
        self.options.append(tuple(options))
        self.submitted.append(PlayedJob(7 + number, self._jobs[number]))
        return self.submitted[-1]


def shown(folder: Path, jobs: PlayedJobs) -> Path | str:
    configuration = Campaign(next(folder.glob("digits-*"))).configuration
    submission = Submission(jobs, "slurm", configuration, ("--preset=digits",), folder)
    return run_in_jobs(submission, PlainDisplay(stderr()))


def test_a_campaign_over_two_jobs_is_shown_as_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_campaign(tmp_path)
    first, second = printed(folder, capsys, (1, 2, 3)), printed(folder, capsys, (4, 5))
    closed = iter([False, True])
    monkeypatch.setattr(Campaign, "closed", property(lambda self: next(closed)))
    waiting = slurm_state("PENDING", "Resources")
    hello = json.dumps(Note("hello").to_json()).encode()
    jobs = PlayedJobs([waiting, *first, DONE], [*second, hello, DONE])
    assert shown(tmp_path, jobs) == folder
    told = capsys.readouterr().err
    assert "Slurm job 7: PENDING (Resources)" in told
    assert told.index("run 3/5  converged") < told.index("Slurm job 8 submitted")
    assert "run 5/5  epoch" in told
    assert "hello" in told
    # The second goes on with the campaign that the first one named in a file.
    assert jobs.options[0] == jobs.options[1]
    assert jobs.options[0][-1].startswith(f"--campaign-file={tmp_path}/.jobs/digits-")


def test_damaged_lines_and_those_of_others_are_passed_by(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_campaign(tmp_path)
    closed = CampaignClosed(str(folder), 1.0, True, "valid", [], "valid", 0, {})
    lines = [*printed(folder, capsys, (1,)), json.dumps(closed.to_json()).encode()]
    torn = [line[: len(line) * 2 // 3] for line in lines]
    mixed = [line.replace(b"run", b"rum").replace(b"campaign", b"\xff") for line in lines]
    others = [b"module loaded", b"[1]", b'{"event": "of another version", "run": 1}', b"[" * 99999]
    monkeypatch.setattr(Campaign, "closed", property(lambda self: True))
    jobs = PlayedJobs([*torn, *lines[:9], *mixed, *others, *lines[9:], *torn, DONE])
    assert shown(tmp_path, jobs) == folder
    told = capsys.readouterr().err
    played = PlayedJobs([*lines, DONE])
    assert shown(tmp_path, played) == folder
    without = capsys.readouterr().err

    def runs(text: str) -> list[str]:
        """Without what a clock measured."""
        return [line.split(" images/s")[0] for line in text.splitlines() if line.startswith("run ")]

    assert runs(told) == runs(without)
    assert runs(told)[0].startswith("run 1/5  seed ")
    assert runs(told)[-1].startswith("run 1/5  converged")
    # A closing line is no news to show: the campaign is looked at here. It only ends the waiting.
    assert "benchmark" not in told
    assert [job.submitted[0].asked_soon for job in (jobs, played)] == [1, 1]


def test_a_failed_job_s_words_and_exit_code_come_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = make_campaign(tmp_path)
    events = printed(folder, capsys, (1,))
    jobs = PlayedJobs([*events, slurm_state("FAILED", "NonZeroExitCode", 3)])
    with pytest.raises(FourminError) as caught:
        shown(tmp_path, jobs)
    assert caught.value.exit_code == 3
    assert str(folder) in caught.value.why
    assert caught.value.why.splitlines()[1:] == ["error: no such thing", " next: do it"]
    assert caught.value.next_step == ""


def test_an_interrupt_cancels_the_job(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = make_campaign(tmp_path)
    jobs = PlayedJobs([*printed(folder, capsys, (1,)), KeyboardInterrupt])
    with pytest.raises(FourminError, match="Slurm job 7 is cancelled") as caught:
        shown(tmp_path, jobs)
    assert caught.value.exit_code == 130
    assert caught.value.next_step == f"fourmin run --resume {folder} --launcher slurm"
    assert jobs.submitted[0].cancelled


def test_a_job_without_an_outcome_is_not_submitted_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_campaign(tmp_path)
    jobs = PlayedJobs([slurm_state("FORGOTTEN")])
    with pytest.raises(FourminError, match="without an outcome of any run") as caught:
        shown(tmp_path, jobs)
    assert caught.value.why == "no campaign was registered"
    assert len(jobs.submitted) == 1
