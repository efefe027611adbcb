"""Watches the workers of one attempt until they have ended, one way or another."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fourmin.launch import Launched, Launcher
from fourmin.launch.control import ControlMessage
from fourmin.launch.job import Job
from fourmin.launch.timeouts import LAST_WORDS_SECONDS, Waiting
from fourmin.log.reader import read_log
from fourmin.log.records import Record

GRACE_SECONDS = 1.5
"""How long the other workers may take to say what they met, once one has failed, and all of them
to end once they have finished."""
POLL_SECONDS = 0.05
LONGEST_LOOK = 1.0
"""Seconds that may pass between two looks and count as silence: what is more, the command slept."""


@dataclass(frozen=True)
class Failure:
    """Why an attempt ended early: one line, and what was said beside it.

    `final` where the same would happen again; `lasting` where it is the place that the run is in,
    such as a full disk: `details` is what puts it right.
    """

    summary: str
    details: str
    final: bool = False
    lasting: bool = False


class Watch:
    """One launch of an attempt: its workers' messages, its event log, and how it ended.

    `on_ready` is called once, when rank 0 asks whether the clock may start, and answered when it
    returns; after a restart nobody asks. `on_record` is called for every record that the event
    log gains. `say` is told which workers are waited for, and what they say to the user.
    """

    def __init__(
        self,
        job: Job,
        on_ready: Callable[[], None],
        on_record: Callable[[Record], None],
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._job = job
        self._say = say
        self._importing = _Importing(job.configuration.workers, say)
        self._on_ready = on_ready
        self._on_record = on_record
        self._tail = LogTail(job.events_log)
        self._started = False
        self._finished: set[int] = set()
        self._first_failure: ControlMessage | None = None
        self._deadline = float("inf")
        self._silence = _Silence()
        self._stuck: Failure | None = None
        self.stopped_ms: int | None = None
        """When rank 0 was heard to say that the run's clock has stopped."""

    def until_the_end(self, launcher: Launcher) -> Failure | None:
        """Start the workers and return when all are gone: None, or why they failed."""
        launched = launcher.start(self._job)
        try:
            while launched.exit_code() is None and time.monotonic() < self._deadline:
                self._observe()
                self._importing.look()
                heard = self._listen(launched, POLL_SECONDS)
                if self._silence.too_long() and not heard:
                    self._stuck = self._silence.told()
                    break
            # The launcher can be seen to end before its workers' last words have come.
            patience = time.monotonic() + LAST_WORDS_SECONDS
            while self._listen(launched, 0) or (
                not self._settled() and time.monotonic() < patience
            ):
                pass
            self._observe()
        finally:
            launched.kill()
        return self._verdict(launched)

    def _settled(self) -> bool:
        """Whether it is known how the workers ended."""
        everyone = len(self._finished) == self._job.configuration.workers
        return everyone or self._first_failure is not None

    def _observe(self) -> None:
        for record in self._tail.new_records():
            self._on_record(record)

    def _listen(self, launched: Launched, seconds: float) -> bool:
        """Act on one message of a worker; False when none came within `seconds`."""
        try:
            message = launched.messages.get(timeout=seconds or 0.001)
        except queue.Empty:
            return False
        self._importing.heard(message)
        if message.kind == "ready" and not self._started:
            self._started = True
            self._on_ready()
            launched.go(message.rank)
        elif message.kind == "progress":
            self._silence.broken_by(message)
        elif message.kind == "note":
            self._say(str(message.data["text"]))
        elif message.kind == "stopped":
            self._silence.broken_by(message)
            self.stopped_ms = message.received_ms
        elif message.kind == "finished":
            self._finished.add(message.rank)
            if len(self._finished) == self._job.configuration.workers:
                # What a library left running may keep a process whose work is done.
                self._deadline = time.monotonic() + GRACE_SECONDS
        elif message.kind in ("failed", "lost", "node-lost"):
            self._blame(message)
        return True

    def _blame(self, message: ControlMessage) -> None:
        """Keep the first failure; a node that has gone explains what workers elsewhere met."""
        first = self._first_failure
        if first is None:
            self._deadline = time.monotonic() + GRACE_SECONDS
        if first is None or (message.kind == "node-lost" and first.kind != "node-lost"):
            self._first_failure = message

    def _verdict(self, launched: Launched) -> Failure | None:
        message = self._first_failure
        if message is not None and message.kind == "node-lost":
            return Failure(
                f"node {message.node} {message.data['summary']}", str(message.data["details"])
            )
        where = f" on node {message.node}" if message is not None and message.node else ""
        if message is not None and message.kind == "failed":
            return Failure(
                f"worker {message.rank}{where}: {message.data['summary']}",
                str(message.data["details"]),
                final=bool(message.data["final"]),
                lasting=bool(message.data.get("lasting")),
            )
        if message is not None:
            return Failure(
                f"worker {message.rank} (process {message.pid}){where} died without a word",
                "it was killed, ran out of memory or crashed" + _quoted(launched.output()),
            )
        if len(self._finished) < self._job.configuration.workers:
            if self._stuck is not None:
                return self._stuck
            code = launched.exit_code()
            return Failure(
                f"the workers ended early (the launcher's exit code is {code})",
                _quoted(launched.output()).strip(),
            )
        return None


