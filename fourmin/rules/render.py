"""A report as text, JSON, GitHub workflow annotations, SARIF or JUnit, by the format's name."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import groupby

from fourmin.base.text import printable
from fourmin.rules.engine import UNKNOWN, Checked, Report, by_target
from fourmin.rules.junit import as_junit
from fourmin.rules.rule import ERROR, NOTE, SEVERITIES, WARNING, Finding
from fourmin.rules.sarif import as_sarif

MOST_ANNOTATIONS = 10
"""GitHub shows so many annotations of each level for a step."""
_GITHUB_LEVELS = {ERROR: "error", WARNING: "warning", NOTE: "notice"}


def as_json(report: Report) -> Iterator[str]:
    """One JSON object, in ASCII."""
    yield json.dumps(report.to_json(), indent=2)


def as_text(report: Report) -> Iterator[str]:
    """A block for each thing that was checked, a line for each finding and its hint."""
    for checked, findings in by_target(report):
        yield f"{checked.kind} {printable(checked.path)}: {_verdict(checked, findings)}"
        for finding in findings:
            yield f"  {_line(finding)}"
            if finding.severity != NOTE and finding.hint and not finding.waived:
                yield f"      {printable(finding.hint)}"
    yield _closing(report)


def as_github(report: Report) -> Iterator[str]:
    """Workflow commands that annotate files, as many as GitHub shows; the rest as text."""
    left = dict.fromkeys(SEVERITIES, MOST_ANNOTATIONS)
    for finding in sorted(report.findings, key=lambda f: SEVERITIES.index(f.severity)):
        if left[finding.severity] == 0 or finding.waived:
            yield _line(finding)
            continue
        left[finding.severity] -= 1
        line = "" if finding.line is None else f",line={finding.line}"
        text = printable(f"{finding.message}. {finding.hint}", 1000)
        yield (
            f"::{_GITHUB_LEVELS[finding.severity]} file={_property(finding.path)}{line},"
            f"title={_property(f'{finding.code} {finding.name}')}::{_data(text)}"
        )
    yield _closing(report)


FORMATS: dict[str, Callable[[Report], Iterator[str]]] = {
    "text": as_text,
    "json": as_json,
    "github": as_github,
    "sarif": as_sarif,
    "junit": as_junit,
}
"""Each format's renderer, which yields lines."""


def _line(finding: Finding) -> str:
    place = printable(finding.path) + ("" if finding.line is None else f":{finding.line}")
    waived = f" [waived: {printable(finding.waived)}]" if finding.waived else ""
    return f"{finding.severity:<7} {finding.code} {place}: {printable(finding.message)}{waived}"


def _verdict(checked: Checked, findings: list[Finding]) -> str:
    if checked.kind == UNKNOWN:
        return "nothing to check there"
    counts = Counter(finding.severity for finding in findings)
    told = [_count(counts[level], level) for level in SEVERITIES if counts[level]]
    verdict = ("ok" if checked.ok else "not valid") + (f" ({', '.join(told)})" if told else "")
    several = sum(finding.fails for finding in findings) > 1
    return f"{verdict}; look first at {checked.look_first}" if several else verdict


def _closing(report: Report) -> str:
    kinds = Counter(checked.kind for checked in report.checked if checked.kind != UNKNOWN)
    checked = ", ".join(
        _count(len(list(group)), kind) for kind, group in groupby(sorted(kinds.elements()))
    )
    counts = Counter(finding.severity for finding in report.findings)
    found = ", ".join(_count(counts[level], level) for level in SEVERITIES)
    waived = sum(finding.waived is not None for finding in report.findings)
    if waived:
        found += f", {waived} of the errors waived"
    return f"Checked {checked} by ruleset {report.ruleset}: {found}."


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(printable(text)).replace(":", "%3A").replace(",", "%2C")
