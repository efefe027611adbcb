"""The page as a file: what is in it, that it asks nobody for anything, and that text stays text."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import subprocess
import sys
import tarfile
from base64 import b64encode
from collections import Counter
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from campaign_factory import make_campaign
from report_factory import make_results
from speed import SECOND, effort

from fourmin.ledger.chain import Entry
from fourmin.recipe.presets import load_preset
from fourmin.report import load_renderer
from fourmin.report.collect import collect, collect_all
from fourmin.report.group import compare
from fourmin.report.model import Comparison, Result
from fourmin.report.runs import Energy
from fourmin.report.wording import interval, time, title
from fourmin.rules.registry import RULES
from fourmin.rules.rule import Finding
from fourmin.rules.verdict import Verdict

pytestmark = pytest.mark.untraced

pytest.importorskip("jinja2", reason="no jinja2: pip install '.[report]'")
pytest.importorskip("vl_convert", reason="no vl-convert-python: pip install '.[report]'")

REPOSITORY = Path(__file__).resolve().parents[2]
CORPUS = Path(os.environ.get("FOURMIN_CORPUS", REPOSITORY.parent / "shared" / "corpus"))
HOSTILE = {
    "script": "</script><script>alert(1)</script><img src=x onerror=alert(1)><!--",
    "attribute": "\" onload='alert(1)' x=\"",
    "style": "</style>}*{background:url(//e)}",
    "template": "{{ 7 * 7 }}{% include 'x' %}${1}",
    "terminal": "\x1b[2J\x07\x9b31m",
    "right-to-left": "\u202eevil\u2066\u200f\u2028",
    "formula": '=cmd|"/c calc"!A1',
    "link": "javascript:alert(1)",
}


class Page(HTMLParser):
    """The elements of a page with their attributes, the texts, and what script elements hold."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.attributes: list[tuple[str, str, str]] = []
        self.scripts: list[tuple[str | None, str]] = []
        self.styles: list[str] = []
        self.rows: list[list[str]] = []
        self.tables: list[tuple[str, list[list[str]]]] = []
        self._inside: list[str] = []
        self._type: str | None = None
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes += [(tag, name, value or "") for name, value in attributes]
        self._inside.append(tag)
        if tag == "script":
            self._type = dict(attributes).get("type")
        if tag == "h2":
            self.tables.append(("", []))
        if tag == "tr":
            self.tables[-1][1].append([])
        if tag in ("td", "th"):
            self.tables[-1][1][-1].append("")

    def handle_endtag(self, tag: str) -> None:
        if tag in self._inside:
            while self._inside.pop() != tag:
                pass

    def handle_data(self, data: str) -> None:
        inside = self._inside[-1] if self._inside else ""
        if inside == "script":
            self.scripts.append((self._type, data))
        elif inside == "style":
            self.styles.append(data)
        elif inside == "h2":
            name, rows = self.tables[-1]
            self.tables[-1] = (name + data, rows)
        elif {"td", "th"} & set(self._inside):
            self.tables[-1][1][-1][-1] += f"\n{data}" if inside == "small" else data

    @property
    def data(self) -> Any:
        (text,) = [text for kind, text in self.scripts if kind == "application/json"]
        return json.loads(text)

    @property
    def policy(self) -> dict[str, list[str]]:
        (text,) = [
            value for tag, name, value in self.attributes if (tag, name) == ("meta", "content")
            and "default-src" in value
        ]  # fmt: skip
        return {words[0]: words[1:] for words in (part.split() for part in text.split(";"))}


@pytest.fixture(scope="module")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    root = tmp_path_factory.mktemp("page")
    make_results(root)
    return collect([root], published=True)


@pytest.fixture(scope="module")
def html(comparison: Comparison) -> str:
    return load_renderer("html")(comparison)


@pytest.fixture(scope="module")
def page(html: str) -> Page:
    return Page(html)


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Result:
    (result,) = collect_all([make_campaign(tmp_path_factory.mktemp("honest"))])
    return result