class _Importing:
    """Which workers have not said that they have imported what they need."""

    def __init__(self, workers: int, say: Callable[[str], None]) -> None:
        self._left = {rank: f"worker {rank}" for rank in range(workers)}
        self._waiting = Waiting(say, workers, "workers to import the training stack")

    def heard(self, message: ControlMessage) -> None:
        if message.kind == "hello":
            if message.node and message.rank in self._left:
                self._left[message.rank] += f" on {message.node}"
        elif message.kind == "imported":
            self._left.pop(message.rank, None)
        else:
            self._left.clear()  # somebody is past it, or has failed

    def look(self) -> None:
        """Tell of them, now and then."""
        self._waiting.look([*self._left.values()])


class _Silence:
    """How long rank 0 has not said what it is at, while it promised to.

    Only the command's own waking time counts: one that was stopped, or found no processor, has
    not listened.
    """

    def __init__(self) -> None:
        self._seconds = 0.0
        self._looked = time.monotonic()
        self._last: ControlMessage | None = None

    def broken_by(self, message: ControlMessage) -> None:
        """Rank 0 has spoken."""
        self._seconds = 0.0
        self._last = message if message.data["within"] is not None else None

    def too_long(self) -> bool:
        """Whether it has lasted longer than was promised."""
        now = time.monotonic()
        self._seconds += min(now - self._looked, LONGEST_LOOK)
        self._looked = now
        return self._last is not None and self._seconds > float(self._last.data["within"])

    def told(self) -> Failure:
        """Why a run that stands still is ended."""
        assert self._last is not None
        where = f" on node {self._last.node}" if self._last.node else ""
        return Failure(
            f"no worker has come further for {self._seconds:.0f} s",
            f"worker 0{where} was last heard of at {self._last.data['doing']}; all workers wait "
            "for something that does not end: a file system, a device or each other",
        )


class LogTail:
    """Reads an event log that is being written: whole lines only, each once.

    What a log holds when the tail is made, from before a restart, is left out.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = path.stat().st_size if path.exists() else 0

    def new_records(self) -> list[Record]:
        """The records that were added since the last call."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:
            return []
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        return list(read_log(whole).records) if whole else []


def _quoted(output: str, lines: int = 8) -> str:
    """The last lines of what workers printed, for an error message."""
    kept = [line for line in output.splitlines() if line.strip()][-lines:]
    return "; the last lines were:\n" + "\n".join(f"  {line}" for line in kept) if kept else ""
