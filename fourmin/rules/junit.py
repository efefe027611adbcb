"""JUnit's XML, which every continuous integration shows: a test case for each thing checked."""

from __future__ import annotations

from collections.abc import Iterator
from xml.etree import ElementTree

from fourmin.base.text import printable
from fourmin.rules.engine import UNKNOWN, Report, by_target
from fourmin.rules.rule import SEVERITIES, Finding

MOST_TOLD = 200
"""Findings that are told of each thing; the rest are counted."""


def as_junit(report: Report) -> Iterator[str]:
    """One test suite; a case fails where an error stands, the other findings are its output."""
    suite = ElementTree.Element("testsuite", name=f"fourmin validate, ruleset {report.ruleset}")
    failures = skipped = 0
    for checked, findings in by_target(report):
        case = ElementTree.SubElement(
            suite, "testcase", classname=f"fourmin.{checked.kind}", name=printable(checked.path)
        )
        ordered = sorted(findings, key=lambda f: SEVERITIES.index(f.severity))
        failing = [finding for finding in ordered if finding.fails]
        others = [finding for finding in ordered if not finding.fails]
        if checked.kind == UNKNOWN:
            skipped += 1
            ElementTree.SubElement(case, "skipped", message="nothing to check there")
        elif failing:
            failures += 1
            first = failing[0]
            message = printable(f"{first.code} {first.name}: {first.message}")
            failure = ElementTree.SubElement(case, "failure", message=message, type=first.code)
            failure.text = _told(failing)
        if others:
            ElementTree.SubElement(case, "system-out").text = _told(others)
    counts = {"tests": len(report.checked), "failures": failures, "errors": 0, "skipped": skipped}
    suite.attrib.update({name: str(count) for name, count in counts.items()})
    suites = ElementTree.Element("testsuites", suite.attrib)
    suites.append(suite)
    ElementTree.indent(suites)
    yield '<?xml version="1.0" encoding="UTF-8"?>'
    yield ElementTree.tostring(suites, encoding="unicode")


def _told(findings: list[Finding]) -> str:
    lines = [_line(finding) for finding in findings[:MOST_TOLD]]
    if len(findings) > MOST_TOLD:
        lines.append(f"and {len(findings) - MOST_TOLD} more")
    return "\n".join(lines)


def _line(finding: Finding) -> str:
    place = printable(finding.path) + ("" if finding.line is None else f":{finding.line}")
    waived = f" [waived: {printable(finding.waived)}]" if finding.waived else ""
    return f"{finding.severity} {finding.code} {place}: {printable(finding.message)}{waived}"
