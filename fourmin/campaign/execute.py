"""Runs a registered campaign, slot by slot, and writes its ledger: the only writer there is.

Each slot goes through the same steps: intent, workers, start (once rank 0 has asked for it),
the workers' event log, result from that log, outcome. A run that is cut off goes on in the same
log, its clock running, as that and its checkpoints allow. Where it cannot, the log says so, the
result is made from it, and the ledger has both.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fourmin.base.errors import NOT_CONVERGED, FourminError, Interrupted
from fourmin.base.mishaps import explained, going_on
from fourmin.base.processes import Scratch
from fourmin.base.text import command
from fourmin.campaign.events import (
    CampaignOpened,
    Note,
    Observer,
    RecordLogged,
    RunFinished,
    RunRestarting,
    RunStarting,
)
from fourmin.campaign.request import Placement
from fourmin.campaign.requirements import Data
from fourmin.campaign.watch import Failure, Watch
from fourmin.launch import Launcher
from fourmin.launch.job import Job, complete_checkpoints
from fourmin.ledger.campaign import CHECKPOINTS_FOLDER, EVENTS_FILE, Campaign, RunState
from fourmin.log import keys
from fourmin.log.reader import read_log
from fourmin.log.records import Record
from fourmin.log.timeline import Timeline
from fourmin.log.writer import EventLogWriter
from fourmin.results.run_result import RunFacts
from fourmin.results.summary import summarize
from fourmin.ruleset import load_ruleset
from fourmin.system.privacy import redact


@dataclass(frozen=True)
class Materials:
    """What the runs of a campaign need beside its plan."""

    data: Data
    system: Mapping[str, Any]
    placement: Placement


def execute(
    campaign: Campaign,
    materials: Materials,
    launcher: Launcher,
    observer: Observer,
) -> Mapping[str, Any] | None:
    """Run every slot that has no outcome yet, then close the campaign; returns the summary.

    Where a job is to have so many runs, no more are made; None is returned, and the campaign left
    open, where more remain.

    The caller holds the campaign's lock. A slot that was started before and has no outcome goes
    on from its last checkpoint, its clock running; so does one whose workers fail, at most
    `max_restarts` times. Raises FourminError when workers fail beyond that (exit code 2 before the
    run's start, 3 after it) or on an interrupt (130); what was written stays, and the campaign
    can be resumed.
    """
    observer.take(CampaignOpened.of(campaign))
    for note in campaign.plan.unseen_notes():
        observer.take(Note(note))
    ran, placement = 0, materials.placement
    for slot in campaign.slots():
        if slot.status is not None:
            continue
        if ran == placement.runs_per_job:
            return None
        with mishaps_told(campaign.folder, slot):
            _SlotRun(campaign, slot, materials, launcher, observer).run(placement.max_restarts)
        ran += 1
    with mishaps_told(campaign.folder):
        summary = summarize(campaign.plan, campaign.digest, campaign.head, read_runs(campaign))
        campaign.close(summary)
    return summary


def read_runs(campaign: Campaign) -> list[RunFacts]:
    """What the event log of every run with an outcome says, in run order."""
    return [
        RunFacts.read(campaign.run_folder(slot.run) / EVENTS_FILE)
        for slot in campaign.slots()
        if slot.status is not None
    ]


CLOCK_RUNS_ON = "its clock runs on until it is resumed; without that it counts as not converged"
_EARLIER = Failure("the campaign was interrupted", "")
"""What ended the workers of a slot that another command had started."""


@dataclass(eq=False)
class _SlotRun:
    """One slot on its way to an outcome, through as many launches as that takes."""

    _campaign: Campaign
    _slot: RunState
    _materials: Materials
    _launcher: Launcher
    _observer: Observer
    _stopped_ms: int | None = None

    def run(self, max_restarts: int) -> None:
        """Record an outcome. Raises FourminError where workers failed once too often."""
        slot = self._slot
        self._refuse_another_attempt()
        self._attempt = slot.attempts if slot.started else self._campaign.intend(slot)
        self._observer.take(RunStarting(slot.run, self._attempt, slot.seed))
        left = max_restarts
        if slot.started:
            failure: Failure | None = _EARLIER
            left += 1  # to go on where another command ended
        else:
            failure = self._launch()
        while failure is not None and slot.started:
            stands = look_at(self._campaign.run_folder(slot.run))
            if stands.whole:
                failure = None
            elif failure.lasting:  # nothing was decided: the run waits until it is put right
                raise FourminError(
                    f"run {slot.run} cannot go on: {failure.summary}",
                    CLOCK_RUNS_ON,
                    f"{failure.details}, then: {resume(self._campaign.folder)}",
                )
            elif failure.final or stands.epoch is None or not left:
                break
            else:
                left -= 1
                failure = self._restart(stands.epoch, failure)
        if failure is not None and not slot.started:
            raise FourminError(
                f"run {slot.run} could not start: {failure.summary}",
                failure.details,
                f"put it right, then: {resume(self._campaign.folder)}",
            )
        facts = self._record_outcome(failure)
        started_in = self._campaign.history.runs[slot.run].started_in_seconds
        self._observer.take(RunFinished.of(facts, started_in))
        if failure is not None and failure is not _EARLIER:
            more = any(other.status is None for other in self._campaign.slots())
            raise FourminError(
                f"run {slot.run} failed and counts as not converged: {failure.summary}",
                failure.details,
                f"{resume(self._campaign.folder)} "
                + ("goes on with the next run" if more else "closes the campaign"),
                exit_code=NOT_CONVERGED,
            )

    def _record_outcome(self, failure: Failure | None) -> RunFacts:
        """Make the result from the log alone and record it; a failure goes into the log first."""
        events = self._campaign.run_folder(self._slot.run) / EVENTS_FILE
        if failure is not None:
            with EventLogWriter(events, resume=True) as log:
                log.point(keys.ABORT, redact(failure.summary))
                log.end(keys.RUN_STOP, None, status=keys.ABORTED)
                log.sync()
        facts = RunFacts.read(events)
        self._campaign.finish(self._slot, self._attempt, facts, self._stopped_ms)
        return facts

    def _refuse_another_attempt(self) -> None:
        """Raise FourminError where one more would make the campaign invalid."""
        slot, plan = self._slot, self._campaign.plan
        most = load_ruleset(plan.ruleset).most_attempts
        if not slot.started and slot.attempts >= most and not plan.practice:
            raise FourminError(
                f"run {slot.run} was tried {slot.attempts} times and never started",
                f"ruleset {plan.ruleset} allows {most} attempts, so that nobody waits for better "
                "nodes",
                "find the cause with `fourmin run --practice`, then: "
                f"{command('abandon', self._campaign.folder)}, and start another campaign",
            )

    def _restart(self, epoch: int, failure: Failure) -> Failure | None:
        number = self._campaign.restart(self._slot, self._attempt)
        self._observer.take(RunRestarting(self._slot.run, number, epoch, failure.summary))
        return self._launch(number, epoch)

    def _launch(self, restart: int = 0, epoch: int = 0) -> Failure | None:
        """Start the workers and wait for their end."""
        with Scratch() as scratch:
            job = self._job(scratch)
            job = dataclasses.replace(job, restart=restart, restart_epoch=epoch)
            watch = Watch(
                job, self._start, self._record, lambda text: self._observer.take(Note(text))
            )
            failure = watch.until_the_end(self._launcher)
            self._stopped_ms = watch.stopped_ms
            return failure

    def _start(self) -> None:
        self._campaign.start(self._slot, self._attempt)
        self._slot.started = True

    def _record(self, record: Record) -> None:
        self._observer.take(RecordLogged.of(self._slot, record))

    def _job(self, scratch: Path) -> Job:
        campaign, plan = self._campaign, self._campaign.plan
        placement = self._materials.placement
        folder = campaign.run_folder(self._slot.run).resolve()
        return Job(
            configuration=campaign.configuration,
            ruleset=plan.ruleset,
            run=self._slot.run,
            attempt=self._attempt,
            seed=self._slot.seed,
            campaign=campaign.digest,
            practice=plan.practice,
            submitter=plan.submitter,
            system_name=plan.system,
            system=self._materials.system,
            system_digest=plan.system_digest,
            package_digest=plan.package_digest,
            dataset=plan.dataset,
            data_dir=self._materials.data.folder.resolve(),
            manifest=self._materials.data.path.resolve(),
            events_log=folder / EVENTS_FILE,
            checkpoints=folder / CHECKPOINTS_FOLDER,
            scratch=scratch,
            stage=placement.stage and placement.stage.resolve(),
            keep_states=placement.keep_states and placement.keep_states.resolve(),
            imports_seconds=placement.timeouts.imports,
            profile=placement.profile,
        )


def resume(folder: Path) -> str:
    """The command that goes on with a campaign."""
    return command("run", "--resume", folder)


@contextmanager
def mishaps_told(folder: Path, slot: RunState | None = None) -> Iterator[None]:
    """Turn what ends the command, a signal or a full disk, into an error that names how to go on;
    a run that had started may.
    """
    step = resume(folder)
    try:
        with going_on(step):
            yield
    except (KeyboardInterrupt, Interrupted) as error:
        told = explained(error)
        what, why = told.what, "nothing that was written is lost"
        if slot:
            what = what.replace("interrupted", f"interrupted in run {slot.run}")
            why = CLOCK_RUNS_ON if slot.started else f"it had not started; {why}"
        raise FourminError(
            what,
            why,
            step,
            told.exit_code,
        ) from None


@dataclass(frozen=True)
class CutOff:
    """How a run stands whose workers are gone.

    `whole`: its log has everything that a run writes, so it ended of itself. `epoch`: the epoch
    after which it can go on, 0 for the start of training; None where it cannot.
    """

    whole: bool
    epoch: int | None


def look_at(run_folder: Path) -> CutOff:
    """How the run in `run_folder` stands, by its event log and its checkpoints.

    A checkpoint's folder has its final name only when it is complete, so whatever stands under such
    a name can be used.
    """
    timeline = Timeline(read_log(run_folder / EVENTS_FILE))
    aborted = timeline.count(keys.ABORT) > 0
    # The last thing that a run logs.
    whole = timeline.count(keys.COMMUNICATION) > 0 and not aborted
    if aborted or not timeline.count(keys.RUN_START) or timeline.count(keys.RUN_STOP):
        return CutOff(whole, None)
    # After a kill or a power cut the log may know less than the checkpoints do.
    logged = {record.metadata.get(keys.EPOCH_NUM) for record in timeline.all(keys.CHECKPOINT)}
    saved = complete_checkpoints(run_folder / CHECKPOINTS_FOLDER)
    return CutOff(whole, max((epoch for epoch in saved if epoch in logged), default=0))