def test_nothing_outside_of_the_page_is_named(page: Page) -> None:
    addresses = {
        value
        for _, name, value in page.attributes
        if name in ("src", "href", "action", "data", "poster", "srcset", "formaction", "background")
    }
    assert all(address.startswith("#") or address == "data:," for address in addresses), addresses
    assert not {"iframe", "object", "embed", "img", "base", "audio", "video"} & set(page.tags)
    assert "url(" not in page.styles[0]
    assert "@import" not in page.styles[0]
    assert not [name for _, name, _ in page.attributes if name.startswith("on") or name == "style"]


def test_only_the_scripts_and_the_style_of_the_page_may_run(page: Page) -> None:
    def hashed(text: str) -> str:
        return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"

    policy = page.policy
    assert policy["default-src"] == ["'none'"]
    assert policy["script-src"] == [hashed(text) for kind, text in page.scripts if kind is None]
    assert len(policy["script-src"]) == page.tags["script"] - 1 == 2
    assert policy["style-src"] == [hashed(page.styles[0])]
    assert policy["img-src"] == ["data:"]
    assert policy["base-uri"] == policy["form-action"] == ["'none'"]
    assert "connect-src" not in policy
    assert "unsafe" not in str(policy)


def test_the_policy_stands_before_everything_that_it_governs(html: str) -> None:
    policy = html.index("Content-Security-Policy")
    assert policy < html.index("<style") < html.index("<script")
    assert html.index("<meta charset") < policy < 1024


def test_the_tables_are_those_of_the_other_formats(page: Page, comparison: Comparison) -> None:
    shown = {name: rows[1:] for name, rows in page.tables if rows}
    expected: dict[str, list[Result]] = {}
    for result in comparison.results:
        expected.setdefault(title(result), []).append(result)
    assert set(expected) <= set(shown)
    for name, results in expected.items():
        assert len(shown[name]) == len(results)
        for cells, result in zip(shown[name], results, strict=True):
            assert cells[0].split("\n") == [result.system, result.submitter]
            assert any(cell.startswith(time(result, result.compared_minutes)) for cell in cells)
            assert result.ci95 is None or any(interval(result) in cell for cell in cells)
            word = "not verified here" if not result.verified else "valid"
            assert word in cells[-1] or (not result.valid and "INVALID" in cells[-1])
    others = [name for name in shown if "campaigns" in name]
    assert len(others) == 2
    assert sum(len(shown[name]) for name in others) == len(comparison.failed) + len(
        comparison.practice
    )


def test_every_row_leads_to_a_section_with_everything_of_its_result(
    page: Page, comparison: Comparison
) -> None:
    links = {
        value[1:]
        for _, name, value in page.attributes
        if name == "href" and value.startswith("#result-")
    }
    sections = page.data["results"]
    assert links == set(sections)
    everything = {
        result.path: result
        for result in (*comparison.results, *comparison.failed, *comparison.practice)
    }
    assert len(sections) == len(everything)
    for section in sections.values():
        named, inner = Path(comparison.here[0][0]), dict(section["facts"])["path"]
        result = everything.get(inner) or everything[str(named.parent / inner)]
        assert len(section["runs"]) == len(result.runs)
        assert len(section["findings"]) == len(result.verdict.findings)
        assert len(section["ledger"]) == len(result.ledger)
        settings = dict(section["settings"])
        commands = [command for _, _, command in section["evidence"]]
        assert (f"fourmin validate {inner}" in commands) == result.verified
        codes = {f"fourmin rules {code}" for code in result.verdict.reasons}
        assert codes == {one for one in commands if one.startswith("fourmin rules")}
        assert len(settings.get("Configuration", ())) >= len(result.configuration)
        assert ("Hardware" in settings) == bool(result.hardware)
        drawn = {name.split()[0]: columns for name, columns in section["charts"].items()}
        evaluations = [
            e for run in result.runs for e in run.facts.evaluations if e.accuracy is not None
        ]
        if result.source == "fourmin":
            assert len(drawn["accuracy"]["run"]) == len(evaluations) + 2  # and the target
            parts = {"initialization", "before the first epoch", "training", "evaluation"}
            assert (
                parts
                <= set(drawn["timeline"]["part"]["of"])
                <= {*parts, "between", "restart", "end"}
            )


def test_a_finding_leads_to_the_text_of_its_rule(page: Page) -> None:
    ids = {value for _, name, value in page.attributes if name == "id"}
    codes = {
        finding[1] for section in page.data["results"].values() for finding in section["findings"]
    }
    assert codes
    assert {f"rule-{code}" for code in codes} <= {f"rule-{rule.code}" for rule in RULES} <= ids


