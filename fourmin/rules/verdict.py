"""What the rules say of each thing that was checked: formats, reports and exit codes read this."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

from fourmin.base.kinds import LOOKED_AT, kind_of
from fourmin.base.text import printable
from fourmin.results.importers.files import head
from fourmin.results.places import SYSTEM_FILE
from fourmin.results.tree import (
    CAMPAIGN,
    DAWNBENCH_ENTRY,
    FOREIGN_KINDS,
    MLPERF_RUN,
    MLPERF_RUN_SET,
    SUBMISSION,
)
from fourmin.rules.rule import CHANGE, SEVERITIES, WARNING, Finding
from fourmin.ruleset import load_ruleset

UNKNOWN = "unknown"
NONE: frozenset[str] = frozenset()
VALID, UNCHECKED, INVALID = "valid", "unchecked", "invalid"
"""The status of what was checked: no error, and every required check was made; or not."""
FAILS_HERE, NOT_JUDGED = "fails-here", "not-judged"
"""Instead of invalid for other benchmarks' results, which have their own judges; and the status of
what nobody could judge here, which is neither good nor bad."""
NOTHING_TO_JUDGE = "SCH006"
"""The code of a finding that says so of another benchmark's result."""
LOOK_FIRST = ("CLK", "EVA", "CNV", "RUN", "DAT", "HYP", "SEE", "LOG", "PHY", "LED", "SYS")
"""Groups in the order in which an error in them casts doubt on the number itself."""


@dataclass(frozen=True)
class Verdict:
    """What the rules say of one thing; `path` is as the caller gave it.

    `kind` is run, campaign, submission, mlperf-run, mlperf-run-set, dawnbench-entry, unknown
    (nothing there that is a result) or change (files that a change touches beside all these).
    """

    path: str
    kind: str
    findings: tuple[Finding, ...] = ()
    required: frozenset[str] = NONE
    """Codes of the checks that must have been made."""
    elsewhere: tuple[Finding, ...] = ()
    """Errors of other things that count against it: of a campaign among submissions those in the
    description of its system, of a run set those of its runs.
    """
    registration: str = ""
    """Of a campaign: the word of how it was registered, where that was looked at."""

    @cached_property
    def failing(self) -> tuple[Finding, ...]:
        """The errors that no waiver covers."""
        return (*(finding for finding in self.findings if finding.fails), *self.elsewhere)

    @property
    def fails(self) -> tuple[str, ...]:
        """Their codes, that which a reviewer should look at first foremost."""
        order = {group: index for index, group in enumerate(LOOK_FIRST)}
        codes = {finding.code for finding in self.failing}
        return tuple(sorted(codes, key=lambda code: (order.get(code[:3], len(order)), code)))

    @property
    def ok(self) -> bool:
        """Whether it was judged, and no error stands."""
        return self.status in (VALID, UNCHECKED)

    @cached_property
    def not_judged(self) -> str:
        """Why nothing of it could be judged; empty where it was."""
        if self.kind == UNKNOWN and not self.findings:
            kind = kind_of(head(Path(self.path), LOOKED_AT)) if os.path.isfile(self.path) else ""
            if kind:
                return f"{self.path} is {kind}"
            return "no campaign, run, submission or result of MLPerf or DAWNBench lies there"
        told = (f.message for f in self.findings if f.code == NOTHING_TO_JUDGE)
        return next(told, "") if self.kind in FOREIGN_KINDS else ""

    @cached_property
    def unchecked(self) -> tuple[str, ...]:
        """The codes of the required checks that could not be made, sorted."""
        codes = {finding.code for finding in self.findings if finding.unchecked}
        return tuple(sorted(codes & self.required))

    @property
    def reasons(self) -> dict[str, str]:
        """Why each of these could not be made, first where the reasons are several."""
        told = {f.code: f.reason for f in reversed(self.findings) if f.unchecked}
        return {code: told[code] for code in self.unchecked}

    @property
    def status(self) -> str:
        if self.not_judged:
            return NOT_JUDGED
        if self.failing:
            return FAILS_HERE if self.kind in FOREIGN_KINDS else INVALID
        return UNCHECKED if self.unchecked else VALID

    @property
    def words(self) -> str:
        """The status as people read it: what could not be checked, and why, is named."""
        if self.status == NOT_JUDGED:
            if self.kind == UNKNOWN:
                return "nothing to check there"
            return f"not judged: {printable(self.not_judged)}"
        if self.status == FAILS_HERE:
            return f"fails {', '.join(self.fails)} here"
        if self.status == INVALID:
            alone = len(self.failing) == len(self.elsewhere)
            return "not valid, for the description of its system is not" if alone else "not valid"
        if self.status == VALID:
            results = (CAMPAIGN, MLPERF_RUN_SET, DAWNBENCH_ENTRY)
            return "valid" if self.kind in results else "no error"
        told = (f"{code} ({printable(reason)})" for code, reason in self.reasons.items())
        return f"unchecked: {', '.join(told)}"

    def to_json(self) -> dict[str, Any]:
        """As `fourmin validate --format json` lists it."""
        names = ("path", "kind", "ok", "status", "unchecked", "fails")
        told = {"registration": self.registration} if self.kind == CAMPAIGN else {}
        return {name: getattr(self, name) for name in names} | told

    @property
    def look_first(self) -> str | None:
        """The code of the error that a reviewer should look at first; None without one."""
        return next(iter(self.fails), None)

    @property
    def waivers(self) -> tuple[str, ...]:
        """The codes that a maintainer waived, sorted."""
        return tuple(sorted({finding.code for finding in self.findings if finding.waived}))

    @property
    def counts(self) -> dict[str, int]:
        return count(self.findings)


