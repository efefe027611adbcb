"""A campaign on disk: the registered plan, its ledger, and the order in which they are written.

Whatever the ledger vouches for is written first under a pending name, then recorded, then
renamed. So a file that stands under its final name without a record was never written by this
tool, and a kill between the two steps is mended by `recover`.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from fourmin.base.canonical import loads_strict, sha256_hex
from fourmin.base.errors import FourminError
from fourmin.base.files import append_line, drop_torn_line, json_bytes, sync_folder, write_durably
from fourmin.ledger import chain
from fourmin.ledger.history import History, RunHistory
from fourmin.ledger.known import KnownCampaign, remember
from fourmin.ledger.seeds import new_beacon, planned_seeds
from fourmin.ledger.signatures import LEDGER_SIGNATURE, PLAN_SIGNATURE, message
from fourmin.results.plan import Plan
from fourmin.results.run_result import ABORTED, RunFacts

CAMPAIGN_FILE = "campaign.json"
LEDGER_FILE = "ledger.jsonl"
SUMMARY_FILE = "summary.json"
RESULT_FILE = "result.json"
EVENTS_FILE = "events.log"
CHECKPOINTS_FOLDER = "checkpoints"
"""In the folder of a run that is under way; it is gone once the run has an outcome."""
PENDING = ".pending"
KILLED_SECONDS = 600
"""A plan is written in less: what is older was given up."""

Sign: TypeAlias = Callable[[bytes], bytes]
"""Gives the signature of a message, or raises FourminError."""


@dataclass
class RunState:
    """One run of the plan as the ledger tells it."""

    run: int
    seed: int
    attempts: int = 0
    started: bool = False
    restarts: int = 0
    status: str | None = None


def require_campaign(folder: Path) -> None:
    """Raise FourminError unless `folder` holds a campaign's plan."""
    if not (folder / CAMPAIGN_FILE).is_file():
        raise FourminError(
            f"no campaign in {folder}",
            next_step="name a folder that `fourmin run` made, such as results/<campaign>",
        )


