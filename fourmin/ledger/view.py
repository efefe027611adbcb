"""A campaign and its runs as a reader sees them: read once, parsed lazily, never raising.

Bytes come from `fourmin.results.folder`, so nothing here opens a link, a device or an endless
file. What cannot be read or parsed is None, and stays available as a fault.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fourmin.base.canonical import sha256_hex
from fourmin.base.errors import FourminError
from fourmin.base.values import mapping
from fourmin.ledger import chain
from fourmin.ledger.campaign import (
    CAMPAIGN_FILE,
    EVENTS_FILE,
    LEDGER_FILE,
    PENDING,
    RESULT_FILE,
    SUMMARY_FILE,
)
from fourmin.ledger.file_kinds import RUN_FOLDER, UNREAD, file_kind, is_checkpoints, most_bytes
from fourmin.ledger.history import History, RunHistory
from fourmin.ledger.landings import NOT_LOOKED_AT, Landing, Registration
from fourmin.ledger.signatures import NOT_SIGNED, Signing
from fourmin.log import keys
from fourmin.log.reader import EventLog, read_log
from fourmin.log.records import Record
from fourmin.log.restarts import Restart, counted
from fourmin.log.timeline import Timeline
from fourmin.recipe.configuration import Configuration
from fourmin.results.folder import Contents, Fault, JsonFile, read_bytes, with_unix_line_ends
from fourmin.results.places import LEVELS, Place
from fourmin.results.plan import Plan
from fourmin.results.run_result import ABORTED, RunFacts
from fourmin.results.schema import SchemaError, schema_errors
from fourmin.ruleset import CURRENT, Benchmark, find_benchmark, versions

if TYPE_CHECKING:
    from fourmin.ledger.audits import AuditFile


@dataclass(frozen=True)
class Document(JsonFile):
    """A JSON file with what its schema says of it; `path` is relative to its campaign or run."""

    schema: str
    ruleset: str

    @cached_property
    def schema_errors(self) -> list[SchemaError]:
        """What the schema refuses; empty where the file is no JSON at all."""
        return [] if self.error else schema_errors(self.ruleset, self.schema, self.value)

    @cached_property
    def content(self) -> Mapping[str, Any] | None:
        """The object, if it is strict JSON and valid by its schema; otherwise None."""
        value = self.value
        return value if isinstance(value, dict) and not self.schema_errors else None


class Placed:
    """What lies at a path, as the caller gave it."""

    path: str

    def where(self, name: str) -> str:
        """The path of a file below, as findings name it; its own of an empty name."""
        return posixpath.join(self.path, name) if name else self.path


@dataclass(eq=False)
class RunView(Placed):
    """One run: its event log, and what stands beside it.

    `path` is the run's folder. `campaign` is None for a run that lies alone.
    """

    path: str
    number: int | None = None
    events: bytes | None = None
    result: Document | None = None
    campaign: CampaignView | None = None

    @property
    def log_name(self) -> str:
        """The log's name in the campaign's folder; alone, in the run's own."""
        return EVENTS_FILE if self.campaign is None else f"run-{self.number}/{EVENTS_FILE}"

    @property
    def home(self) -> str:
        """The path of the log, which findings are about that name no other file."""
        return self.where(self.log_name)

    def where(self, name: str) -> str:
        """As of its campaign; only a run that lies alone has files of its own."""
        return super().where(name) if self.campaign is None else self.campaign.where(name)

    @cached_property
    def log(self) -> EventLog | None:
        return None if self.events is None else read_log(self.events, strict=True)

    @cached_property
    def timeline(self) -> Timeline | None:
        return None if self.log is None else Timeline(self.log)

    @property
    def restarts(self) -> tuple[Restart, ...]:
        """Where the log says that the run went on after it was cut off."""
        return () if self.timeline is None else self.timeline.restarts

    @cached_property
    def facts(self) -> RunFacts:
        """What result.json must say, made from the log; all None without a log."""
        return RunFacts(status=ABORTED) if self.timeline is None else RunFacts.of(self.timeline)

    @cached_property
    def configuration(self) -> Configuration | None:
        """The configuration in the log, None where it is missing or not one."""
        return _configuration(self.facts.configuration)

    @property
    def history(self) -> RunHistory | None:
        if self.campaign is None or self.number is None:
            return None
        return self.campaign.history.runs.get(self.number)

    @property
    def complete(self) -> bool:
        """Whether the log must be whole: the run has an outcome, or lies alone."""
        if self.campaign is None:
            return True
        return self.history is not None and self.history.result is not None

    @cached_property
    def aborted_at(self) -> int | None:
        """Line of the first abort record: whatever follows it was not written by the run."""
        first = None if self.timeline is None else self.timeline.first(keys.ABORT)
        return None if first is None else first.line

    @cached_property
    def body(self) -> tuple[Record, ...]:
        """The records that the run wrote itself: those before the first abort."""
        records = () if self.log is None else self.log.records
        end = self.aborted_at
        return records if end is None else tuple(r for r in records if r.line < end)

    @cached_property
    def counted(self) -> Sequence[Record]:
        """The body without the epochs that a restart trained again."""
        return counted(self.body)

    @property
    def whole(self) -> bool:
        """Whether the run has ended of itself, so that its log must be whole."""
        return self.complete and self.aborted_at is None

    @property
    def plan(self) -> Plan | None:
        """The campaign's plan."""
        return None if self.campaign is None else self.campaign.plan

    @property
    def ruleset(self) -> str:
        """The version by which it is judged: its campaign's, alone the current one."""
        return CURRENT if self.campaign is None else self.campaign.ruleset

    @cached_property
    def practice(self) -> bool:
        """Whether the run never counts."""
        return self.facts.practice is True if self.plan is None else self.plan.practice

    @cached_property
    def benchmark(self) -> Benchmark | None:
        """The benchmark's rules, None where ruleset or benchmark are unknown."""
        if self.campaign is not None and self.campaign.benchmark is not None:
            return self.campaign.benchmark
        return find_benchmark(self.facts.ruleset, self.facts.benchmark)


