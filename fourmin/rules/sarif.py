"""SARIF 2.1.0, for GitHub's code scanning and every other reader of it."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

from fourmin import __version__
from fourmin.base.canonical import sha256_hex
from fourmin.base.text import printable
from fourmin.rules.registry import RULES
from fourmin.rules.rule import ERROR, GROUPS, NOTE, WARNING, Finding, Rule, worst_first
from fourmin.rules.verdict import Report

MOST_RESULTS = 5000
"""GitHub shows so many results of a run and drops the others."""
MOST_TEXT = 1000
SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS = {ERROR: "error", WARNING: "warning", NOTE: "note"}


def as_sarif(report: Report) -> Iterator[str]:
    """One SARIF log with one run, errors first, at most `MOST_RESULTS` of the findings."""
    ordered = worst_first(report.findings)
    shown = ordered[:MOST_RESULTS]
    codes = {finding.code for finding in shown}
    rules = [rule for rule in RULES if rule.code in codes]
    places = {rule.code: index for index, rule in enumerate(rules)}
    left_out = len(ordered) - len(shown)
    run: dict[str, Any] = {
        "tool": {
            "driver": {
                "name": "fourmin",
                "version": __version__,
                "semanticVersion": __version__,
                "rules": [_rule(rule) for rule in rules],
            }
        },
        "columnKind": "unicodeCodePoints",
        "invocations": [_invocation(left_out)],
        "results": [_result(finding, places[finding.code]) for finding in shown],
        "properties": {"ruleset": report.ruleset, "ok": report.ok, "findingsLeftOut": left_out},
    }
    yield json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=1)


def _invocation(left_out: int) -> dict[str, Any]:
    invocation: dict[str, Any] = {"executionSuccessful": True}
    if left_out:
        text = f"{left_out} findings were left out; at most {MOST_RESULTS} are shown"
        invocation["toolExecutionNotifications"] = [{"level": "warning", "message": {"text": text}}]
    return invocation


def _rule(rule: Rule) -> dict[str, Any]:
    text = "\n\n".join(f"{heading}. {body}" for heading, body in rule.sections.items())
    return {
        "id": rule.code,
        "name": "".join(word.capitalize() for word in rule.name.split("-")),
        "shortDescription": {"text": rule.summary},
        "fullDescription": {"text": rule.summary},
        "help": {"text": text},
        "defaultConfiguration": {"level": _LEVELS[rule.severity]},
        "properties": {"tags": [GROUPS[rule.code[:3]]]},
    }


def _result(finding: Finding, index: int) -> dict[str, Any]:
    message = f"{finding.message}. {finding.hint}" if finding.hint else finding.message
    place: dict[str, Any] = {"artifactLocation": {"uri": uri(finding.path)}}
    if finding.line is not None and finding.line > 0:
        place["region"] = {"startLine": finding.line}
    result: dict[str, Any] = {
        "ruleId": finding.code,
        "ruleIndex": index,
        "kind": "open" if finding.unchecked else "fail",
        "level": "none" if finding.unchecked else _LEVELS[finding.severity],
        "message": {"text": printable(message, MOST_TEXT)},
        "locations": [{"physicalLocation": place}],
        "partialFingerprints": {
            "findingHash/v1": sha256_hex(
                json.dumps([finding.code, finding.path, finding.message]).encode()
            )
        },
    }
    if finding.waived is not None:
        text = printable(finding.waived, MOST_TEXT)
        result["suppressions"] = [{"kind": "external", "justification": text}]
    return result


def uri(path: str) -> str:
    """A path as a URI reference: relative as it stands, absolute with the scheme `file`."""
    plain = os.path.normpath(path) if path else "."
    try:
        data = plain.encode("utf-8", "surrogateescape")  # the bytes that the file system has
    except UnicodeEncodeError:
        data = plain.encode("utf-8", "surrogatepass")
    escaped = quote(data, safe="/")
    if plain.startswith("/"):
        return f"file://{re.sub('^/+', '/', escaped)}"
    return escaped
