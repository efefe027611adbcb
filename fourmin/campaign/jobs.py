"""`fourmin run` from outside a cluster: jobs are submitted, shown live, and cancelled on Ctrl-C.

The command inside a job is the campaign's only writer. This one shows what it prints, and
submits the next job where a campaign has more runs than one job is to have.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from fourmin.base.errors import INTERRUPTED, USAGE, FourminError, Interrupted
from fourmin.base.text import command
from fourmin.campaign.events import (
    CampaignClosed,
    CampaignOpened,
    Note,
    Observer,
    RunFinished,
    event_from_line,
)
from fourmin.campaign.request import Existing, Placement, Wanted
from fourmin.launch import Submitter
from fourmin.launch.submit import FollowedJob
from fourmin.ledger.campaign import Campaign
from fourmin.recipe.configuration import Configuration

JOBS_FOLDER = ".jobs"
CAMPAIGN_POINTER = "campaign"
"""The file in a job's folder that names the campaign, once it is registered."""


@dataclass(frozen=True)
class Submission:
    """What is submitted, again and again until the campaign has ended."""

    submitter: Submitter
    launcher: str
    configuration: Configuration
    options: tuple[str, ...]
    """Of the `fourmin run` inside."""
    results: Path
    """The results folder, where that runs."""

    def describe(self) -> str:
        """What is submitted. Raises FourminError for what the cluster could not take."""
        folder = self.results / JOBS_FOLDER / "JOB"
        return self.submitter.describe(self.configuration, self._options(folder), folder)

    def new_folder(self) -> Path:
        """A name for a new folder of a job's files, hidden below the results folder."""
        stamp = datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%SZ")
        name = f"{self.configuration.preset}-{stamp}-{secrets.token_hex(3)}"
        return self.results / JOBS_FOLDER / name

    def submit(self, folder: Path) -> FollowedJob | str:
        """Submit a job whose files lie in `folder`. Raises FourminError."""
        return self.submitter.submit(self.configuration, self._options(folder), folder)

    def _options(self, folder: Path) -> list[str]:
        return [*self.options, f"--campaign-file={folder / CAMPAIGN_POINTER}"]


def inner_options(wanted: Wanted, placement: Placement, root: Path) -> tuple[str, ...]:
    """Options of the `fourmin run` that runs inside the cluster, without its launcher.

    Relative paths are taken below `root`.
    """
    values: dict[str, Any] = {
        "--site": placement.site_file,
        "--runs-per-job": placement.runs_per_job,
        "--max-restarts": placement.max_restarts,
        "--data-dir": placement.data_dir,
        "--stage": placement.stage,
        "--keep-states": placement.keep_states,
        "--profile": placement.profile,
    }
    flags = placement.timeouts.options()
    flags.append("--trial" if placement.trial else "--no-trial")
    flags += ["--exclude-slow"] if placement.exclude_slow else []
    if isinstance(wanted, Existing):
        values |= {"--campaign": wanted.folder, "--base": wanted.base}
    else:
        request = wanted.request
        values["--preset"] = request.preset
        values |= {f"--{name.replace('_', '-')}": v for name, v in request.options.items()}
        values |= {
            "--set": request.settings,
            "--tuning": request.tuning,
            "--runs": request.runs,
            "--seed": request.seed,
            "--results-dir": wanted.results,
            "--submitter": request.submitter,
            "--system": request.system_name,
        }
        flags += ["--practice"] if request.practice else []
    return (*_written(values, root), *flags)


def _written(values: Mapping[str, Any], root: Path) -> Iterator[str]:
    """Options of a command line; None is left out, a list repeated, paths are below `root`."""
    for name, value in values.items():
        for one in value if isinstance(value, (list, tuple)) else [value]:
            if one is not None:
                yield f"{name}={root / one if isinstance(one, Path) else one}"


def run_in_jobs(submission: Submission, observer: Observer) -> Path | str:
    """Submit, follow and submit again until the campaign is closed; returns its folder.

    Text instead of it says what the user is to do, where nobody can follow what was submitted.
    `observer` is told what happens in the campaign, and of the jobs in notes. Raises FourminError
    when a job ends without it, with the job's exit code, and on Ctrl-C.
    """
    folder = submission.new_folder()
    follower = _Follower(observer, submission.launcher)
    while True:
        job = submission.submit(folder)
        if isinstance(job, str):
            return job
        observer.take(Note(f"{job.name} submitted; its files are in {folder}"))
        runs = follower.follow(job)
        if follower.campaign is not None and Campaign(follower.campaign).closed:
            return follower.campaign
        if not runs:
            raise follower.error(f"{job.name} ended without an outcome of any run")


class _Follower:
    """Tells what the jobs of one campaign print and come to."""

    def __init__(self, observer: Observer, launcher: str) -> None:
        self._launcher = launcher
        self._observer = observer
        self._finished = 0
        self.campaign: Path | None = None

    def follow(self, job: FollowedJob) -> int:
        """Follow one job until it is over; the runs that it finished.

        Raises FourminError unless it ended well, or nobody knows how it ended.
        """
        last = None
        before = self._finished
        try:
            for said in job.follow():
                if isinstance(said, bytes):
                    self._pass_on(said, job)
                else:
                    last = said
                    self._observer.take(Note(f"{job.name}: {said.text}"))
        except (KeyboardInterrupt, Interrupted):
            self._observer.take(Note(f"cancelling {job.name}"))
            job.cancel()
            raise self.error(f"interrupted; {job.name} is cancelled", INTERRUPTED) from None
        if last is not None and last.phase == "ended":
            return self._finished - before
        how, code = (last.text, last.exit_code) if last else ("unknown", 0)
        raise self.error(f"{job.name} ended: {how}", code or USAGE, job.errors())

    def error(self, what: str, exit_code: int = USAGE, lines: Sequence[str] = ()) -> FourminError:
        """Why no job follows, with what is left of the campaign, and how to go on with it where
        `lines`, the last ones that the job said, do not say so.
        """
        left, step = "no campaign was registered", ""
        if self.campaign is not None:
            left = f"the campaign is {self.campaign}"
            if not any(line.startswith(" next: ") for line in lines):
                step = command("run", "--resume", self.campaign, "--launcher", self._launcher)
        return FourminError(what, "\n".join([left, *lines]), step, exit_code)

    def _pass_on(self, line: bytes, job: FollowedJob) -> None:
        event = event_from_line(line)
        if isinstance(event, CampaignOpened):
            self.campaign = Path(event.campaign)
        elif isinstance(event, RunFinished):
            self._finished += 1
        if isinstance(event, CampaignClosed):
            job.ask_soon()  # who follows checks the campaign anew
        elif event is not None:
            self._observer.take(event)
