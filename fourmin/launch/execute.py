"""Runs a registered campaign, slot by slot, and writes its ledger: the only writer there is.

Each slot goes through the same steps: intent, workers, start (once rank 0 has asked for it),
the workers' event log, result from that log, outcome. Whatever ends a run early, the log says
so, the result is made from it, and the ledger has both.
"""

from __future__ import annotations

import queue
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from fourmin.errors import INTERRUPTED, NOT_CONVERGED, FourminError
from fourmin.launch import Launched, Launcher
from fourmin.launch.control import ControlServer, Message
from fourmin.launch.job import Job
from fourmin.ledger.campaign import EVENTS_FILE, Campaign, Slot
from fourmin.log import keys
from fourmin.log.reader import read_log
from fourmin.log.records import Record
from fourmin.log.writer import EventLogWriter
from fourmin.results.run_result import run_result
from fourmin.results.summary import summarize

GRACE_SECONDS = 1.5
"""How long the other workers may take to say what they met, once one has failed."""
POLL_SECONDS = 0.05


class Observer(Protocol):
    """Who watches a campaign: a display, a stream of JSON, or nobody."""

    def campaign_opened(self, campaign: Campaign) -> None:
        """The campaign is registered, or goes on."""

    def run_starting(self, slot: Slot, attempt: int) -> None:
        """The workers of a run are about to be started."""

    def record(self, slot: Slot, record: Record) -> None:
        """The event log has one more record."""

    def run_finished(self, slot: Slot, result: Mapping[str, Any]) -> None:
        """The run's result is on disk."""


@dataclass(frozen=True)
class Materials:
    """What the runs of a campaign need beside its plan."""

    data_dir: Path
    manifest: Path
    system: Mapping[str, Any]


@dataclass(frozen=True)
class _Failure:
    summary: str
    details: str


def execute(
    campaign: Campaign, materials: Materials, launcher: Launcher, observer: Observer
) -> Mapping[str, Any]:
    """Run every slot that has no outcome yet, then close the campaign; returns the summary.

    The caller holds the campaign's lock. A slot that was started before and has no outcome is
    recorded as aborted and not run again. Raises FourminError when workers fail (exit code 2
    before the run's start, 3 after it) or on an interrupt (130); what was written stays, and
    the campaign can be resumed.
    """
    observer.campaign_opened(campaign)
    for slot in campaign.slots():
        if slot.status is not None:
            continue
        if slot.started:
            reason = "the campaign was interrupted"
            observer.run_finished(slot, _record_outcome(campaign, slot, slot.attempts, reason))
            continue
        _run_slot(campaign, slot, materials, launcher, observer)
    summary = summarize(campaign.plan, campaign.digest, campaign.head, read_results(campaign))
    campaign.close(summary)
    return summary


def read_results(campaign: Campaign) -> list[dict[str, Any]]:
    """The result of every run that has one, made anew from its event log, in run order."""
    return [
        run_result(read_log(campaign.run_folder(slot.run) / EVENTS_FILE))
        for slot in campaign.slots()
        if slot.status is not None
    ]


def _run_slot(
    campaign: Campaign,
    slot: Slot,
    materials: Materials,
    launcher: Launcher,
    observer: Observer,
) -> None:
    attempt = campaign.intend(slot)
    observer.run_starting(slot, attempt)
    with tempfile.TemporaryDirectory(prefix="fourmin-") as scratch:
        job = _job(campaign, slot, attempt, materials, Path(scratch))
        with _interrupts_recorded(campaign, slot, attempt, observer):
            failure = _Watch(campaign, slot, attempt, job, observer).until_the_end(launcher)
    if failure is None:
        observer.run_finished(slot, _record_outcome(campaign, slot, attempt, None))
        return
    if not slot.started:
        raise FourminError(
            f"run {slot.run} could not start: {failure.summary}",
            failure.details,
            f"put it right, then: fourmin run --resume {campaign.folder}",
        )
    observer.run_finished(slot, _record_outcome(campaign, slot, attempt, failure.summary))
    raise FourminError(
        f"run {slot.run} failed and counts as not converged: {failure.summary}",
        failure.details,
        f"fourmin run --resume {campaign.folder} goes on with the next run",
        exit_code=NOT_CONVERGED,
    )


