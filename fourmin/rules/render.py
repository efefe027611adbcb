"""A report as text, JSON, GitHub workflow annotations, SARIF or JUnit, by the format's name."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from fourmin.base.document import document
from fourmin.base.text import how_many, printable
from fourmin.ledger.landings import CLAIMED, REGISTERED, REGISTRATIONS
from fourmin.rules.junit import as_junit
from fourmin.rules.rule import CAMPAIGN, ERROR, NOTE, SEVERITIES, WARNING, Finding, worst_first
from fourmin.rules.sarif import as_sarif
from fourmin.rules.verdict import (
    FAILS_HERE,
    NOT_JUDGED,
    UNCHECKED,
    UNKNOWN,
    Report,
    Verdict,
    count,
)

MOST_ANNOTATIONS = 10
"""GitHub shows so many annotations of each level for a step."""
MOST_OF_A_CODE = 3
"""Findings of one code, and names of places, that the text shows of each."""
Key: TypeAlias = tuple[str, str, str, str, bool]
_GITHUB_LEVELS = {ERROR: "error", WARNING: "warning", NOTE: "notice"}


def as_json(report: Report) -> Iterator[str]:
    """One JSON object, in ASCII."""
    yield json.dumps(document("validation", report.to_json()), indent=2)


def as_text(report: Report, verbose: bool = False) -> Iterator[str]:
    """A block for each thing that has an error or a warning, and the rest in a line.

    What several of them have in common is said once. With `verbose` everything that was checked
    has its block, and notes and repetitions are in it.
    """
    common = {} if verbose else _common(report)
    quiet: Counter[tuple[str, str]] = Counter()
    for verdict in report.verdicts:
        findings = [
            f for f in verdict.findings if verbose or (f.severity != NOTE and _key(f) not in common)
        ]
        alone = len(report.verdicts) == 1 or verdict.kind == UNKNOWN
        if verbose or findings or verdict.elsewhere or alone:
            yield f"{verdict.kind} {printable(verdict.path)}: {_said(verdict)}"
            yield from _block(findings, verdict.path, None if verbose else MOST_OF_A_CODE)
        else:
            quiet[_briefly(verdict), verdict.kind] += 1
    for (severity, code, message, hint, _), verdicts in common.items():
        paths = [verdict.path for verdict in verdicts]
        yield f"{severity:<7} {code} in {len(paths)} of them: {printable(message)}"
        if hint:
            yield f"      {printable(hint)}"
        below = os.path.commonpath(paths)
        names = [printable(os.path.relpath(path, below)) for path in paths[:MOST_OF_A_CODE]]
        more = f" and {len(paths) - len(names)} more" if len(paths) > len(names) else ""
        yield f"      below {printable(below)}: {', '.join(names)}{more}"
    if quiet:
        told = (f"{said}: {how_many(n, kind)}" for (said, kind), n in quiet.items())
        yield "; ".join(told)
    notes = not verbose and any(f.severity == NOTE for f in report.findings)
    yield _closing(report, " (-v)" if notes else "")


def as_github(report: Report) -> Iterator[str]:
    """Workflow commands that annotate files, as many as GitHub shows; the rest as text."""
    left = dict.fromkeys(SEVERITIES, MOST_ANNOTATIONS)
    for finding in worst_first(report.findings):
        if left[finding.severity] == 0 or finding.waived:
            yield _line(finding)
            continue
        left[finding.severity] -= 1
        line = "" if finding.line is None else f",line={finding.line}"
        title, text = f"{finding.code} {finding.name}", f"{finding.message}. {finding.hint}"
        yield annotation(finding.severity, title, text, f"file={_property(finding.path)}{line},")
    yield _closing(report)


def annotation(severity: str, title: str, text: str, place: str = "") -> str:
    """One workflow command; `place` is its properties before the title."""
    told = _data(printable(text, 1000))
    return f"::{_GITHUB_LEVELS[severity]} {place}title={_property(title)}::{told}"


FORMATS: dict[str, Callable[[Report], Iterator[str]]] = {
    "text": as_text,
    "json": as_json,
    "github": as_github,
    "sarif": as_sarif,
    "junit": as_junit,
}
"""Each format's renderer, which yields lines."""


def _key(finding: Finding) -> Key:
    """What findings in several places have in common."""
    waived = finding.waived is not None
    return finding.severity, finding.code, finding.message, finding.hint, waived


def _common(report: Report) -> dict[Key, list[Verdict]]:
    """Errors and warnings that several verdicts share, and these."""
    shared: dict[Key, list[Verdict]] = {}
    for verdict in report.verdicts:
        for key in dict.fromkeys(_key(f) for f in verdict.findings if f.severity != NOTE):
            shared.setdefault(key, []).append(verdict)
    return {key: those for key, those in shared.items() if len(those) > 2}


def _block(findings: Sequence[Finding], below: str, most: int | None) -> Iterator[str]:
    """A line for each finding and its hint; of a code no more than `most`."""
    seen: Counter[str] = Counter()
    for finding in findings:
        seen[finding.code] += 1
        if most is not None and seen[finding.code] > most:
            continue
        yield f"  {_line(finding, below)}"
        if finding.severity != NOTE and finding.hint and not finding.waived:
            yield f"      {printable(finding.hint)}"
    for code, number in seen.items():
        if most is not None and number > most:
            yield f"  and {number - most} more of {code} (-v)"


def _line(finding: Finding, below: str = "") -> str:
    return f"{finding.severity:<7} {finding.text_below(below)}"


def _briefly(verdict: Verdict) -> str:
    """Its status without reasons, and how it was registered."""
    if verdict.status != UNCHECKED:
        return verdict.words + _registered(verdict)
    return f"unchecked {' '.join(verdict.unchecked)}" + _registered(verdict)


def _registered(verdict: Verdict) -> str:
    known = verdict.registration in (CLAIMED, REGISTERED)
    return f", {REGISTRATIONS[verdict.registration]}" if known else ""


def _said(verdict: Verdict) -> str:
    told = [how_many(number, level) for level, number in verdict.counts.items() if number]
    said = verdict.words + (f" ({', '.join(told)})" if told else "") + _registered(verdict)
    first = len(verdict.failing) > 1 and verdict.status != FAILS_HERE
    return f"{said}; look first at {verdict.look_first}" if first else said


def _closing(report: Report, notes_by: str = "") -> str:
    statuses = Counter(verdict.status for verdict in report.verdicts if verdict.kind != UNKNOWN)
    judged = (verdict for verdict in report.checked if verdict.status != NOT_JUDGED)
    kinds = Counter(verdict.kind for verdict in judged if verdict.kind != UNKNOWN)
    checked = ", ".join(how_many(kinds[kind], kind) for kind in sorted(kinds)) or "nothing"
    found = ", ".join(how_many(number, level) for level, number in count(report.findings).items())
    found += notes_by
    waived = sum(finding.waived is not None for finding in report.findings)
    if waived:
        found += f", {waived} of the errors waived"
    if statuses[UNCHECKED]:
        found += f"; {how_many(statuses[UNCHECKED], CAMPAIGN)} unchecked"
    if statuses[NOT_JUDGED]:
        found += f"; {statuses[NOT_JUDGED]} not judged"
    return f"Checked {checked} by ruleset {report.ruleset}: {found}."


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(printable(text)).replace(":", "%3A").replace(",", "%2C")
