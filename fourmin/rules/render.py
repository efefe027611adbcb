"""A report as text, JSON, GitHub workflow annotations, SARIF or JUnit, by the format's name."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator

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
_GITHUB_LEVELS = {ERROR: "error", WARNING: "warning", NOTE: "notice"}


def as_json(report: Report) -> Iterator[str]:
    """One JSON object, in ASCII."""
    yield json.dumps(report.to_json(), indent=2)


def as_text(report: Report) -> Iterator[str]:
    """A block for each thing that was checked, a line for each finding and its hint."""
    for verdict in report.verdicts:
        yield f"{verdict.kind} {printable(verdict.path)}: {_said(verdict)}"
        for finding in verdict.findings:
            yield f"  {_line(finding)}"
            if finding.severity != NOTE and finding.hint and not finding.waived:
                yield f"      {printable(finding.hint)}"
    yield _closing(report)


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


def _line(finding: Finding) -> str:
    return f"{finding.severity:<7} {finding.text}"


def _said(verdict: Verdict) -> str:
    told = [how_many(number, level) for level, number in verdict.counts.items() if number]
    said = verdict.words + (f" ({', '.join(told)})" if told else "")
    if verdict.registration in (CLAIMED, REGISTERED):
        said += f", {REGISTRATIONS[verdict.registration]}"
    first = len(verdict.failing) > 1 and verdict.status != FAILS_HERE
    return f"{said}; look first at {verdict.look_first}" if first else said


def _closing(report: Report) -> str:
    statuses = Counter(verdict.status for verdict in report.verdicts if verdict.kind != UNKNOWN)
    judged = (verdict for verdict in report.checked if verdict.status != NOT_JUDGED)
    kinds = Counter(verdict.kind for verdict in judged if verdict.kind != UNKNOWN)
    checked = ", ".join(how_many(kinds[kind], kind) for kind in sorted(kinds)) or "nothing"
    found = ", ".join(how_many(number, level) for level, number in count(report.findings).items())
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
