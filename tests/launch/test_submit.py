"""A job as seen from outside, with what Slurm says of it played from a list."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from fourmin.base.errors import FourminError
from fourmin.launch import sbatch, submit
from fourmin.launch.sbatch import SlurmJob, SlurmJobs, slurm_state
from fourmin.launch.site import Site
from fourmin.launch.submit import JobState
from fourmin.recipe.presets import load_preset

Play = Callable[[list[str]], list[tuple[str, ...]]]


def said(state: str, code: str = "0:0", reason: str = "None") -> str:
    return f"JobId=7 JobName=x JobState={state} Reason={reason} ExitCode={code} Y=1"


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Play:
    """Slurm answers `scontrol` with each text in turn, the last one again and again."""
    monkeypatch.setattr(submit, "POLL_SECONDS", 0.0)
    monkeypatch.setattr(submit, "ASK_SECONDS", (0.0, 0.0))
    monkeypatch.setattr(submit, "COME_BACK_SECONDS", 0.2)
    monkeypatch.setattr(submit, "CANCEL_SECONDS", 0.2)

    def start(answers: list[str]) -> list[tuple[str, ...]]:
        asked: list[tuple[str, ...]] = []

        def slurm(*command: str) -> subprocess.CompletedProcess[str]:
            asked.append(command)
            if command[0] != "scontrol":
                return subprocess.CompletedProcess(command, 0, "", "")
            answer = answers.pop(0) if len(answers) > 1 else answers[0]
            failed = "JobState" not in answer
            return subprocess.CompletedProcess(command, int(failed), answer, answer)

        monkeypatch.setattr(sbatch, "_slurm", slurm)
        return asked

    return start


@pytest.mark.parametrize(
    ("answer", "state"),
    [
        (said("PENDING", reason="Resources"), JobState("PENDING", "waiting", "Resources")),
        (
            said("FAILED", "3:0", "NonZeroExitCode"),
            JobState("FAILED", "failed", "NonZeroExitCode", 3),
        ),
        (said("COMPLETED", "3:0"), JobState("COMPLETED", "failed", "None", 3)),
        (said("CANCELLED", "0:15"), JobState("CANCELLED", "failed", "None", 143)),
        ("slurm_load_jobs error: Invalid job id specified", JobState("FORGOTTEN", "ended")),
        ("Unable to contact slurm controller", JobState("RUNNING", "running", "no answer")),
    ],
)
def test_states(play: Play, tmp_path: Path, answer: str, state: JobState) -> None:
    play([answer])
    assert SlurmJob("7", tmp_path).state() == state


def test_what_is_over_and_what_is_not() -> None:
    assert [slurm_state(n).over for n in ("PENDING", "RUNNING", "COMPLETING", "SUSPENDED")] == [
        False
    ] * 4
    assert all(slurm_state(n).over for n in ("COMPLETED", "FAILED", "TIMEOUT", "NODE_FAIL"))
    assert slurm_state("PENDING", "Resources").text == "PENDING (Resources)"


def test_output_is_followed_line_by_line_as_it_is(play: Play, tmp_path: Path) -> None:
    play([said("RUNNING"), said("RUNNING"), said("COMPLETED")])
    (tmp_path / "7.out").write_bytes(b'module \xff loaded\n{"event": "a"}\n{"ev')
    followed = SlurmJob("7", tmp_path).follow()
    assert next(followed) == b"module \xff loaded"
    assert next(followed) == b'{"event": "a"}'
    assert next(followed) == slurm_state("RUNNING", "None")
    with (tmp_path / "7.out").open("a") as file:
        file.write('ent": "c"}\n')
    assert list(followed) == [b'{"event": "c"}', slurm_state("COMPLETED", "None")]


def test_after_the_last_line_slurm_is_asked_at_once(
    play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = play([said("RUNNING"), said("COMPLETED")])
    monkeypatch.setattr(submit, "ASK_SECONDS", (1000.0, 1000.0))
    job = SlurmJob("7", tmp_path)
    followed = job.follow()
    assert next(followed) == slurm_state("RUNNING", "None")
    (tmp_path / "7.out").write_text("the last\n")
    assert next(followed) == b"the last"
    assert len(asked) == 1
    job.ask_soon()
    assert list(followed) == [slurm_state("COMPLETED", "None")]


def test_a_job_that_lost_a_node_is_followed_through_its_requeueing(
    play: Play, tmp_path: Path
) -> None:
    play([said("RUNNING"), said("NODE_FAIL"), said("PENDING", reason="BeginTime"), said("RUNNING"),
          said("COMPLETED")])  # fmt: skip
    states = [s.name for s in SlurmJob("7", tmp_path).follow() if isinstance(s, JobState)]
    assert states == ["RUNNING", "NODE_FAIL", "PENDING", "RUNNING", "COMPLETED"]


def test_a_job_that_lost_a_node_and_does_not_come_back_is_over(play: Play, tmp_path: Path) -> None:
    play([said("NODE_FAIL", "0:9")])
    assert list(SlurmJob("7", tmp_path).follow()) == [JobState("NODE_FAIL", "lost", "None", 137)]


def test_a_running_job_is_interrupted_and_then_cancelled(play: Play, tmp_path: Path) -> None:
    asked = play([said("RUNNING")])
    SlurmJob("7", tmp_path).cancel()
    cancels = [command for command in asked if command[0] == "scancel"]
    assert cancels == [("scancel", "--batch", "--signal=INT", "7"), ("scancel", "7")]
    asked = play([said("RUNNING"), said("COMPLETED")])
    SlurmJob("7", tmp_path).cancel()
    assert [c for c in asked if c[0] == "scancel"] == [("scancel", "--batch", "--signal=INT", "7")]


def test_a_host_without_slurm_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(FourminError, match="sbatch is not on PATH"):
        SlurmJobs(Site()).submit(load_preset("digits"), [], tmp_path)