def test_ids_are_unique_and_labels_point_somewhere(page: Page) -> None:
    ids = Counter(value for _, name, value in page.attributes if name == "id")
    assert set(ids.values()) == {1}
    for _, name, value in page.attributes:
        if name == "aria-labelledby":
            assert value in ids


def hostile(result: Result, text: str) -> Result:
    """The result with `text` wherever somebody else wrote the text."""
    run = dataclasses.replace(
        result.runs[0],
        path=text,
        facts=dataclasses.replace(result.runs[0].facts, status=text, failure=text, seed=text),
        energy=Energy(1, text, text),
    )
    return dataclasses.replace(
        result,
        path=text,
        submitter=text,
        system=text,
        benchmark=text,
        division=text,
        dataset=text,
        clock=text,
        round=text,
        chip=text,
        citation=text,
        registration=text,
        runs=(run, *result.runs[1:]),
        verdict=Verdict(
            text,
            "campaign",
            (Finding("LED001", "hash-chain", "error", text, 1, text, text, text),),
        ),
        configuration={text: text, "nested": {text: [text, {text: text}]}},
        hardware={text: text},
        software={text: text},
        environment={text: text},
        ledger=(Entry(1, 0, text, 0, text, {text: text}, "0" * 64),),
    )


@pytest.mark.parametrize("kind", HOSTILE)
def test_what_a_submitter_writes_makes_no_element_and_no_attribute(
    kind: str, honest: Result
) -> None:
    render = load_renderer("html")
    plain = Page(render(compare("1.0", [hostile(honest, "plain")])))
    text = render(compare("1.0", [hostile(honest, HOSTILE[kind])]))
    page = Page(text)
    assert page.tags == plain.tags
    assert [(tag, name) for tag, name, _ in page.attributes] == [
        (tag, name) for tag, name, _ in plain.attributes
    ]
    assert page.policy == plain.policy
    for character in "\x1b\x07\x9b\u202e\u2066\u200f\u2028":
        assert character not in text.replace(page.scripts[1][1], "")
    shown = json.dumps(page.data)
    visible = {"script": "alert(1)", "terminal": "x1b[2J", "right-to-left": "u202e"}
    assert visible.get(kind, "") in shown
    rows = [row for name, rows in page.tables for row in rows if rows]
    assert any(visible.get(kind, HOSTILE[kind][:6]) in cell for row in rows for cell in row)


def test_a_page_is_the_same_every_time(html: str, comparison: Comparison) -> None:
    assert load_renderer("html")(comparison) == html


@pytest.mark.slow
def test_the_page_of_the_whole_corpus_takes_5_seconds_of_two_cores_and_6_mebibytes(
    tmp_path: Path,
) -> None:
    if not CORPUS.is_dir():
        pytest.skip(f"no corpus of published results at {CORPUS} (set FOURMIN_CORPUS)")
    for archive in CORPUS.glob("*.tar.xz"):
        with tarfile.open(archive) as file:
            safe = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
            file.extractall(tmp_path / "corpus", **safe)
    out = tmp_path / "page.html"
    command = [sys.executable, "-m", "fourmin", "report", "--format", "html", "--output", str(out)]
    command += [str(tmp_path / "corpus"), "submissions"]
    most = 2 * 5 * SECOND
    assert effort(lambda: subprocess.run(command, cwd=REPOSITORY, check=True), most) <= most
    page = Page(out.read_text(encoding="utf-8"))
    assert len(page.data["results"]) > 200
    assert out.stat().st_size <= 6 * 1024 * 1024


def test_no_path_of_the_machine_is_in_the_page(html: str, comparison: Comparison) -> None:
    (root, _), *_, (cwd, _) = comparison.here
    assert Path(root).is_absolute()
    assert Path(cwd) == Path.cwd()
    assert all(result.path.startswith(root) for result in comparison.every if result.verified)
    for path in (root, str(Path(root).parent), cwd):
        assert path not in html


