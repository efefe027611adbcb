"""What happens in a campaign, as values: what displays are told, and the lines of `run --json`.

A line holds an event's name under `event` and its fields beside it. The command that follows a
job reads such lines back here.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, fields
from pathlib import Path
from types import UnionType
from typing import (
    Any,
    ClassVar,
    Protocol,
    TypeAlias,
    get_args,
    get_origin,
    get_type_hints,
)

from fourmin.ledger.campaign import Campaign, RunState
from fourmin.log.records import Record
from fourmin.results.run_result import RunFacts
from fourmin.rules.rule import ERROR, WARNING
from fourmin.rules.verdict import VALID, Report, count
from fourmin.ruleset import load_ruleset


class _Told:
    """What every event can do."""

    kind: ClassVar[str]

    def to_json(self) -> dict[str, Any]:
        return {"event": self.kind, **vars(self)}


@dataclass(frozen=True)
class CampaignOpened(_Told):
    """The campaign is registered, or goes on."""

    kind = "campaign-opened"
    campaign: str
    """Its folder."""
    runs: int
    preset: str
    practice: bool
    workers: int
    device: str
    precision: str
    global_batch_size: int
    max_epochs: int
    quality_target: float

    @classmethod
    def of(cls, campaign: Campaign) -> CampaignOpened:
        benchmark = load_ruleset(campaign.plan.ruleset).benchmark(campaign.plan.benchmark)
        same = ("preset", "workers", "device", "precision", "global_batch_size", "max_epochs")
        return cls(
            campaign=str(campaign.folder),
            runs=campaign.plan.runs,
            practice=campaign.plan.practice,
            quality_target=benchmark.quality_target,
            **{name: getattr(campaign.configuration, name) for name in same},
        )


@dataclass(frozen=True)
class RunStarting(_Told):
    """The workers of a run are about to be started."""

    kind = "run-starting"
    run: int
    attempt: int
    seed: int


@dataclass(frozen=True)
class RunRestarting(_Told):
    """A run that was cut off is about to go on after `epoch`, its clock running."""

    kind = "run-restarting"
    run: int
    restart: int
    epoch: int
    why: str


@dataclass(frozen=True)
class RecordLogged(_Told):
    """The event log of a run has one more record."""

    kind = "record"
    run: int
    key: str
    value: Any
    time_ms: float | None
    event_type: str | None
    metadata: dict[str, Any]

    @classmethod
    def of(cls, slot: RunState, record: Record) -> RecordLogged:
        return cls(slot.run, **{name: getattr(record, name) for name in _names(cls)[1:]})


@dataclass(frozen=True)
class RunFinished(_Told):
    """A run's result is on disk; this is its outcome in short."""

    kind = "run-finished"
    run: int
    status: str
    minutes: float | None
    epochs: float | None
    quality: float | None
    failure: str | None
    started_in_seconds: float | None = None
    """From the ledger's run-intent to its run-start."""

    @classmethod
    def of(cls, facts: RunFacts, started_in_seconds: float | None) -> RunFinished:
        told = {name: getattr(facts, name) for name in _names(cls)[:-1]}
        return cls(**told, started_in_seconds=started_in_seconds)


@dataclass(frozen=True)
class CampaignClosed(_Told):
    """The campaign is closed and was checked; scripts rely on the first five."""

    kind = "campaign-closed"
    campaign: str
    minutes: float | None
    valid: bool
    status: str
    unchecked: list[str]
    """Codes of the required checks that could not be made."""
    verdict: str
    """The status as people read it."""
    errors: int
    summary: dict[str, Any]
    """As in summary.json."""
    warnings: list[str] | None = None
    """What was found that is no error, and what to do about it."""

    @classmethod
    def of(cls, folder: Path, summary: dict[str, Any], report: Report) -> CampaignClosed:
        (checked,) = report.checked
        return cls(
            campaign=str(folder),
            minutes=summary["minutes"],
            valid=checked.status == VALID,
            status=checked.status,
            unchecked=list(checked.unchecked),
            verdict=checked.words,
            errors=count(report.findings)[ERROR],
            summary=summary,
            warnings=[f"{f.message}. {f.hint}" for f in report.findings if f.severity == WARNING],
        )


@dataclass(frozen=True)
class Note(_Told):
    """Something that the user should know beside the runs."""

    kind = "note"
    text: str


Event: TypeAlias = (
    CampaignOpened
    | RunStarting
    | RunRestarting
    | RecordLogged
    | RunFinished
    | CampaignClosed
    | Note
)


class Observer(Protocol):
    """Who is told what happens: a display, TensorBoard, or nobody."""

    def take(self, event: Event) -> None: ...


class Observers:
    """Several observers as one: each is told everything, in their order."""

    def __init__(self, *observers: Observer) -> None:
        self._observers = observers

    def take(self, event: Event) -> None:
        for observer in self._observers:
            observer.take(event)


def event_from_line(line: bytes) -> Event | None:
    """The event that a line of `run --json` tells, None where it tells none.

    A job may print other things, its command may be of another version, and a line may be
    damaged: unknown events and keys are skipped, and events whose values are of other types.
    """
    try:
        found = json.loads(line, parse_int=_integer)
    except (ValueError, RecursionError):
        return None
    kind = _KINDS.get(str(found.get("event"))) if isinstance(found, dict) else None
    if kind is None:
        return None
    values = {name: found.get(name) for name in _names(kind)}
    hints = _HINTS[kind]
    return kind(**values) if all(_fits(values[name], hints[name]) for name in values) else None


def _names(kind: type[Event]) -> list[str]:
    return [field.name for field in fields(kind)]


_KINDS: dict[str, type[Event]] = {kind.kind: kind for kind in get_args(Event)}
_HINTS = {kind: get_type_hints(kind) for kind in get_args(Event)}


def _integer(digits: str) -> float:
    """An integer of 64 bits; a longer one is none that an event has, nor can all be divided."""
    return int(digits) if len(digits) < len(str(2**63)) else float(digits)


def _fits(value: object, hint: Any) -> bool:
    """Whether `value` is of the type that a field asks for."""
    if hint is Any:
        return True
    if isinstance(hint, UnionType):
        return any(_fits(value, one) for one in get_args(hint))
    if hint is float:
        return isinstance(value, (int, float)) and math.isfinite(value)
    if get_origin(hint) is list:
        return isinstance(value, list) and all(_fits(one, get_args(hint)[0]) for one in value)
    return type(value) is (get_origin(hint) or hint)
