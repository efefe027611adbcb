"""SARIF and JUnit: what other tools require of them, their limits, and hostile text."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from foreign_factory import Record, make_entry, make_package, mlperf_records
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from fourmin.cli.main import app
from fourmin.rules import sarif
from fourmin.rules.engine import check
from fourmin.rules.render import FORMATS
from fourmin.rules.rule import ERROR, SEVERITIES, Finding
from fourmin.rules.verdict import Report, verdicts

HOSTILE = "\x1b[31m]]>&<!-- \x00\ud800 '\"%0A::error::\u202e\ufffe"


def finding(number: int = 0, **changes: Any) -> Finding:
    made = Finding("LOG001", "strict-log", ERROR, f"a/result_{number}.txt", 7, "bad", "repair it")
    return replace(made, **changes)


def report(*findings: Finding) -> Report:
    return Report("1.0", verdicts([("mlperf-run-set", "a")], findings), findings)


def render(name: str, what: Report) -> str:
    return "\n".join(FORMATS[name](what)) + "\n"


def assert_sarif(document: Any) -> dict[str, Any]:
    """What the SARIF 2.1.0 schema requires of a log, and GitHub of what it takes."""
    assert document["version"] == "2.1.0"
    assert document["$schema"].endswith("sarif-2.1.0.json")
    (run,) = document["runs"]
    driver = run["tool"]["driver"]
    assert driver["name"] == "fourmin"
    ids = [rule["id"] for rule in driver["rules"]]
    assert len(set(ids)) == len(ids)
    for rule in driver["rules"]:
        assert rule["shortDescription"]["text"]
        assert rule["help"]["text"]
        assert rule["defaultConfiguration"]["level"] in ("error", "warning", "note")
    assert run["invocations"][0]["executionSuccessful"] is True
    assert len(run["results"]) <= 5000
    for result in run["results"]:
        assert ids[result["ruleIndex"]] == result["ruleId"]
        assert result["level"] in ("error", "warning", "note")
        assert 0 < len(result["message"]["text"]) <= 1000
        (location,) = result["locations"]
        place = location["physicalLocation"]
        assert place["artifactLocation"]["uri"].isascii()
        assert " " not in place["artifactLocation"]["uri"]
        if "region" in place:
            assert place["region"]["startLine"] >= 1
        assert all(isinstance(v, str) for v in result["partialFingerprints"].values())
    return run


def test_sarif_of_a_real_check(tmp_path: Path) -> None:
    def edit(run: int, records: list[Record]) -> None:
        if run in (1, 3):
            records[:] = mlperf_records(run=run, converges=False)

    folder = make_package(tmp_path, edit=edit)
    result = CliRunner().invoke(app, ["validate", "--format", "sarif", str(tmp_path)])
    assert result.exit_code == 1
    run = assert_sarif(json.loads(result.stdout))
    first, second = run["results"][:2]
    assert (first["ruleId"], first["level"]) == ("RUN009", "error")
    assert (second["ruleId"], second["level"]) == ("RUN009", "error")
    uri = first["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert uri == f"file://{folder}/result_1.txt"


def test_sarif_has_the_worst_findings_first_and_says_what_it_left_out() -> None:
    notes = [finding(i, severity="note") for i in range(6000)]
    run = assert_sarif(json.loads(render("sarif", report(*notes, finding(9)))))
    assert [result["level"] for result in run["results"][:2]] == ["error", "note"]
    assert len(run["results"]) == 5000
    assert run["properties"]["findingsLeftOut"] == 1001
    assert run["invocations"][0]["toolExecutionNotifications"][0]["level"] == "warning"


def test_sarif_of_ten_thousand_long_findings_stays_below_githubs_ten_megabytes() -> None:
    import gzip

    many = [finding(i, message="x" * 5000, hint="y" * 5000) for i in range(10_000)]
    text = render("sarif", report(*many))
    assert len(gzip.compress(text.encode())) < 10_000_000
    assert len(text) < 20_000_000


@pytest.mark.parametrize(
    ("path", "uri"),
    [
        ("a/b c.txt", "a/b%20c.txt"),
        ("./a/../b", "b"),
        ("/repo/x", "file:///repo/x"),
        ("//repo/x", "file:///repo/x"),
        ("a%20b#c?d:e", "a%2520b%23c%3Fd%3Ae"),
        ("", "."),
        ("\udcff", "%FF"),
    ],
)
def test_paths_become_uris(path: str, uri: str) -> None:
    assert sarif.uri(path) == uri


def test_waived_findings_are_suppressed_in_sarif_and_fail_nothing_in_junit() -> None:
    waived = finding(waived="a typing error (maintainer)")
    run = assert_sarif(json.loads(render("sarif", report(waived))))
    assert run["results"][0]["suppressions"][0]["kind"] == "external"
    suites = ElementTree.fromstring(render("junit", report(waived)))
    assert suites.find(".//failure") is None
    assert "waived" in (suites.findtext(".//system-out") or "")


def test_junit_has_a_case_for_each_thing_checked(tmp_path: Path) -> None:
    folder = make_package(tmp_path, edit=lambda run, records: run == 3 and records.pop())
    make_entry(tmp_path / "dawn")
    result = CliRunner().invoke(app, ["validate", "--format", "junit", str(tmp_path)])
    assert result.exit_code == 1
    suites = ElementTree.fromstring(result.stdout)
    assert suites.tag == "testsuites"
    (suite,) = suites
    assert (suite.tag, suite.get("tests"), suite.get("failures")) == ("testsuite", "7", "2")
    cases = {case.get("name"): case for case in suite}
    assert set(cases) == {c.path for c in check([tmp_path]).checked}
    failing = [name for name, case in cases.items() if case.find("failure") is not None]
    assert failing == [str(folder), f"{folder}/result_3.txt"]
    failure = cases[failing[1]].find("failure")
    assert failure is not None
    assert failure.get("type") == "LOG002"
    assert "run_stop is missing" in (failure.text or "")
    assert cases[failing[1]].get("classname") == "fourmin.mlperf-run"


@settings(max_examples=50, deadline=None)
@given(st.text(), st.text(), st.sampled_from(SEVERITIES), st.none() | st.integers(-1, 2**70))
def test_any_text_gives_a_document_that_parses(
    message: str, path: str, severity: str, line: int | None
) -> None:
    what = report(
        finding(message=message + HOSTILE, path=path + HOSTILE, severity=severity, line=line)
    )
    assert_sarif(json.loads(render("sarif", what)))
    ElementTree.fromstring(render("junit", what))
    for name in FORMATS:
        text = render(name, what)
        assert "\x1b" not in text
        assert text.encode("utf-8")


@pytest.mark.parametrize("name", sorted(FORMATS))
@pytest.mark.parametrize(("broken", "code"), [(False, 0), (True, 1)])
def test_exit_codes_are_the_same_in_every_format(
    name: str, broken: bool, code: int, tmp_path: Path
) -> None:
    make_package(tmp_path, runs=4 if broken else 5)
    arguments = ["validate", "--format", name, str(tmp_path)]
    assert CliRunner().invoke(app, arguments).exit_code == code
    (tmp_path / "empty").mkdir()
    nothing = CliRunner().invoke(app, [*arguments[:3], str(tmp_path / "empty")])
    assert type(nothing.exception).__name__ == "FourminError"
    (tmp_path / "v4.0" / "ACME" / "systems" / "8xA1000.json").unlink()
    assert CliRunner().invoke(app, [*arguments, "--strict"]).exit_code == 1


def test_what_lies_beside_the_things_checked_counts_in_every_format() -> None:
    stray = finding(path="elsewhere/rules.toml", severity=ERROR)
    what = Report("1.0", verdicts([("campaign", "a"), ("unknown", "docs")], [stray]), (stray,))
    assert not what.ok
    assert [(v.path, v.kind, v.ok) for v in what.checked] == [
        ("a", "campaign", True),
        ("docs", "unknown", False),
    ]
    (suite,) = ElementTree.fromstring(render("junit", what))
    assert [suite.get(name) for name in ("tests", "failures", "skipped")] == ["3", "1", "1"]
    assert len(suite) == 3
    assert "change files of the change: not valid (1 error)" in render("text", what)


def test_an_error_where_no_result_is_fails_in_every_format() -> None:
    """An estimate is no result, and an error all the same."""
    what = Report("1.0", verdicts([("unknown", "a")], [finding()]), (finding(),))
    (suite,) = ElementTree.fromstring(render("junit", what))
    assert [suite.get(name) for name in ("tests", "failures", "skipped")] == ["1", "1", "0"]
    assert "unknown a: not valid (1 error)" in render("text", what)
