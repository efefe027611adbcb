"""`fourmin run` from outside a cluster: jobs are submitted, shown live, and cancelled on Ctrl-C.

The command inside a job is the campaign's only writer. This one shows what it prints, and
submits the next job where a campaign has more runs than one job is to have.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fourmin.base.errors import INTERRUPTED, FourminError
from fourmin.campaign.execute import Observer
from fourmin.cli.display import Display
from fourmin.cli.output import stderr
from fourmin.launch.batch import CAMPAIGN_POINTER, batch_script
from fourmin.launch.site import Site
from fourmin.launch.submit import SlurmJob, new_job_folder
from fourmin.ledger.campaign import Campaign, Slot
from fourmin.log.records import MLLOG, Record
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


def run_in_jobs(submission: Submission, display: Display, observer: Observer) -> Path:
    """Submit, follow and submit again until the campaign is closed; returns its folder.

    `observer` is told what happens in the campaign, `display` what happens to the jobs.
    Raises FourminError when a job ends without it, with the job's exit code, and on Ctrl-C.
    """
    folder = new_job_folder(submission.results_dir, submission.configuration.preset)
    script = submission.script(folder)
    follower = _Follower(display, observer)
    while True:
        job = SlurmJob.submit(script, folder)
        display.note(f"Slurm job {job.number} submitted; its files are in {folder}")
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
    """Shows the jobs of one campaign."""

    def __init__(self, display: Display, observer: Observer) -> None:
        self._display = display
        self._observer = observer
        self._slot = Slot(0, 0)
        self._finished = 0
        self.campaign: Path | None = None

    def follow(self, job: SlurmJob) -> int:
        """Show one job until it is over; the runs that it finished.

        Raises FourminError unless it ended well, or Slurm has forgotten how it ended.
        """
        last = None
        before = self._finished
        try:
            for event in job.follow():
                if isinstance(event, Mapping):
                    self._show(event)
                else:
                    last = event
                    self._display.note(f"Slurm job {job.number}: {event.text}")
        except KeyboardInterrupt:
            self._display.note(f"cancelling Slurm job {job.number}")
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
        for line in lines:
            stderr().print(line)
        raise FourminError(
            f"Slurm job {job.number} ended: {last.text if last else 'unknown'}",
            self.what_is_left(),
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

    def _show(self, event: Mapping[str, Any]) -> None:
        kind = event.get("event")
        if kind == "campaign-opened":
            self.campaign = Path(event["campaign"])
            self._observer.campaign_opened(Campaign(self.campaign))
        elif kind == "run-starting":
            self._slot = Slot(event["run"], event["seed"])
            self._observer.run_starting(self._slot, event["attempt"])
        elif kind == "run-restarting":
            told = event["restart"], event["epoch"], event["why"]
            self._observer.run_restarting(self._slot, *told)
        elif kind == "record":
            record = Record(
                line=0,
                namespace="",
                time_ms=event["time_ms"],
                event_type=event["event_type"],
                key=event["key"],
                value=event["value"],
                metadata=event["metadata"],
                dialect=MLLOG,
            )
            self._observer.record(self._slot, record)
        elif kind == "run-finished":
            self._finished += 1
            self._observer.run_finished(self._slot, event)
        elif kind == "note":
            self._display.note(str(event["text"]))
