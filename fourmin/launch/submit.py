"""A Slurm job as the command outside sees it: submitted, followed through its files, cancelled.

The campaign's writer runs inside the job; nothing here writes to a campaign. The job's standard
output is followed line by line as it grows.
"""

from __future__ import annotations

import re
import secrets
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from fourmin.base.errors import FourminError

JOBS_FOLDER = ".jobs"
SCRIPT = "job.sh"
POLL_SECONDS = 0.5
ASK_SECONDS = (1.0, 10.0)
"""How often Slurm is asked, at first and at last."""
CANCEL_SECONDS = 30.0
_WAITING = ("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "RESIZING", "SUSPENDED")
_RUNNING = ("RUNNING", "COMPLETING", "STAGE_OUT", "SIGNALING", "STOPPED")
_MAY_COME_BACK = ("NODE_FAIL", "PREEMPTED", "BOOT_FAIL")
COME_BACK_SECONDS = 15.0


@dataclass(frozen=True)
class JobState:
    """What Slurm says of a job."""

    name: str
    reason: str = ""
    exit_code: int = 0

    @property
    def over(self) -> bool:
        """Whether it will not run (any more)."""
        return self.name not in (*_WAITING, *_RUNNING)

    @property
    def text(self) -> str:
        """For people, such as `PENDING (Resources)`."""
        return f"{self.name} ({self.reason})" if self.reason not in ("", "None") else self.name


def new_job_folder(results: Path, preset: str) -> Path:
    """A new folder for a job's script and output, hidden below the results folder."""
    stamp = datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    folder = results / JOBS_FOLDER / f"{preset}-{stamp}-{secrets.token_hex(3)}"
    folder.mkdir(parents=True)
    return folder.resolve()


class SlurmJob:
    """One submitted job."""

    def __init__(self, number: str, folder: Path) -> None:
        self.number = number
        self._folder = folder
        self._offset = 0
        self._next_question = 0.0

    @classmethod
    def submit(cls, script: str, folder: Path) -> SlurmJob:
        """Write `script` into `folder` and submit it. Raises FourminError with sbatch's words."""
        path = folder / SCRIPT
        path.write_text(script)
        done = _slurm("sbatch", "--parsable", str(path))
        number = done.stdout.strip().partition(";")[0]
        if done.returncode or not number.isdigit():
            raise FourminError(
                "Slurm did not take the job",
                done.stderr.strip() or done.stdout.strip(),
                f"put it right in the site file or by options; the script is {path}",
            )
        return cls(number, folder)

    def state(self) -> JobState:
        """What Slurm says now; a job that it has forgotten is over."""
        done = _slurm("scontrol", "--oneliner", "show", "job", self.number)
        if done.returncode:
            gone = "Invalid job id" in done.stderr
            return JobState("FORGOTTEN" if gone else "RUNNING", "" if gone else "no answer")
        found = dict(re.findall(r"(JobState|Reason|ExitCode)=(\S*)", done.stdout))
        code, _, number = found.get("ExitCode", "0:0").partition(":")
        ended_by = int(number) if number.isdigit() else 0
        return JobState(
            found.get("JobState", "UNKNOWN").partition("+")[0],
            found.get("Reason", ""),
            int(code) if int(code) or not ended_by else 128 + ended_by,
        )

    def ask_soon(self) -> None:
        """Ask Slurm at the next look: the job has printed its last line."""
        self._next_question = 0.0

    def follow(self) -> Iterator[bytes | JobState]:
        """Whole lines that the job prints, and each state that it takes, until it is over."""
        told: JobState | None = None
        interval = ASK_SECONDS[0]
        over_since: float | None = None
        while True:
            yield from self._lines()
            if time.monotonic() >= self._next_question:
                state = self.state()
                interval = min(ASK_SECONDS[1], interval * 1.2)
                self._next_question = time.monotonic() + interval
                if state != told:
                    told = state
                    # The first questions follow a change, so that its end is seen soon.
                    interval = ASK_SECONDS[0]
                    yield state
                if state.over:
                    over_since = over_since or time.monotonic()
                    patience = COME_BACK_SECONDS if state.name in _MAY_COME_BACK else 0.0
                    if time.monotonic() - over_since >= patience:
                        yield from self._lines()
                        return
                else:
                    over_since = None
            time.sleep(POLL_SECONDS)

    def cancel(self) -> None:
        """End the job: the command in it as by Ctrl-C, so that it writes down how it ended."""
        if self.state().name in _RUNNING:
            _slurm("scancel", "--batch", "--signal=INT", self.number)
            deadline = time.monotonic() + CANCEL_SECONDS
            while time.monotonic() < deadline:
                if self.state().over:
                    return
                time.sleep(POLL_SECONDS)
        _slurm("scancel", self.number)

    def errors(self, lines: int = 20) -> list[str]:
        """The last lines of the job's standard error."""
        try:
            text = (self._folder / f"{self.number}.err").read_text(errors="replace")
        except OSError:
            return []
        return text.splitlines()[-lines:]

    def _lines(self) -> list[bytes]:
        """Whole lines that came since the last call."""
        try:
            # Opened anew each time: that is when NFS looks at the server.
            with (self._folder / f"{self.number}.out").open("rb") as file:
                file.seek(self._offset)
                data = file.read()
        except OSError:
            return []
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        return whole.splitlines()


def _slurm(*command: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    except FileNotFoundError:
        raise FourminError(
            f"{command[0]} is not on PATH", next_step="load Slurm's module"
        ) from None
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 1, "", "no answer within 60 s")
