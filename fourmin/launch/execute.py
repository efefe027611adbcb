"""Runs a registered campaign, slot by slot, and writes its ledger: the only writer there is.

Each slot goes through the same steps: intent, workers, start (once rank 0 has asked for it),
the workers' event log, result from that log, outcome. Whatever ends a run early, the log says
so, the result is made from it, and the ledger has both.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from fourmin.errors import INTERRUPTED, NOT_CONVERGED, FourminError
from fourmin.launch import Launcher
from fourmin.launch.job import Job
from fourmin.launch.watch import Watch
from fourmin.ledger.campaign import EVENTS_FILE, Campaign, Slot
from fourmin.log import keys
from fourmin.log.reader import read_log
from fourmin.log.records import Record
from fourmin.log.writer import EventLogWriter
from fourmin.results.run_result import run_result
from fourmin.results.summary import summarize
from fourmin.system.privacy import redact


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


class Observers:
    """Several observers as one: each is told everything, in their order."""

    def __init__(self, *observers: Observer) -> None:
        self._observers = observers

    def campaign_opened(self, campaign: Campaign) -> None:
        """The campaign is registered, or goes on."""
        for observer in self._observers:
            observer.campaign_opened(campaign)

    def run_starting(self, slot: Slot, attempt: int) -> None:
        """The workers of a run are about to be started."""
        for observer in self._observers:
            observer.run_starting(slot, attempt)

    def record(self, slot: Slot, record: Record) -> None:
        """The event log has one more record."""
        for observer in self._observers:
            observer.record(slot, record)

    def run_finished(self, slot: Slot, result: Mapping[str, Any]) -> None:
        """The run's result is on disk."""
        for observer in self._observers:
            observer.run_finished(slot, result)


@dataclass(frozen=True)
class Materials:
    """What the runs of a campaign need beside its plan."""

    data_dir: Path
    manifest: Path
    system: Mapping[str, Any]
    stage: Path | None = None


def execute(
    campaign: Campaign,
    materials: Materials,
    launcher: Launcher,
    observer: Observer,
    most_runs: int | None = None,
) -> Mapping[str, Any] | None:
    """Run every slot that has no outcome yet, then close the campaign; returns the summary.

    With `most_runs`, at most so many; None is returned, and the campaign left open, where more
    remain.

    The caller holds the campaign's lock. A slot that was started before and has no outcome is
    recorded as aborted and not run again. Raises FourminError when workers fail (exit code 2
    before the run's start, 3 after it) or on an interrupt (130); what was written stays, and
    the campaign can be resumed.
    """
    observer.campaign_opened(campaign)
    ran = 0
    for slot in campaign.slots():
        if slot.status is not None:
            continue
        if ran == most_runs:
            return None
        if slot.started:
            reason = "the campaign was interrupted"
            observer.run_finished(slot, _record_outcome(campaign, slot, slot.attempts, reason))
            continue
        _run_slot(campaign, slot, materials, launcher, observer)
        ran += 1
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

    def start() -> None:
        campaign.start(slot, attempt)
        slot.started = True

    with tempfile.TemporaryDirectory(prefix="fourmin-") as scratch:
        job = _job(campaign, slot, attempt, materials, Path(scratch))
        with _interrupts_recorded(campaign, slot, attempt, observer):
            failure = Watch(job, start, lambda record: observer.record(slot, record)).until_the_end(
                launcher
            )
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
            log.point(keys.ABORT, redact(failure), namespace=keys.FOURMIN_NAMESPACE)
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
        stage=None if materials.stage is None else materials.stage.resolve(),
    )