@dataclass
class CampaignView(Placed):
    """A campaign's folder: `path` as findings name it, the files' bytes, and the faults.

    `files` are all regular files by path relative to the folder, with None for those that
    could not be read or that nothing here needs. `place` is where the folder lies below a root of
    submissions, None elsewhere.
    """

    path: str
    files: Mapping[str, bytes | None]
    folders: tuple[str, ...] = ()
    faults: tuple[Fault, ...] = ()
    folder: Path | None = None
    """Where it lies; None where the files come from elsewhere."""
    converted: tuple[str, ...] = ()
    """The files whose line ends git had converted; `files` has their bytes from before."""
    landed: Landing | None = None
    """How its plan came to the base branch that a change is compared with."""
    registration: Registration = NOT_LOOKED_AT
    """How it was registered, where that is looked at."""
    signing: Signing = NOT_SIGNED
    """What its signatures are worth, where that is looked at."""
    place: Place | None = None
    audits: tuple[AuditFile, ...] = ()
    """What auditors say of it, where that is looked at."""

    @classmethod
    def load(
        cls, folder: Path, path: str, contents: Contents, place: Place | None = None
    ) -> CampaignView:
        """Read the files that a campaign has, each once and within its limit."""
        files: dict[str, bytes | None] = {}
        converted: list[str] = []
        # Nobody looks into checkpoints, so they may be as deep as they like.
        faults = [
            fault
            for fault in contents.faults
            if not (fault.kind == "too-deep" and is_checkpoints(fault.path))
        ]
        for name in contents.files:
            files[name] = None
            kind = file_kind(name)
            if kind in UNREAD:
                continue
            data = read_bytes(folder / name, most_bytes(kind))
            if isinstance(data, str):
                faults.append(Fault(data, name, f"the file is {data}"))
                continue
            files[name] = with_unix_line_ends(data)
            if files[name] is not data:
                converted.append(name)
        said = tuple(faults)
        return cls(path, files, contents.folders, said, folder, tuple(converted), place=place)

    @property
    def home(self) -> str:
        """The path of the plan, which findings are about that name no other file."""
        return self.where(CAMPAIGN_FILE)

    @cached_property
    def ruleset(self) -> str:
        """The plan's ruleset version if this installation has it, otherwise the current one."""
        plan = JsonFile(CAMPAIGN_FILE, self.files.get(CAMPAIGN_FILE) or b"")
        named = mapping(plan.value).get("ruleset")
        return named if isinstance(named, str) and named in versions() else CURRENT

    @cached_property
    def plan_document(self) -> Document | None:
        """campaign.json."""
        return self._document(CAMPAIGN_FILE, "campaign")

    @cached_property
    def plan(self) -> Plan | None:
        """What campaign.json registers, None where it is missing or not valid."""
        content = None if self.plan_document is None else self.plan_document.content
        return None if content is None else Plan.from_json(content)

    @cached_property
    def planned_place(self) -> Place:
        """Where the plan says that the campaign lies among submissions; empty without a plan."""
        return tuple(getattr(self.plan, level) for level in LEVELS) if self.plan else ()

    @property
    def at_home(self) -> bool:
        """Whether the folder lies outside of submissions, or in the plan's place among them."""
        here, planned = self.place, self.planned_place
        return here is None or (
            len(here) == len(planned)
            and all(name in (None, said) for name, said in zip(here, planned, strict=True))
        )

    @property
    def submitter(self) -> str:
        """Whose it is: below a root of submissions its folder says, elsewhere its plan."""
        said = self.plan.submitter if self.plan else "unknown"
        return (self.place[0] if self.place else None) or said

    @cached_property
    def summary_document(self) -> Document | None:
        """summary.json, or the pending one that the ledger vouches for."""
        return self._document(self.settled(SUMMARY_FILE), "summary")

    @cached_property
    def digest(self) -> str:
        """The campaign digest: SHA-256 of campaign.json's bytes; empty without them."""
        return self.digests.get(CAMPAIGN_FILE, "")

    @cached_property
    def benchmark(self) -> Benchmark | None:
        """The benchmark's rules, None where ruleset or benchmark are unknown."""
        plan = self.plan
        return None if plan is None else find_benchmark(plan.ruleset, plan.benchmark)

    @cached_property
    def torn_line(self) -> int | None:
        """The ledger's last line, if it has no line end and so was never durable."""
        data = self.files.get(LEDGER_FILE) or b""
        return data.count(b"\n") + 1 if data and not data.endswith(b"\n") else None

    @cached_property
    def _chain(self) -> tuple[list[chain.Entry], list[chain.ChainProblem]]:
        data = self.files.get(LEDGER_FILE) or b""
        return chain.parse(data[: data.rfind(b"\n") + 1], self._refused)

    def _refused(self, kind: str, data: Mapping[str, Any]) -> list[str]:
        found = schema_errors(self.ruleset, "ledger", data, kind)
        return [f"/data{error.pointer}: {error.message}" for error in found]

    @property
    def entries(self) -> list[chain.Entry]:
        return self._chain[0]

    @property
    def head(self) -> str:
        """SHA-256 of the ledger's last line that can be read; empty without one."""
        return self.entries[-1].sha256 if self.entries else ""

    @property
    def chain_problems(self) -> list[chain.ChainProblem]:
        return self._chain[1]

    @cached_property
    def history(self) -> History:
        return History.of(self.entries, None if self.plan is None else self.plan.runs)

    @cached_property
    def heads(self) -> frozenset[str]:
        """The SHA-256 of every line of the ledger: what others may have seen as its head."""
        return frozenset(entry.sha256 for entry in self.entries)

    @cached_property
    def digests(self) -> Mapping[str, str]:
        """The SHA-256 of every file that was read."""
        return {name: sha256_hex(data) for name, data in self.files.items() if data is not None}

    @cached_property
    def vouched(self) -> frozenset[str]:
        """The SHA-256 of every file that the ledger records."""
        names = ("events_sha256", "result_sha256", "summary_sha256", "earlier_events_sha256")
        found = (entry.data.get(name) for entry in self.entries for name in names)
        return frozenset(value for value in found if isinstance(value, str))

    def settled(self, name: str) -> str:
        """`name`, or its pending name where only that exists and the ledger vouches for it."""
        waiting = name not in self.files and self.digests.get(name + PENDING) in self.vouched
        return name + PENDING if waiting else name

    @cached_property
    def runs(self) -> list[RunView]:
        """The runs that have a folder, by number."""
        numbers = (RUN_FOLDER.match(name) for name in self.folders)
        return [self._run(number) for number in sorted(int(m.group(1)) for m in numbers if m)]

    def _run(self, number: int) -> RunView:
        folder = f"run-{number}"
        result = self.settled(f"{folder}/{RESULT_FILE}")
        return RunView(
            self.where(folder),
            number=number,
            events=self.files.get(f"{folder}/{EVENTS_FILE}"),
            result=self._document(result, "result"),
            campaign=self,
        )

    def _document(self, name: str, schema: str) -> Document | None:
        data = self.files.get(name)
        return None if data is None else Document(name, data, schema, self.ruleset)


def _configuration(value: Mapping[str, Any]) -> Configuration | None:
    if not value:
        return None
    try:
        return Configuration.from_json(value)
    except FourminError:
        return None
