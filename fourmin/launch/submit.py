"""A cluster's job as the command outside sees it, followed through its files until it is over.

The campaign's writer runs inside the job; nothing here writes to a campaign. The job's standard
output is followed line by line as it grows.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

POLL_SECONDS = 0.5
ASK_SECONDS = (1.0, 10.0)
"""How often the cluster is asked, at first and at last."""
CANCEL_SECONDS = 30.0
ERROR_LINES = 20
COME_BACK_SECONDS = 15.0
"""How long a job that was lost is waited for."""

Phase = Literal["waiting", "running", "ended", "failed", "lost"]


@dataclass(frozen=True)
class JobState:
    """What the cluster says of a job, in its own word.

    `phase`: `ended` is well, or nobody knows how; `lost` is one that may be started again.
    """

    name: str
    phase: Phase
    reason: str = ""
    exit_code: int = 0

    @property
    def over(self) -> bool:
        return self.phase not in ("waiting", "running")

    @property
    def text(self) -> str:
        """For people, such as `PENDING (Resources)`."""
        return f"{self.name} ({self.reason})" if self.reason not in ("", "None") else self.name


class FollowedJob(ABC):
    """One job, in which `fourmin run` runs; its output grows in `<files>.out` and `<files>.err`.

    `name` is what messages call it, such as `Slurm job 7`.
    """

    def __init__(self, name: str, files: Path) -> None:
        self.name = name
        self._files = files
        self._offset = 0
        self._next_question = 0.0

    @abstractmethod
    def state(self) -> JobState:
        """What the cluster says now; a job that it has forgotten is over."""

    @abstractmethod
    def interrupt(self) -> None:
        """Send the command in the job what Ctrl-C sends, so that it writes down how it ended."""

    @abstractmethod
    def end(self) -> None: ...

    def ask_soon(self) -> None:
        """The command in it has printed its last line: its state is asked for at the next look."""
        self._next_question = 0.0

    def follow(self) -> Iterator[bytes | JobState]:
        """Whole lines that it prints, and each state that it takes, until it is over."""
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
                    patience = COME_BACK_SECONDS if state.phase == "lost" else 0.0
                    if time.monotonic() - over_since >= patience:
                        yield from self._lines()
                        return
                else:
                    over_since = None
            time.sleep(POLL_SECONDS)

    def cancel(self) -> None:
        """End it, the command in it first, as by Ctrl-C, where that runs."""
        if self.state().phase == "running":
            self.interrupt()
            deadline = time.monotonic() + CANCEL_SECONDS
            while time.monotonic() < deadline:
                if self.state().over:
                    return
                time.sleep(POLL_SECONDS)
        self.end()

    def errors(self) -> list[str]:
        """The last lines that the command in it said on standard error."""
        try:
            text = self._files.with_name(f"{self._files.name}.err").read_text(errors="replace")
        except OSError:
            return []
        return text.splitlines()[-ERROR_LINES:]

    def _lines(self) -> list[bytes]:
        """Whole lines that came since the last call."""
        try:
            # Opened anew each time: that is when NFS looks at the server.
            with self._files.with_name(f"{self._files.name}.out").open("rb") as file:
                file.seek(self._offset)
                data = file.read()
        except OSError:
            return []
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        return whole.splitlines()