def test_only_a_whole_path_is_one_of_this_machine() -> None:
    here = (("/data", "data"), ("/caf\u00e9/a", "a"))
    local = dataclasses.replace(compare("1.0", []), here=here).local
    assert local("in /data/run-1: gone, /data too") == "in data/run-1: gone, data too"
    assert local("/database, runs/data/x, /data.old") == "/database, runs/data/x, /data.old"
    assert local(json.dumps("/caf\u00e9/a/b"), lambda p: json.dumps(p)[1:-1]) == '"a/b"'


def test_an_address_is_the_same_on_every_machine(tmp_path: Path) -> None:
    addresses = []
    for name in ("here", "there"):
        make_campaign(tmp_path / name / "results", system_name="one")
        text = load_renderer("html")(collect([tmp_path / name / "results"]))
        addresses.append(set(Page(text).data["results"]))
    assert addresses[0] == addresses[1]


def test_what_others_published_has_no_more_digits_than_they_published(page: Page) -> None:
    text = (REPOSITORY / "rules" / "1.0" / "published_results.json").read_text()
    published = {row["id"]: row for row in json.loads(text)["results"]}
    seen = 0
    for section in page.data["results"].values():
        path = dict(section["facts"])["path"]
        row = published.get(path.removeprefix("published:"))
        if row:
            seen += 1
            told = dict(zip(page.data["runs"], section["runs"][0], strict=True))
            assert told["time"] == f"{row['minutes']:g} min"
            assert float(told["time"].split()[0]) == row["minutes"]
            assert told["accuracy"] == ("-" if row["top1"] is None else f"{row['top1']:g}")
    assert seen == len(published)


def test_exposed_communication_of_different_benchmarks_is_never_on_one_axis(
    honest: Result,
) -> None:
    other = dataclasses.replace(honest, benchmark="resnet50", path="o", identity="o", group="o")
    page = Page(load_renderer("html")(compare("1.0", [honest, other])))
    exposed = [f for f in page.data["figures"] if f["name"].startswith("exposed")]
    assert [len(figure["rows"]) for figure in exposed] == [1, 1]


def test_chip_minutes_are_time_times_chips(page: Page, comparison: Comparison) -> None:
    for result in comparison.results:
        if result.minutes is None or result.chips is None:
            assert result.chip_minutes is None
        else:
            assert result.chip_minutes == (result.compared_minutes or 0) * result.chips
    shown = [cell for _, rows in page.tables for row in rows if rows for cell in row]
    assert "chip-minutes" in shown
    assert "4,096" in shown  # Jia et al.: 4 minutes of 1,024 chips


def test_a_page_of_nothing_says_so() -> None:
    text = load_renderer("html")(compare("1.0", []))
    assert "No benchmark result" in text
    assert re.search(r"<tbody>", text) is None


def test_the_scripts_are_bundled_beside_collecting(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """`load_renderer` returns at once: the two seconds are another process's."""
    from fourmin.report.page import vega

    started = []
    monkeypatch.setattr(vega.subprocess, "Popen", lambda *a, **k: started.append(a))
    vega._bundling.cache_clear()
    try:
        load_renderer("html")
        assert len(started) == 1
    finally:
        vega._bundling.cache_clear()


def test_a_bundle_that_fails_is_an_error_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    from fourmin.base.errors import FourminError
    from fourmin.report.page import vega

    vega._bundling.cache_clear()
    vega.script.cache_clear()
    monkeypatch.setattr(vega, "_BUNDLE", "raise SystemExit('no space')")
    try:
        with pytest.raises(FourminError, match="could not bundle") as caught:
            vega.script()
        assert caught.value.why == "no space"
    finally:
        vega._bundling.cache_clear()


def test_what_differs_from_the_preset_is_told(tmp_path: Path) -> None:
    (result,) = collect_all([make_campaign(tmp_path)])
    same = load_preset("digits").to_json()
    changed = {**same, "momentum": 0.5, "precision": "fp32"}
    told = []
    for configuration in (same, changed, {**same, "preset": "nobody's"}):
        one = dataclasses.replace(result, configuration=configuration)
        text = load_renderer("html")(compare("1.0", [one]))
        (section,) = Page(text).data["results"].values()
        told.append(dict(section["settings"]).get("What differs from the preset digits"))
    ours = [["momentum", "0.5, in the preset 0.9"], ["precision", "fp32, in the preset auto"]]
    assert told == [None, ours, None]