class Campaign:
    """An open or closed campaign in its folder. The writing methods need the campaign's lock."""

    def __init__(self, folder: Path) -> None:
        """Open an existing campaign.

        Raises FourminError when the folder is not one, or its ledger is broken.
        """
        self.folder = folder
        try:
            plan_bytes = (folder / CAMPAIGN_FILE).read_bytes()
            ledger_bytes = (folder / LEDGER_FILE).read_bytes()
            document: Any = loads_strict(plan_bytes)
            self.plan = Plan.from_json(document)
            self.configuration = self.plan.typed_configuration
            # A last line without its end was never durable; `reopen` drops it.
            whole = ledger_bytes[: ledger_bytes.rfind(b"\n") + 1]
            self.entries, problems = chain.parse(whole)
        except (OSError, ValueError, KeyError, TypeError, FourminError) as error:
            raise FourminError(
                f"{folder} is not a campaign that can go on",
                f"{type(error).__name__}: {error}",
                "name a folder that `fourmin run` made, such as results/<campaign>",
            ) from None
        self.digest = sha256_hex(plan_bytes)
        opening = self.entries[0].data if self.entries else {}
        if problems or opening.get("campaign_sha256") != self.digest:
            detail = f"line {problems[0].line}: {problems[0].message}" if problems else "no record"
            raise FourminError(
                f"the ledger of {folder} is broken", detail, "see what `fourmin validate` says"
            )

    @classmethod
    def create(
        cls, parent: Path, plan: Plan, sign: Sign | None = None, *, seeds: bool = True
    ) -> Campaign:
        """Register `plan` in a new folder below `parent`, signed by `sign`, and assign its seeds
        from a random beacon at once. Without `seeds` they are assigned when the plan has been
        merged: see `assign_registered_seeds`.

        The folder appears complete under its final name or not at all.
        """
        now, name = plan.created_ms, plan.name
        hidden = parent / f".{name}.new"
        for left in parent.glob(".*.new"):  # by one that was killed
            if time.time() - left.stat().st_mtime > KILLED_SECONDS:
                shutil.rmtree(left, ignore_errors=True)
        hidden.mkdir(parents=True)
        try:
            plan_bytes = json_bytes(plan.to_json())
            digest = sha256_hex(plan_bytes)
            write_durably(hidden / CAMPAIGN_FILE, plan_bytes)
            if sign is not None:
                write_durably(hidden / PLAN_SIGNATURE, sign(message(digest)))
            opening = {"campaign_sha256": digest}
            lines = [chain.encode(0, "campaign-open", now, chain.GENESIS, opening)]
            if seeds:
                previous = sha256_hex(lines[0])
                assigned = _assignment(new_beacon(), "self", digest, plan)
                lines.append(chain.encode(1, "seeds-assigned", now, previous, assigned))
            write_durably(hidden / LEDGER_FILE, b"".join(line + b"\n" for line in lines))
            os.rename(hidden, parent / name)
            sync_folder(parent)
        except BaseException:
            shutil.rmtree(hidden, ignore_errors=True)
            raise
        campaign = cls(parent / name)
        campaign.remember()
        return campaign

    @classmethod
    def reopen(cls, folder: Path) -> Campaign:
        """Open a campaign to go on with it, and mend what a kill or a power cut left half done.

        A last ledger line without its line end was never durable, so nothing was done on its
        strength: it is dropped. Raises FourminError as the constructor does.
        """
        ledger = folder / LEDGER_FILE
        if ledger.is_file():
            drop_torn_line(ledger)
        campaign = cls(folder)
        campaign.recover()
        return campaign

    @property
    def history(self) -> History:
        return History.of(self.entries, self.plan.runs)

    @property
    def head(self) -> str:
        """SHA-256 of the ledger's last line."""
        return self.entries[-1].sha256

    @property
    def closed(self) -> bool:
        """Whether the ledger has been closed or abandoned."""
        return self.history.ended

    def assign_registered_seeds(self, beacon: str) -> None:
        """Assign the seeds of a merged plan; the beacon is a commit's id: see `landings`."""
        assignment = _assignment(beacon, "registered", self.digest, self.plan)
        self._append("seeds-assigned", assignment)

    def run_folder(self, run: int) -> Path:
        """The folder of run `run` (from 1)."""
        return self.folder / f"run-{run}"

    def slots(self) -> list[RunState]:
        """All runs of the plan in order, with what the ledger says of each."""
        slots, history = [], self.history
        for run, seed in enumerate(history.assigned_seeds(), start=1):
            told = history.runs.get(run, RunHistory(run))
            status = None if told.result is None else str(told.result.data["status"])
            started = told.start is not None
            attempts, restarts = len(told.intents), len(told.restarts)
            slots.append(RunState(run, seed, attempts, started, restarts, status))
        return slots

    def intend(self, slot: RunState) -> int:
        """Record that `slot` is about to be tried; returns the attempt's number, from 1.

        The log of an attempt that never started is kept beside, and the intent names it.
        """
        folder = self.run_folder(slot.run)
        folder.mkdir(exist_ok=True)
        data: dict[str, Any] = {"run": slot.run, "attempt": slot.attempts + 1, "seed": slot.seed}
        events = folder / EVENTS_FILE
        kept = folder / f"events.attempt-{slot.attempts}.log"
        if events.exists():
            os.rename(events, kept)
            sync_folder(folder)
        # Also when a kill came between that rename and the record of it.
        if kept.exists():
            data["earlier_events_sha256"] = sha256_hex(kept.read_bytes())
        self._append("run-intent", data)
        return slot.attempts + 1

    def start(self, slot: RunState, attempt: int) -> None:
        """Record, and make durable, that the first batch of `slot` is about to be read."""
        # What else waits for the disk goes first, so that the record's time is that of the answer.
        sync_folder(self.run_folder(slot.run))
        self._append("run-start", {"run": slot.run, "attempt": attempt})

    def restart(self, slot: RunState, attempt: int) -> int:
        """Record that `slot`, which was cut off after its start, is about to go on.

        Returns the restart's number, from 1. What its log holds by now is vouched for, so that
        nothing of it can be taken away later.
        """
        events = (self.run_folder(slot.run) / EVENTS_FILE).read_bytes()
        slot.restarts += 1
        self._append(
            "run-restart",
            {
                "run": slot.run,
                "attempt": attempt,
                "restart": slot.restarts,
                "events_bytes": len(events),
                "events_sha256": sha256_hex(events),
            },
        )
        return slot.restarts

    def finish(
        self, slot: RunState, attempt: int, facts: RunFacts, run_stop_ms: int | None = None
    ) -> None:
        """Record the outcome of `slot`: result.json, and the SHA-256 of it and of events.log.

        `run_stop_ms` is when the command heard that the run's clock had stopped, None where it
        did not; of an aborted run it is left out.
        """
        folder = self.run_folder(slot.run)
        data = json_bytes(facts.to_json())
        write_durably(folder / (RESULT_FILE + PENDING), data)
        told: dict[str, Any] = {
            "run": slot.run,
            "attempt": attempt,
            "status": facts.status,
            "events_sha256": sha256_hex((folder / EVENTS_FILE).read_bytes()),
            "result_sha256": sha256_hex(data),
        }
        if run_stop_ms is not None and facts.status != ABORTED:
            told["run_stop_ms"] = run_stop_ms
        self._append("run-result", told)
        self._settle(folder / RESULT_FILE)
        self._drop_checkpoints()

    def close(self, summary: Mapping[str, Any]) -> None:
        """Record the benchmark result and end the ledger."""
        data = json_bytes(summary)
        write_durably(self.folder / (SUMMARY_FILE + PENDING), data)
        self._append("campaign-close", {"summary_sha256": sha256_hex(data)})
        self._settle(self.folder / SUMMARY_FILE)
        self.remember()

    def abandon(self, reason: str, sign: Sign | None = None) -> None:
        """Give the campaign up, visibly: it ends here, signed by `sign`, and counts as failed."""
        self._append("campaign-abandon", {"reason": reason}, sign)
        self.remember()

    def sign_end(self, sign: Sign) -> None:
        """Sign the head of a ledger that has ended."""
        write_durably(self.folder / LEDGER_SIGNATURE, sign(message(self.digest, self.head)))

    def recover(self) -> None:
        """Finish what a kill left between a record and the renaming of its file.

        A pending file that no record vouches for is removed: the step that wrote it is done
        again.
        """
        recorded = {
            entry.data.get(name)
            for entry in self.entries
            for name in ("result_sha256", "summary_sha256")
        }
        for pending in [*self.folder.glob(f"*{PENDING}"), *self.folder.glob(f"run-*/*{PENDING}")]:
            if sha256_hex(pending.read_bytes()) in recorded:
                self._settle(pending.with_name(pending.name[: -len(PENDING)]))
            else:
                pending.unlink()

    def remember(self) -> None:
        """Tell this machine's memory of campaigns the present head."""
        remember(KnownCampaign(self.digest, self.plan.benchmark, self.plan.practice, self.head))

    def _drop_checkpoints(self) -> None:
        """Remove the checkpoints of all runs: none is under way."""
        for folder in self.folder.glob(f"run-*/{CHECKPOINTS_FOLDER}"):
            shutil.rmtree(folder, ignore_errors=True)

    @staticmethod
    def _settle(path: Path) -> None:
        os.replace(path.with_name(path.name + PENDING), path)
        sync_folder(path.parent)

    def _append(self, kind: str, data: Mapping[str, Any], sign: Sign | None = None) -> None:
        """Append one record and make it durable before anything else happens.

        Where it ends the ledger it may be signed; nothing is written where that fails.
        """
        last = self.entries[-1]
        now = max(time.time_ns() // 1_000_000, last.time_ms)
        number = last.index + 1
        line = chain.encode(number, kind, now, last.sha256, data)
        digest = sha256_hex(line)
        signature = sign and sign(message(self.digest, digest))
        if kind in chain.ENDS:
            self._drop_checkpoints()
        append_line(self.folder / LEDGER_FILE, line)
        if signature:
            write_durably(self.folder / LEDGER_SIGNATURE, signature)
        entry = chain.Entry(last.line + 1, number, kind, now, last.sha256, dict(data), digest)
        self.entries.append(entry)


def _assignment(beacon: str, registration: str, digest: str, plan: Plan) -> dict[str, Any]:
    seeds = planned_seeds(plan, beacon, digest)
    return {"beacon": beacon, "registration": registration, "seeds": seeds}
