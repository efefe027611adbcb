"""Text, JSON and GitHub annotations: stable, complete, and harmless whatever a file says."""

from __future__ import annotations

import json
from typing import Any

from fourmin.rules.render import FORMATS, as_text
from fourmin.rules.rule import Finding
from fourmin.rules.verdict import Report, verdicts


def _finding(**changes: Any) -> Finding:
    fields: dict[str, Any] = {
        "code": "LED004",
        "name": "recorded-file",
        "severity": "error",
        "path": "results/a/run-1/events.log",
        "line": None,
        "message": "the file has changed",
        "hint": "Restore it.",
    }
    return Finding(**(fields | changes))


def _report(*findings: Finding) -> Report:
    return _report_of([("campaign", "results/a")], *findings)


def _report_of(things: list[tuple[str, str]], *findings: Finding) -> Report:
    return Report("1.0", verdicts(things, findings), findings)


def _lines(name: str, report: Report) -> list[str]:
    return list(FORMATS[name](report))


def test_text() -> None:
    report = _report(
        _finding(),
        _finding(severity="warning", code="RUN006", path="results/a/ledger.jsonl", line=3),
        _finding(severity="note", code="SYS005", path="results/a"),
    )
    assert _lines("text", report) == [
        "campaign results/a: not valid (1 error, 1 warning, 1 note)",
        "  error   LED004 run-1/events.log: the file has changed",
        "      Restore it.",
        "  warning RUN006 ledger.jsonl:3: the file has changed",
        "      Restore it.",
        "Checked 1 campaign by ruleset 1.0: 1 error, 1 warning, 1 note (-v).",
    ]
    assert list(as_text(report, verbose=True))[5:] == [
        "  note    SYS005: the file has changed",
        "Checked 1 campaign by ruleset 1.0: 1 error, 1 warning, 1 note.",
    ]


def test_text_says_once_what_several_have_in_common() -> None:
    places = [f"s/lab/box/digits/{name}" for name in "abcd"]
    report = _report_of(
        [("campaign", place) for place in places],
        *(_finding(severity="warning", code="SYS006", path=place) for place in places),
        *(_finding(path=f"{places[1]}/run-{n}/events.log", message=f"{n} off") for n in range(9)),
    )
    assert _lines("text", report) == [
        "campaign s/lab/box/digits/b: not valid (9 errors, 1 warning); look first at LED004",
        *(
            line
            for n in range(3)
            for line in (f"  error   LED004 run-{n}/events.log: {n} off", "      Restore it.")
        ),
        "  and 6 more of LED004 (-v)",
        "warning SYS006 in 4 of them: the file has changed",
        "      Restore it.",
        "      below s/lab/box/digits: a, b, c and 1 more",
        "valid: 3 campaigns",
        "Checked 4 campaigns by ruleset 1.0: 9 errors, 4 warnings, 0 notes.",
    ]
    whole = list(as_text(report, verbose=True))
    assert sum("LED004 run" in line for line in whole) == 9
    assert sum(line.startswith("  warning") for line in whole) == 4


def test_text_is_five_lines_where_there_is_no_error_or_warning() -> None:
    places = [f"submissions/lab/box{n}/digits/campaign-{n}" for n in range(200)]
    report = _report_of(
        [*(("submission", f"submissions/lab/box{n}") for n in range(200))]
        + [("campaign", place) for place in places],
        *(_finding(severity="note", path=place) for place in places),
        *(_finding(severity="note", code="SYS003", path=p, unchecked=True) for p in places[:3]),
    )
    assert _lines("text", report) == [
        "no error: 200 submissions; unchecked SYS003: 3 campaigns; valid: 197 campaigns",
        "Checked 200 campaigns, 200 submissions by ruleset 1.0: 0 errors, 0 warnings, 203 notes "
        "(-v); 3 campaigns unchecked.",
    ]


def test_text_of_nothing_found_and_nothing_there() -> None:
    report = _report_of([("campaign", "results/a"), ("unknown", "docs")])
    assert _lines("text", report) == [
        "unknown docs: nothing to check there",
        "valid: 1 campaign",
        "Checked 1 campaign by ruleset 1.0: 0 errors, 0 warnings, 0 notes.",
    ]


def test_findings_go_to_the_deepest_thing_that_was_checked() -> None:
    report = _report_of(
        [
            ("submission", "s/lab/box"),
            ("campaign", "s/lab/box/digits/a"),
            ("campaign", "s/lab/box/digits/ab"),
        ],
        _finding(path="s/lab/box/system.json"),
        _finding(path="s/lab/box/digits/ab/x"),
    )
    assert [line for line in _lines("text", report) if not line.startswith(" ")][:3] == [
        "submission s/lab/box: not valid (1 error)",
        "campaign s/lab/box/digits/a: not valid, for the description of its system is not",
        "campaign s/lab/box/digits/ab: not valid (1 error); look first at LED004",
    ]


def test_the_current_folder_owns_its_findings() -> None:
    report = _report_of([("campaign", ".")], _finding(path="./run-1/x"))
    assert "error" in _lines("text", report)[1]


def test_escapes_are_neutralised() -> None:
    nasty = _finding(path="results/a/\x1b[2J\u202e", message="\x1b]0;x\x07\r\n::error::fake")
    for name in ("text", "github"):
        output = "\n".join(_lines(name, _report(nasty)))
        assert not any(ord(char) < 32 and char != "\n" for char in output)
        assert "\u202e" not in output
        assert not any(line.startswith("::error::") for line in output.splitlines())
    text = "\n".join(_lines("json", _report(nasty)))
    assert text.isascii()
    assert json.loads(text)["findings"][0]["path"] == nasty.path


def test_github_annotations() -> None:
    report = _report(_finding(path="a,b:c%d", line=7, message="50% off"))
    assert _lines("github", report)[0] == (
        "::error file=a%2Cb%3Ac%25d,line=7,title=LED004 recorded-file::50%25 off. Restore it."
    )


def test_github_shows_ten_of_each_level_and_tells_the_rest() -> None:
    findings = [_finding(path=f"results/a/{n}") for n in range(13)]
    findings += [_finding(severity="warning", path="results/a/w")]
    lines = _lines("github", _report(*findings))
    assert sum(line.startswith("::error ") for line in lines) == 10
    assert sum(line.startswith("::warning ") for line in lines) == 1
    assert sum(line.startswith("error ") for line in lines) == 3
    assert lines[-1].endswith("13 errors, 1 warning, 0 notes.")
