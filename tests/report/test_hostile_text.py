"""What a submitter wrote shows as text in every format, and does nothing."""

from __future__ import annotations

import csv
import dataclasses
import html
import io
import json
import re

import pytest
from campaign_factory import make_campaign

from fourmin.report import load_pair_renderer, load_renderer
from fourmin.report.collect import collect_all
from fourmin.report.group import compare
from fourmin.report.model import Result
from fourmin.report.prices import Price
from fourmin.report.runs import Energy
from fourmin.report.side_by_side import put_side_by_side

TEXT_FORMATS = ("table", "markdown", "csv", "json")
HOSTILE = {
    "script": "<script>alert(1)</script><img src=x onerror=alert(1)>",
    "terminal": "\x1b[2J\x1b]8;;http://e\x07link\x1b]8;;\x07\x9b31m\r\n\x08",
    "right-to-left": "\u202eevil\u2066\u200f\u2028",
    "formula": '=cmd|"/c calc"!A1',
    "wide-formula": "＝1+1",
    "tab-formula": "\t=1+1",
    "markdown": "[x](http://e)|@me|`a`\n# heading\n![i](http://e)",
}


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Result:
    (result,) = collect_all([make_campaign(tmp_path_factory.mktemp("hostile"))])
    return result


def hostile(honest: Result, text: str, identity: str = "other") -> Result:
    """A result whose every text is a submitter's."""
    runs = tuple(
        dataclasses.replace(
            run,
            path=text,
            facts=dataclasses.replace(run.facts, status=text, failure=text),
            energy=Energy(1.0, text, text),
        )
        for run in honest.runs
    )
    return dataclasses.replace(
        honest,
        path=text + identity,
        submitter=text,
        system=text,
        benchmark=text,
        division=text,
        dataset=text,
        clock=text,
        registration=text,
        citation=text,
        round=text,
        chip=text,
        runs=runs,
        configuration={text: text},
        software={text: text},
        price=Price(text, text, 1.0, text, text, "2026-11-28"),
        group=identity,
        identity=identity,
    )


def renderings(honest: Result, text: str, form: str) -> tuple[str, str]:
    """The report and the comparison of two results that hold `text` wherever a text can stand."""
    one, two = hostile(honest, text, "one"), hostile(honest, text + "2", "two")
    failed = dataclasses.replace(hostile(honest, text, "three"), minutes=None)
    practice = dataclasses.replace(hostile(honest, text, "four"), practice=True)
    report = load_renderer(form)(compare("1.0", [one, two, failed, practice]))
    pair = put_side_by_side("1.0", [one, two], one.path, two.path)
    return report, load_pair_renderer(form)(pair)


@pytest.mark.parametrize("kind", HOSTILE)
@pytest.mark.parametrize("form", TEXT_FORMATS)
def test_no_character_that_does_anything_is_written(form: str, kind: str, honest: Result) -> None:
    for text in renderings(honest, HOSTILE[kind], form):
        assert "alert" in text if kind == "script" else True
        for character in "\x1b\x9b\x07\x08\t\u202e\u2066\u200f\u2028":
            assert character not in text
        assert "\r" not in text.replace("\r\n", "" if form == "csv" else "\r\n")


@pytest.mark.parametrize("kind", HOSTILE)
def test_markdown_makes_nothing_of_it(kind: str, honest: Result) -> None:
    for text in renderings(honest, HOSTILE[kind], "markdown"):
        assert "<" not in text
        assert "](" not in re.sub(r"\\.", "", text)
        assert "@" not in re.sub(r"\\.", "", text)
        assert not re.search(r"^# ", text, re.M)
        columns = {
            len(re.findall(r"(?<!\\)\|", line)) for line in text.splitlines() if line[:1] == "|"
        }
        assert len(columns) <= 2  # one number of columns a table
    assert "&lt;script&gt;" in renderings(honest, HOSTILE["script"], "markdown")[0]


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_spreadsheet_computes_nothing_of_it(kind: str, honest: Result) -> None:
    for text in renderings(honest, HOSTILE[kind], "csv"):
        rows = list(csv.reader(io.StringIO(text)))
        assert len({len(row) for row in rows}) == 1
        for cell in (cell for row in rows[1:] for cell in row):
            harmless = cell[:1] not in "=+-@＝＋－＠\t\r" or not cell
            assert harmless or re.fullmatch(r"-?[0-9.e+-]+", cell), cell


@pytest.mark.parametrize("kind", HOSTILE)
def test_json_gives_the_text_as_it_was(kind: str, honest: Result) -> None:
    report, pair = renderings(honest, HOSTILE[kind], "json")
    assert report.isascii()
    assert pair.isascii()
    assert json.loads(report)["results"][0]["submitter"].startswith(HOSTILE[kind])
    assert json.loads(pair)["a"]["submitter"] == HOSTILE[kind]


def test_what_is_harmless_stays_readable(honest: Result) -> None:
    for form in TEXT_FORMATS:
        text = load_renderer(form)(compare("1.0", [hostile(honest, "Müller & Søn, Zürich")]))
        shown = html.unescape(text) if form == "markdown" else text
        if form == "json":
            assert json.loads(text)["results"][0]["submitter"] == "Müller & Søn, Zürich"
        else:
            assert "Müller & Søn, Zürich" in " ".join(shown.split())