@contextmanager
def _interrupts_recorded(
    campaign: Campaign, slot: Slot, attempt: int, observer: Observer
) -> Iterator[None]:
    """Turn Ctrl-C into an outcome in the ledger and the error that ends the command."""
    try:
        yield
    except KeyboardInterrupt:
        if slot.started:
            result = _record_outcome(campaign, slot, attempt, "interrupted by the user")
            observer.run_finished(slot, result)
        raise FourminError(
            f"interrupted in run {slot.run}",
            f"it {'counts as not converged' if slot.started else 'had not started'}; "
            "nothing that was written is lost",
            f"fourmin run --resume {campaign.folder}",
            exit_code=INTERRUPTED,
        ) from None


def _record_outcome(
    campaign: Campaign, slot: Slot, attempt: int, failure: str | None
) -> Mapping[str, Any]:
    """Make the result from the log alone and record it; a failure goes into the log first."""
    events = campaign.run_folder(slot.run) / EVENTS_FILE
    if failure is not None:
        with EventLogWriter(events, resume=True) as log:
            log.point(keys.ABORT, failure, namespace=keys.FOURMIN_NAMESPACE)
            log.end(keys.RUN_STOP, None, status=keys.ABORTED)
            log.sync()
    result = run_result(read_log(events))
    campaign.finish(slot, attempt, result["status"], result)
    return result


def _job(campaign: Campaign, slot: Slot, attempt: int, materials: Materials, scratch: Path) -> Job:
    plan = campaign.plan
    return Job(
        configuration=campaign.configuration,
        ruleset=plan["ruleset"],
        run=slot.run,
        attempt=attempt,
        seed=slot.seed,
        campaign=campaign.digest,
        practice=campaign.practice,
        submitter=plan["submitter"],
        system_name=plan["system"],
        system=materials.system,
        system_digest=plan["system_digest"],
        package_digest=plan["package_digest"],
        dataset=plan["dataset"],
        data_dir=materials.data_dir.resolve(),
        manifest=materials.manifest.resolve(),
        events_log=(campaign.run_folder(slot.run) / EVENTS_FILE).resolve(),
        control_socket=scratch / "control",
        scratch=scratch,
    )


class _Watch:
    """Watches the workers of one attempt until they have ended, one way or another."""

    def __init__(
        self, campaign: Campaign, slot: Slot, attempt: int, job: Job, observer: Observer
    ) -> None:
        self._campaign = campaign
        self._slot = slot
        self._attempt = attempt
        self._job = job
        self._observer = observer
        self._tail = LogTail(job.events_log)
        self._server = ControlServer(job.control_socket)
        self._workers: set[int] = set()
        self._finished: set[int] = set()
        self._first_failure: Message | None = None
        self._deadline = float("inf")

    def until_the_end(self, launcher: Launcher) -> _Failure | None:
        """Start the workers and return when all are gone: None, or why they failed."""
        launched = launcher.start(self._job)
        try:
            while launched.exit_code() is None and time.monotonic() < self._deadline:
                self._observe()
                self._listen(POLL_SECONDS)
            while self._listen(0):
                pass
            self._observe()
        finally:
            launched.kill(self._workers)
            self._server.close()
        return self._verdict(launched)

    def _observe(self) -> None:
        for record in self._tail.new_records():
            self._observer.record(self._slot, record)

    def _listen(self, seconds: float) -> bool:
        """Act on one message of a worker; False when none came within `seconds`."""
        try:
            message = self._server.messages.get(timeout=seconds or 0.001)
        except queue.Empty:
            return False
        self._workers.add(message.pid)
        if message.kind == "ready" and not self._slot.started:
            self._campaign.start(self._slot, self._attempt)
            self._slot.started = True
            self._server.go(message.rank)
        elif message.kind == "finished":
            self._finished.add(message.rank)
        elif message.kind in ("failed", "lost") and self._first_failure is None:
            self._first_failure = message
            self._deadline = time.monotonic() + GRACE_SECONDS
        return True

    def _verdict(self, launched: Launched) -> _Failure | None:
        message = self._first_failure
        if message is not None and message.kind == "failed":
            return _Failure(
                f"worker {message.rank}: {message.data['summary']}", str(message.data["details"])
            )
        if message is not None:
            return _Failure(
                f"worker {message.rank} (process {message.pid}) died without a word",
                "it was killed, ran out of memory or crashed" + _quoted(launched.output()),
            )
        if len(self._finished) < self._job.configuration.workers:
            code = launched.exit_code()
            return _Failure(
                f"the workers ended early (the launcher's exit code is {code})",
                _quoted(launched.output()).strip(),
            )
        return None


class LogTail:
    """Reads an event log that is being written: whole lines only, each once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

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
