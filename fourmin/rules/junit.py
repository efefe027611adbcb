"""JUnit's XML, which every continuous integration shows: a test case for each thing checked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from xml.etree import ElementTree

from fourmin.base.text import printable
from fourmin.rules.rule import Finding, worst_first
from fourmin.rules.verdict import NOT_JUDGED, UNCHECKED, Report

MOST_TOLD = 200
"""Findings that are told of each thing; the rest are counted."""


def as_junit(report: Report) -> Iterator[str]:
    """One test suite. A case fails where an error stands, and is skipped where a required check
    could not be made, or nothing could be judged; the other findings are its output.
    """
    suite = ElementTree.Element("testsuite", name=f"fourmin validate, ruleset {report.ruleset}")
    for verdict in report.verdicts:
        case = ElementTree.SubElement(
            suite, "testcase", classname=f"fourmin.{verdict.kind}", name=printable(verdict.path)
        )
        if verdict.status in (UNCHECKED, NOT_JUDGED):
            ElementTree.SubElement(case, "skipped", message=verdict.words)
        elif not verdict.ok:
            first = verdict.failing[0]
            message = printable(f"{first.code} {first.name}: {first.message}")
            failure = ElementTree.SubElement(case, "failure", message=message, type=first.code)
            failure.text = _told(verdict.failing)
        others = worst_first(finding for finding in verdict.findings if not finding.fails)
        if others:
            ElementTree.SubElement(case, "system-out").text = _told(others)
    yield from document(suite)


def document(suite: ElementTree.Element) -> Iterator[str]:
    """The lines of a file of this one suite, its cases counted."""
    counts = {
        "tests": len(suite.findall("testcase")),
        "failures": len(suite.findall("*/failure")),
        "errors": 0,
        "skipped": len(suite.findall("*/skipped")),
    }
    suite.attrib.update({name: str(count) for name, count in counts.items()})
    suites = ElementTree.Element("testsuites", suite.attrib)
    suites.append(suite)
    ElementTree.indent(suites)
    yield '<?xml version="1.0" encoding="UTF-8"?>'
    yield ElementTree.tostring(suites, encoding="unicode")


def _told(findings: Sequence[Finding]) -> str:
    lines = [f"{finding.severity} {finding.text}" for finding in findings[:MOST_TOLD]]
    if len(findings) > MOST_TOLD:
        lines.append(f"and {len(findings) - MOST_TOLD} more")
    return "\n".join(lines)
