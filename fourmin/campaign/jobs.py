"""`fourmin run` from outside a cluster: jobs are submitted, shown live, and cancelled on Ctrl-C.

The command inside a job is the campaign's only writer. This one shows what it prints, and
submits the next job where a campaign has more runs than one job is to have.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from fourmin.base.errors import INTERRUPTED, FourminError
from fourmin.campaign.events import (
    CampaignClosed,
    CampaignOpened,
    Note,
    Observer,
    RunFinished,
    event_from_line,
)
from fourmin.launch.batch import CAMPAIGN_POINTER, batch_script
from fourmin.launch.site import Site
from fourmin.launch.submit import SlurmJob, new_job_folder
from fourmin.ledger.campaign import Campaign
from fourmin.recipe.configuration import Configuration


@dataclass(frozen=True)
class Submission:
    """What is submitted, again and again until the campaign has ended."""

    configuration: Configuration
    site: Site
    arguments: tuple[str, ...]
    """Options of the `fourmin run` inside."""
    results_dir: Path

    def script(self, folder: Path) -> str:
        """The batch script of a job whose files lie in `folder`."""
        pointer = folder / CAMPAIGN_POINTER
        command = [
            *(sys.executable, "-m", "fourmin", "run", *self.arguments),
            *("--launcher", "slurm", "--campaign-file", str(pointer), "--json"),
        ]
        return batch_script(self.configuration, self.site, command, folder, Path.cwd())


def run_in_jobs(submission: Submission, observer: Observer) -> Path:
    """Submit, follow and submit again until the campaign is closed; returns its folder.

    `observer` is told what happens in the campaign, and of the jobs in notes. Raises FourminError
    when a job ends without it, with the job's exit code, and on Ctrl-C.
    """
    folder = new_job_folder(submission.results_dir, submission.configuration.preset)
    script = submission.script(folder)
    follower = _Follower(observer)
    while True:
        job = SlurmJob.submit(script, folder)
        observer.take(Note(f"Slurm job {job.number} submitted; its files are in {folder}"))
        runs = follower.follow(job)
        if follower.campaign is not None and Campaign(follower.campaign).closed:
            return follower.campaign
        if not runs:
            raise FourminError(
                f"Slurm job {job.number} ended without an outcome of any run",
                follower.what_is_left(),
                follower.how_to_go_on(),
            )


class _Follower:
    """Tells what the jobs of one campaign print and come to."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self._finished = 0
        self.campaign: Path | None = None

    def follow(self, job: SlurmJob) -> int:
        """Follow one job until it is over; the runs that it finished.

        Raises FourminError unless it ended well, or Slurm has forgotten how it ended.
        """
        last = None
        before = self._finished
        try:
            for said in job.follow():
                if isinstance(said, bytes):
                    self._pass_on(said, job)
                else:
                    last = said
                    self._observer.take(Note(f"Slurm job {job.number}: {said.text}"))
        except KeyboardInterrupt:
            self._observer.take(Note(f"cancelling Slurm job {job.number}"))
            job.cancel()
            raise FourminError(
                f"interrupted; Slurm job {job.number} is cancelled",
                self.what_is_left(),
                self.how_to_go_on(),
                exit_code=INTERRUPTED,
            ) from None
        if last is not None and last.exit_code == 0 and last.name in ("COMPLETED", "FORGOTTEN"):
            return self._finished - before
        lines = job.errors()
        raise FourminError(
            f"Slurm job {job.number} ended: {last.text if last else 'unknown'}",
            "\n".join([self.what_is_left(), *lines]),
            "" if any(line.startswith(" next: ") for line in lines) else self.how_to_go_on(),
            exit_code=(last.exit_code if last else 0) or 2,
        )

    def what_is_left(self) -> str:
        """Where the campaign is, for a message."""
        return f"the campaign is {self.campaign}" if self.campaign else "no campaign was registered"

    def how_to_go_on(self) -> str:
        """The command that goes on with the campaign."""
        if self.campaign is None:
            return ""
        return f"fourmin run --resume {self.campaign} --launcher slurm"

    def _pass_on(self, line: bytes, job: SlurmJob) -> None:
        event = event_from_line(line)
        if isinstance(event, CampaignOpened):
            self.campaign = Path(event.campaign)
        elif isinstance(event, RunFinished):
            self._finished += 1
        if isinstance(event, CampaignClosed):
            job.ask_soon()  # who follows checks the campaign anew
        elif event is not None:
            self._observer.take(event)
