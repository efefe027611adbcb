"""What a ledger tells, record by record, and where it tells what cannot have happened.

The order is a state machine: the opening, the seeds, then each run of the plan in turn (intent,
perhaps again while it has not started, start, perhaps restarts, result), and the close; an
abandoned campaign may end anywhere. Nothing follows the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from fourmin.ledger.chain import PATIENCE, Entry


@dataclass
class RunHistory:
    """One run as the ledger tells it."""

    run: int
    intents: list[Entry] = field(default_factory=list)
    start: Entry | None = None
    restarts: list[Entry] = field(default_factory=list)
    result: Entry | None = None

    @property
    def started_in_seconds(self) -> float | None:
        """From the intent of the attempt that started to its start; None where none did."""
        if self.start is None or not self.intents:
            return None
        return (self.start.time_ms - self.intents[-1].time_ms) / 1000

    @cached_property
    def kept_attempts(self) -> frozenset[int]:
        """The attempts that never started and of which a later intent names the log."""
        return frozenset(
            _number(intent.data.get("attempt")) - 1
            for intent in self.intents
            if "earlier_events_sha256" in intent.data
        )


@dataclass(frozen=True)
class Contradiction:
    """A record that cannot stand where it stands: its line and why."""

    line: int
    message: str


@dataclass
class History:
    """A ledger's records, sorted by what they are about."""

    opening: Entry | None = None
    seeds: Entry | None = None
    runs: dict[int, RunHistory] = field(default_factory=dict)
    close: Entry | None = None
    abandon: Entry | None = None
    contradictions: list[Contradiction] = field(default_factory=list)

    @property
    def ended(self) -> bool:
        """Whether the campaign was closed or abandoned."""
        return self.close is not None or self.abandon is not None

    @property
    def self_registered(self) -> bool:
        """Whether the campaign assigned its seeds by itself, without a merge."""
        return self.seeds is not None and self.seeds.data.get("registration") == "self"

    def assigned_seeds(self) -> list[int]:
        """The seeds as recorded; empty where they are not, or are no integers."""
        seeds = None if self.seeds is None else self.seeds.data.get("seeds")
        if not isinstance(seeds, list) or not all(type(seed) is int for seed in seeds):
            return []
        return seeds

    @classmethod
    def of(cls, entries: Sequence[Entry], planned_runs: int | None) -> History:
        """The history that `entries` tell; never raises.

        `planned_runs` is the plan's number of runs, None where the plan cannot be read.
        """
        history = cls()
        for position, entry in enumerate(entries):
            for message in history._take(position, entry, planned_runs):
                history.contradictions.append(Contradiction(entry.line, message))
            if len(history.contradictions) >= PATIENCE:
                message = "what follows is not looked at: too much is wrong"
                history.contradictions.append(Contradiction(entry.line, message))
                break
        if not entries:
            history.contradictions.append(Contradiction(1, "the ledger has no record"))
        return history

    def _take(self, position: int, entry: Entry, planned_runs: int | None) -> list[str]:
        wrong: list[str] = []
        if self.ended:
            wrong.append(f"{entry.kind} after the end of the campaign")
        if (position == 0) != (entry.kind == "campaign-open"):
            wrong.append(
                "the first record is not campaign-open"
                if position == 0
                else "a second campaign-open"
            )
        if entry.kind == "campaign-open":
            self.opening = self.opening or entry
        elif entry.kind == "seeds-assigned":
            if self.seeds is not None or self.runs:
                wrong.append("seeds are assigned once, before the first run")
            self.seeds = self.seeds or entry
            count = len(self.assigned_seeds())
            if planned_runs is not None and count != planned_runs:
                wrong.append(f"{count} seeds for {planned_runs} runs")
        elif entry.kind == "campaign-abandon":
            self.abandon = self.abandon or entry
        elif entry.kind == "campaign-close":
            self.close = self.close or entry
            open_runs = [
                str(run)
                for run in range(1, min(planned_runs or len(self.runs), 1000) + 1)
                if run not in self.runs or self.runs[run].result is None
            ]
            if open_runs or not self.runs:
                wrong.append(f"closed without an outcome of run {', '.join(open_runs) or '1'}")
        else:
            wrong.extend(self._take_run(entry, planned_runs))
        return wrong

    def _take_run(self, entry: Entry, planned_runs: int | None) -> list[str]:
        wrong: list[str] = []
        run, attempt = _number(entry.data.get("run")), _number(entry.data.get("attempt"))
        if self.seeds is None:
            wrong.append(f"{entry.kind} before the seeds were assigned")
        if not run or (planned_runs is not None and run > planned_runs):
            return [*wrong, f"{entry.kind} of a run that the plan does not have"]
        known = self.runs.setdefault(run, RunHistory(run))
        what = f"{entry.kind} of run {run}"
        if known.result is not None:
            wrong.append(f"{what}, which already has its result")
        if entry.kind == "run-intent":
            before = self.runs.get(run - 1)
            if run > 1 and (before is None or before.result is None):
                wrong.append(f"{what} before run {run - 1} has its result")
            if known.start is not None:
                wrong.append(f"{what}, which had started: only that attempt may go on")
            if attempt != len(known.intents) + 1:
                wrong.append(f"{what} is attempt {attempt}, not {len(known.intents) + 1}")
            known.intents.append(entry)
            return wrong
        if not known.intents:
            wrong.append(f"{what} without an intent")
        elif attempt != len(known.intents):
            wrong.append(f"{what} names attempt {attempt}, not {len(known.intents)}")
        if entry.kind == "run-start":
            if known.start is not None:
                wrong.append(f"{what}, which had already started")
            known.start = known.start or entry
            return wrong
        if known.start is None:
            wrong.append(f"{what}, which never started")
        if entry.kind == "run-restart":
            known.restarts.append(entry)
            if _number(entry.data.get("restart")) != len(known.restarts):
                wrong.append(f"{what} is not numbered {len(known.restarts)}")
        elif entry.kind == "run-result":
            known.result = known.result or entry
        return wrong


def _number(value: Any) -> int:
    """`value` if it is a positive integer, otherwise 0."""
    return value if type(value) is int and value > 0 else 0