@dataclass(frozen=True)
class Report:
    """A verdict on everything that was checked, and all findings in the order of the rules."""

    ruleset: str
    verdicts: tuple[Verdict, ...]
    findings: tuple[Finding, ...]

    @property
    def checked(self) -> tuple[Verdict, ...]:
        """The verdicts on what was asked for: all but that on a change's other files."""
        return tuple(verdict for verdict in self.verdicts if verdict.kind != CHANGE)

    @property
    def judged(self) -> bool:
        """Whether anything could be judged, or there is an error all the same."""
        undone = [verdict.status == NOT_JUDGED for verdict in self.checked]
        return not undone or not all(undone) or self._fails

    @property
    def ok(self) -> bool:
        """Whether something was judged, and no error stands."""
        return self.judged and not self._fails

    @property
    def _fails(self) -> bool:
        return any(verdict.failing for verdict in self.verdicts)

    @property
    def clean(self) -> bool:
        """Whether there is neither an error nor a warning, and nothing required is unchecked."""
        unchecked = any(verdict.unchecked for verdict in self.verdicts)
        return self.ok and not unchecked and not count(self.findings)[WARNING]

    def to_json(self) -> dict[str, Any]:
        """As `fourmin validate --format json` gives it."""
        return {
            "ruleset": self.ruleset,
            "ok": self.ok,
            "checked": [verdict.to_json() for verdict in self.checked],
            "findings": [finding.to_json() for finding in self.findings],
            "look_first": [
                {"path": v.path, "code": v.look_first} for v in self.checked if v.look_first
            ],
        }


def verdicts(
    things: Iterable[tuple[str, str]],
    findings: Iterable[Finding],
    registrations: Mapping[str, str] = MappingProxyType({}),
) -> tuple[Verdict, ...]:
    """The verdict on each of `things` (kind and path), in their order.

    A finding belongs to the deepest of them at whose path or below it lies. Those that lie
    elsewhere make a last verdict, of kind change. Of campaigns the ruleset requires checks, and
    one among submissions is no better than the description of its system; a set no better than its
    runs.
    """
    given = list(things)
    required = load_ruleset().required_checks
    owned: dict[str, list[Finding]] = {path: [] for _, path in given}
    left: list[Finding] = []
    for finding in findings:
        owner = owner_of(finding.path, owned)
        (left if owner is None else owned[owner]).append(finding)
    wrong = {
        path: tuple(f for f in owned[path] if f.fails and f.path == os.path.join(path, SYSTEM_FILE))
        for kind, path in given
        if kind == SUBMISSION
    }
    of_runs: dict[str, list[Finding]] = {}
    for kind, path in given:
        if kind == MLPERF_RUN:
            of_runs.setdefault(os.path.dirname(path), []).extend(f for f in owned[path] if f.fails)

    def judged(kind: str, path: str) -> Verdict:
        if kind == MLPERF_RUN_SET:
            return Verdict(path, kind, tuple(owned[path]), NONE, tuple(of_runs.get(path, ())))
        if kind != CAMPAIGN:
            return Verdict(path, kind, tuple(owned[path]))
        described = wrong.get(owner_of(path, wrong) or "", ())
        word = registrations.get(path, "")
        return Verdict(path, kind, tuple(owned[path]), required, described, word)

    found = [judged(kind, path) for kind, path in given]
    if left:
        found.append(Verdict("files of the change", CHANGE, tuple(left)))
    return tuple(found)


def owner_of(path: str, owners: Collection[str]) -> str | None:
    """The longest of `owners` that is `path` or a folder above it; a table's is its description."""
    if path.endswith(".tsv") and f"{path[:-4]}.json" in owners:
        return f"{path[:-4]}.json"
    while path not in owners:
        parent = os.path.dirname(path)
        if parent == path:
            return None
        path = parent
    return path


def count(findings: Iterable[Finding]) -> dict[str, int]:
    found = dict.fromkeys(SEVERITIES, 0)
    for finding in findings:
        found[finding.severity] += 1
    return found
