"""The page in a browser: fast, quiet, accessible, and what a reader does with it.

One browser for all. It is Debian's or another Chromium on the path; without one, or without
playwright, these tests skip.
"""

from __future__ import annotations

import csv
import dataclasses
import functools
import io
import os
import shutil
import tarfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from campaign_factory import make_campaign
from foreign_factory import make_package
from report_factory import make_results

from fourmin.report import load_renderer, load_site
from fourmin.report.collect import collect, collect_all
from fourmin.report.group import compare
from fourmin.report.model import Comparison, Result
from fourmin.report.page.overview import _anchors
from fourmin.report.pair_wording import conclusion
from fourmin.report.side_by_side import put_side_by_side

playwright = pytest.importorskip("playwright.sync_api", reason="no playwright: '.[dev]'")
axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="no axe: '.[dev]'")
pytest.importorskip("vl_convert", reason="no vl-convert-python: '.[report]'")
pytest.importorskip("jinja2", reason="no jinja2: '.[report]'")

CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome")
     if (found := shutil.which(name))), None
)  # fmt: skip
pytestmark = [
    pytest.mark.untraced,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: apt-get install chromium"),
]

REPOSITORY = Path(__file__).resolve().parents[2]
CORPUS = Path(os.environ.get("FOURMIN_CORPUS", REPOSITORY.parent / "shared" / "corpus"))
ROUNDS = ("v2.1", "v4.0")
SETS = 300
SECONDS = 2.0
"""Of a fast machine, which takes `UNIT_SECONDS` for the `UNIT` that is measured beside the page."""
UNIT_SECONDS = 0.05
UNIT = """(() => {
    const began = performance.now()
    let total = 0
    for (let i = 0; i < 5e7; i++) total = (total + i) % 1000003
    return (performance.now() - began) / 1000 + (total < 0)
})()"""
TRIES = 5
TIMES = "[data-figure^=times]"
"""The chart of a table's times, beside others."""
MOST_BYTES = 6 * 1024 * 1024
HOSTILE = "</script><img src=x onerror=alert(1)>\x1b[2J\u202e=1+1"
VISIBLE = "</script><img src=x onerror=alert(1)>\\x1b[2J\\u202e=1+1"
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update",
]  # fmt: skip


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as starter:
        chromium = starter.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pages")


def written(folder: Path, name: str, comparison: Comparison) -> str:
    """The address of a page of a comparison."""
    path = folder / f"{name}.html"
    path.write_text(load_renderer("html")(comparison), encoding="utf-8")
    return path.as_uri()


@pytest.fixture(scope="module")
def many(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """300 run sets: real ones where the corpus is there, repeated under other paths."""
    root = tmp_path_factory.mktemp("sets")
    for name in ROUNDS:
        archive = CORPUS / f"mlperf-training-{name}-resnet.tar.xz"
        if archive.is_file():
            with tarfile.open(archive) as file:
                file.extractall(
                    root, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {})
                )
        else:
            make_package(root, name)
    everything = [*collect_all([root]), *collect_all([REPOSITORY / "submissions"])]
    found = [result for result in everything if not result.failed]
    sets = [
        dataclasses.replace(
            found[number % len(found)], path=f"{number}", identity=number, group=number
        )
        for number in range(SETS)
    ]
    return written(folder, "many", compare("1.0", sets))


@pytest.fixture(scope="module")
def own(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A small page with results of every kind."""
    root = tmp_path_factory.mktemp("own")
    make_results(root)
    return written(folder, "own", collect([root], published=True))


def eventually(look: Callable[[], Any], wanted: Any) -> bool:
    """Whether `look` gives `wanted` within 10 s: the page follows a little later than the hand."""
    deadline = time.monotonic() + 10
    while (found := look()) != wanted:
        if time.monotonic() > deadline:
            raise AssertionError(f"{found!r} instead of {wanted!r}")
        time.sleep(0.05)
    return True


class Visit:
    """A tab that notes what a quiet page must not do."""

    def __init__(self, browser: Any, address: str, **context: Any) -> None:
        self.context = browser.new_context(viewport={"width": 1300, "height": 900}, **context)
        self.tab = self.context.new_page()
        self.tab.set_default_timeout(20_000)
        self.troubles: list[str] = []
        self.requests: list[str] = []
        self.tab.on("console", lambda message: self.troubles.append(message.text))
        self.tab.on("pageerror", lambda error: self.troubles.append(str(error)))
        self.tab.on("dialog", lambda dialog: self.troubles.append(dialog.message))
        self.tab.on("request", lambda request: self.requests.append(request.url))
        self.address = address
        self.tab.goto(address)

    def __enter__(self) -> Visit:
        return self

    def __exit__(self, *_: object) -> None:
        self.context.close()

    def names(self) -> list[str]:
        """The systems of the rows that are shown, in order."""
        return self.tab.locator("#overview tbody tr:visible th a").all_inner_texts()

    def table(self, title: str) -> str:
        """The selector of the table, with its chart, whose heading begins so."""
        group = self.tab.locator("#overview .group").filter(has_text=title).first
        return f"#{group.get_attribute('id')}"

    def column(self, name: str, table: str) -> list[str]:
        """The first lines of a column's cells, in the rows that are shown."""
        heads = self.tab.locator(f"{table} thead th").evaluate_all(
            "heads => heads.map(head => (head.querySelector('button') ?? head).textContent)"
        )
        place = heads.index(name) + 1
        texts = self.tab.locator(
            f"{table} tbody tr:visible > :nth-child({place})"
        ).all_inner_texts()
        return [text.split("\n")[0] for text in texts]

    def levels(self, table: str) -> list[str]:
        """How well each row that is shown was checked: what is not valid stays below."""
        rows = self.tab.locator(f"{table} tbody tr:visible")
        found: list[str] = rows.evaluate_all("rows => rows.map(row => row.dataset.level)")
        return found

    def drawn(self, canvas: str) -> Any:
        """A chart, which is drawn when it comes near the screen."""
        self.tab.locator(canvas).first.scroll_into_view_if_needed()
        self.tab.locator(f"{canvas} svg").first.wait_for()
        return self.tab.locator(f"{canvas} svg").first

    def labels(self, canvas: str) -> list[str]:
        """The names beside the axis of a chart, from above."""
        self.drawn(canvas)
        return self.tab.locator(f"{canvas} svg .role-axis-label text").evaluate_all(
            """texts => texts
                .filter(text => text.getAttribute("text-anchor") === "end")
                .map(text => [text.getBoundingClientRect().top, text.textContent])
                .sort(([a], [b]) => a - b).map(([, text]) => text)"""
        )

    def faults(self, **options: Any) -> list[str]:
        """What axe-core finds that is serious or critical."""
        options["resultTypes"] = ["violations"]
        violations = axe.Axe().run(self.tab, options=options).response["violations"]
        return [
            f"{violation['id']}: {violation['nodes'][0]['html'][:200]}"
            for violation in violations
            if violation["impact"] in ("serious", "critical")
        ]


def test_300_run_sets_open_in_two_seconds_and_ask_nobody(browser: Any, many: str) -> None:
    assert Path(many.removeprefix("file://")).stat().st_size <= MOST_BYTES
    times = []
    for _ in range(TRIES):
        with Visit(browser, many) as visit:
            assert visit.tab.locator("#overview tbody tr").count() == SETS
            visit.drawn("#overview .canvas")
            opened = "performance.getEntriesByType('navigation')[0].loadEventEnd / 1000"
            times.append(visit.tab.evaluate(opened) * UNIT_SECONDS / visit.tab.evaluate(UNIT))
            visit.tab.mouse.wheel(0, 100_000)
            visit.tab.wait_for_timeout(200)
            assert visit.requests == [many]
            assert visit.troubles == []
        if times[-1] < SECONDS:
            break
    assert min(times) < SECONDS


FILTER = """async text => {
    const field = document.querySelector("#filter [name=text]")
    const began = performance.now()
    field.value = text
    field.dispatchEvent(new Event("input", {bubbles: true}))
    await new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))
    return (performance.now() - began) / 1000
}"""


@pytest.mark.slow
def test_5000_runs_open_in_three_seconds_and_filter_in_a_third_of_one(
    browser: Any, folder: Path, tmp_path: Path
) -> None:
    (one,) = collect_all([make_campaign(tmp_path)])
    sets = [
        dataclasses.replace(
            one, path=f"{n}", identity=n, group=n, system=f"box-{n}", chips=2 ** (n % 12)
        )
        for n in range(1000)
    ]
    assert sum(len(result.runs) for result in sets) == 5000
    address = written(folder, "synthetic", compare("1.0", sets))
    opened, filtered = [], []
    for _ in range(TRIES):
        with Visit(browser, address) as visit:
            visit.drawn("#overview .canvas")
            unit = visit.tab.evaluate(UNIT) / UNIT_SECONDS
            seconds = "performance.getEntriesByType('navigation')[0].loadEventEnd / 1000"
            opened.append(visit.tab.evaluate(seconds) / unit)
            filtered.append(max(visit.tab.evaluate(FILTER, text) for text in ("box-7", "")) / unit)
            assert visit.tab.locator("#overview tbody tr:visible").count() == 1000
            assert visit.troubles == []
        if opened[-1] < 3 and filtered[-1] < 0.3:
            return
    assert min(opened) < 3
    assert min(filtered) < 0.3


def test_300_run_sets_pass_axe(browser: Any, many: str) -> None:
    """Contrast is the same for one row and for 300, and takes minutes for 300: see below."""
    with Visit(browser, many) as visit:
        visit.drawn("#overview .canvas")
        assert visit.faults(rules={"color-contrast": {"enabled": False}}) == []


@pytest.mark.slow
def test_300_run_sets_pass_all_of_axe(browser: Any, many: str) -> None:
    with Visit(browser, many) as visit:
        visit.drawn("#overview .canvas")
        assert visit.faults() == []


CONTRAST = {"runOnly": {"type": "rule", "values": ["color-contrast"]}}


@pytest.mark.parametrize(("scheme", "options"), [("light", {}), ("dark", CONTRAST)])
def test_every_view_passes_axe(
    scheme: str, options: dict[str, Any], browser: Any, own: str
) -> None:
    with Visit(browser, own, color_scheme=scheme) as visit:
        visit.drawn("#overview .canvas")
        assert visit.faults(**options) == []
        visit.tab.get_by_text("How to read this").click()
        visit.tab.get_by_role("link", name="1xA1000").first.click()
        visit.drawn("#result .canvas")
        visit.tab.get_by_text("The numbers of this chart").first.click()
        assert visit.faults(**options) == []
        visit.tab.get_by_role("link", name="Rules").click()
        visit.tab.locator(".rule summary").first.click()
        assert visit.faults(**options) == []
        assert visit.troubles == []


def by_level(levels: Sequence[str], texts: Sequence[str]) -> list[list[int]]:
    """The numbers of a column, those of each level for themselves."""
    pairs = [(level, text) for level, text in zip(levels, texts, strict=True) if text != "-"]
    return [
        [int(text.replace(",", "")) for of, text in pairs if of == level]
        for level in sorted(set(levels))
    ]


def test_a_column_sorts_by_mouse_and_by_key_and_the_chart_follows(browser: Any, many: str) -> None:
    with Visit(browser, many) as visit:
        selector = visit.table("resnet50, closed")
        table = visit.tab.locator(selector)
        before = visit.column("chips", selector)
        button = table.get_by_role("button", name="chips", exact=True)
        button.click()
        # A loaded machine's tab may handle the click after it was told to have been made.
        table.locator(
            "th[aria-sort=ascending]", has=visit.tab.get_by_role("button", name="chips", exact=True)
        ).wait_for()
        levels = visit.levels(selector)
        up = by_level(levels, visit.column("chips", selector))
        assert up == [sorted(level) for level in up]
        assert len(up[0]) > 50 or not CORPUS.is_dir()
        head = button.locator("xpath=..")
        assert head.get_attribute("aria-sort") == "ascending"
        assert table.locator("th[aria-sort]").count() == 1
        first = table.locator("tbody tr th a").first.inner_text()
        visit.tab.wait_for_timeout(300)
        assert first in visit.labels(f"{selector} {TIMES} .canvas")[0]
        button.focus()
        visit.tab.keyboard.press("Enter")
        table.locator(
            "th[aria-sort=descending]",
            has=visit.tab.get_by_role("button", name="chips", exact=True),
        ).wait_for()
        down = visit.column("chips", selector)
        assert head.get_attribute("aria-sort") == "descending"
        assert sorted(before) == sorted(down)
        assert visit.levels(selector) == levels == sorted(levels)
        falling = by_level(levels, down)
        assert falling == [sorted(level, reverse=True) for level in falling]
        level = down[: levels.count(levels[0])]
        known = [text for text in level if text != "-"]
        assert level == known + ["-"] * (len(level) - len(known))  # what is missing stays last
        assert visit.troubles == []


def test_names_sort_as_names_and_numbers_as_numbers(browser: Any, own: str) -> None:
    with Visit(browser, own) as visit:
        table = visit.table("digits, closed")
        visit.tab.locator(f"{table} thead button").first.click()
        names = visit.tab.locator(f"{table} tbody th").evaluate_all(
            "heads => heads.map(head => head.lastChild.textContent + head.firstChild.textContent)"
        )
        assert names == sorted(names)
        assert len(names) == 4
        visit.tab.locator(table).get_by_role("button", name="time to train").click()
        times = [float(text.split()[0]) for text in visit.column("time to train", table)
                 if text != "-"]  # fmt: skip
        assert times == sorted(times)


def test_a_filter_leaves_what_was_asked_for_in_tables_and_charts(browser: Any, own: str) -> None:
    with Visit(browser, own) as visit:
        tab = visit.tab
        everything = visit.names()
        said = tab.locator("#filter output")
        digits = visit.table("digits, closed")
        rows = tab.locator("#overview tbody tr")
        # A failed campaign is in the table of its group too, and is one result.
        results = len(set(rows.evaluate_all("rows => rows.map(row => row.dataset.result)")))
        assert said.inner_text() == f"{results} results"
        tab.get_by_role("searchbox").fill("lab 2xA1000")
        assert eventually(visit.names, ["2xA1000"])
        assert said.inner_text() == f"1 of {results} results"
        assert tab.locator("#overview .group:visible h2").count() <= 3  # its table and its charts
        tab.wait_for_timeout(300)
        assert [
            label for label in visit.labels(f"{digits} {TIMES} .canvas") if "xA1000" in label
        ] == ["lab, 2xA1000"]
        tab.get_by_role("searchbox").fill("nobody at all")
        assert eventually(visit.names, [])
        assert said.inner_text().startswith("0 of ")
        tab.get_by_text("No result fits this filter").wait_for()
        tab.get_by_role("button", name="Show all results").click()
        assert eventually(visit.names, everything)
        tab.get_by_label("Chips from").fill("2048")
        assert 0 < len(visit.names()) < len(everything)
        tab.get_by_label("to", exact=True).fill("2048")
        assert visit.names()
        assert all("2048" in name for name in visit.names())
        tab.get_by_role("button", name="Clear").click()
        tab.locator("select[name=status]").select_option("valid")
        assert 0 < len(visit.names()) < len(everything)
        visible = tab.locator("#overview tbody tr:visible")
        assert visible.count() == tab.locator("#overview tr:visible[data-status='valid']").count()
        tab.get_by_role("button", name="Clear").click()
        tab.get_by_label("Round").select_option("mlperf v4.0")
        assert eventually(visit.names, ["8xA1000"])
        assert visit.troubles == []


def test_filter_and_sort_are_kept_in_the_address(browser: Any, own: str) -> None:
    with Visit(browser, own) as visit:
        table = visit.table("digits, closed")
        fastest = visit.tab.locator(table).get_by_role("button", name="images/s")
        fastest.click()
        rates = by_level(visit.levels(table), visit.column("images/s", table))
        assert rates == [sorted(level, reverse=True) for level in rates]
        assert rates[0][0] > rates[0][-1]
        fastest.click()
        visit.tab.get_by_role("searchbox").fill("lab xA1000")
        visit.tab.locator("select[name=status]").select_option("valid")
        told = [visit.names(), visit.column("images/s", table)]
        address = visit.tab.evaluate("location.href")
        assert address.startswith(f"{own}?")
    with Visit(browser, address) as visit:
        assert visit.tab.get_by_role("searchbox").input_value() == "lab xA1000"
        assert [visit.names(), visit.column("images/s", table)] == told
        head = visit.tab.locator(f"{table} th[aria-sort]")
        assert head.get_attribute("aria-sort") == "ascending"
        visit.tab.get_by_role("link", name="2xA1000").first.click()
        visit.tab.go_back()
        assert visit.tab.evaluate("location.href") == address
        visit.tab.get_by_role("button", name="Clear").click()
        assert eventually(lambda: "text" in visit.tab.evaluate("location.search"), False)
        assert visit.troubles == []
    with Visit(browser, f"{own}?status=nonsense&sort-table-1=nothing+up&constructor=1") as visit:
        assert visit.names()
        assert visit.troubles == []


def test_a_reader_chooses_by_chip_software_division_and_evidence(browser: Any, own: str) -> None:
    with Visit(browser, own) as visit:
        tab = visit.tab
        asked = {
            "chip": "ACME A1000",
            "software": "torch 2.13.0",
            "division": "reported",
            "evidence": "self-registered",
        }
        for name, choice in asked.items():
            tab.locator(f"#filter select[name={name}]").select_option(choice)
            rows = tab.locator("#overview tbody tr:visible")
            ids = rows.evaluate_all("rows => rows.map(row => row.dataset.result)")
            facets = tab.evaluate(
                """([ids, name]) => {
                    const data = JSON.parse(document.getElementById("data").textContent)
                    return ids.map(id => data.results[id].facets[name])
                }""",
                [ids, name],
            )
            assert facets
            assert all(choice in words for words in facets)
            tab.get_by_role("button", name="Clear").click()
            assert eventually(lambda: tab.evaluate("location.search"), "")
        tab.locator("#filter select[name=software]").select_option("torch 2.13.0")
        assert set(visit.names()) == {"2xA1000"}
        tab.get_by_role("button", name="Clear").click()
        # Rows that have no place in a chart stay when its own rows are filtered away.
        tab.locator("select[name=status]").select_option("invalid")
        shown = tab.locator("#overview tbody tr:visible").count()
        assert shown == tab.locator("#overview tbody tr[data-status='invalid']").count()
        assert visit.troubles == []


def test_what_is_shown_is_written_as_csv(browser: Any, own: str) -> None:
    with Visit(browser, own) as visit:
        visit.tab.get_by_role("searchbox").fill("jia")
        with visit.tab.expect_download() as waited:
            visit.tab.get_by_role("button", name="CSV of these").click()
        text = Path(waited.value.path()).read_bytes().decode()
        lines = list(csv.DictReader(text.splitlines()))
        assert [line["system"] for line in lines] == visit.names()
        assert {line["submitter"] for line in lines} == {"Jia et al. 2018"}
        assert sorted(float(line["minutes to train"]) for line in lines) == [4.0, 6.6, 8.7]
        assert {int(line["chips"]) for line in lines} == {1024, 2048}
        assert text.endswith("\r\n")
        assert visit.requests[1:] == [] or visit.requests[1].startswith("blob:")
        assert visit.troubles == []


def test_two_that_are_ticked_are_compared_as_the_command_does(browser: Any, own: str) -> None:
    with Visit(browser, own) as visit:
        tab = visit.tab
        for name in ("2048", "1xA1000", "2xA1000"):  # the last two count
            tab.locator("#overview tbody th").filter(has_text=name).locator("input").first.check()
        bar = tab.locator("#ticked")
        assert "A: lab, 1xA1000 \u00b7 B: lab, 2xA1000" in bar.inner_text()
        bar.get_by_role("link", name="Compare them").click()
        assert tab.locator("#comparison h1").evaluate("h1 => h1 === document.activeElement")
        assert tab.get_by_role("region", name="What differs").locator("tbody tr").count() > 0
        assert visit.faults() == []
        visit.drawn("#comparison .canvas")
        assert visit.labels("#comparison .canvas")[:2] == ["lab, 1xA1000", "lab, 2xA1000"]
        address = tab.evaluate("location.href")
        said = tab.locator("#comparison p").all_inner_texts()
        tab.go_back()
        bar.get_by_role("button", name="Untick").click()
        bar.wait_for(state="hidden")
        assert tab.locator("#overview tbody input:checked").count() == 0
        assert visit.troubles == []
    with Visit(browser, address) as visit:
        assert visit.tab.locator("#comparison p").all_inner_texts() == said


def test_the_page_says_of_every_two_what_the_command_says(
    browser: Any, folder: Path, tmp_path: Path
) -> None:
    make_results(tmp_path)
    comparison = collect([tmp_path], published=True)
    one = comparison.every[0].runs[0]
    times = ((1.0, 1.1, 1.05), (1.2, 1.1, 1.25, 1.3), (9.0, 9.1, 9.3), (2.0, 2.0, 2.0), (1.0,))
    alike = [
        dataclasses.replace(
            next(result for result in comparison.results if result.valid),
            runs=tuple(dataclasses.replace(one, minutes=minutes) for minutes in some),
            minutes=some[0],
            path=f"times-{place}",
            identity=place,
            group=place,
        )
        for place, some in enumerate(times)
    ]
    some_published = [result for result in comparison.every if not result.verified][:3]
    checked = [result for result in comparison.every if result.verified]
    results = (*checked, *some_published, *alike)
    alone = [compare("1.0", [result]).every[0] for result in results]
    page = dataclasses.replace(comparison, results=tuple(alone), failed=(), pending=(), practice=())
    anchors = dict(zip((result.path for result in alone), _anchors(page), strict=True))
    with Visit(browser, written(folder, "pairs", page)) as visit:
        places = "#comparison > p:not([class]), #comparison li"

        def said() -> list[str]:
            texts: list[str] = visit.tab.locator(places).evaluate_all(
                "nodes => nodes.map(node => node.textContent)"
            )
            return [text for text in texts if not text.startswith("No difference in hyper")]

        pairs = [(a, b) for a in alone for b in alone if a.path < b.path]
        assert len(pairs) > 50
        for a, b in pairs:
            told = [
                line.strip().removeprefix("note: ")
                for line in conclusion(put_side_by_side("1.0", [a, b], a.path, b.path))
            ]
            visit.tab.evaluate(
                "hash => { location.hash = hash }", f"compare-{anchors[a.path]}-{anchors[b.path]}"
            )
            assert eventually(said, told)
        assert visit.troubles == []


def test_a_result_opens_with_all_of_it_and_leads_back(browser: Any, own: str) -> None:
    with Visit(browser, own) as visit:
        tab = visit.tab
        tab.get_by_role("link", name="1xA1000").first.click()
        tab.locator("#overview").wait_for(state="hidden")
        heading = tab.locator("#result h1")
        assert heading.inner_text() == "lab, 1xA1000"
        assert heading.evaluate("heading => heading === document.activeElement")
        assert tab.title().startswith("lab, 1xA1000")
        assert tab.get_by_role("region", name="Runs").locator("tbody tr").count() == 5
        headings = tab.locator("#result h2").all_inner_texts()
        assert headings == [
            "Runs", "Accuracy against time", "Timeline", "Exposed communication", "Findings",
            "Evidence", "What differs from the preset digits", "Configuration", "Hardware",
            "Software", "Ledger",
        ]  # fmt: skip
        commands = tab.get_by_role("region", name="Evidence").locator("code").all_inner_texts()
        assert any(command.startswith("fourmin audit ") for command in commands)
        facts = tab.locator("#result dl").last.inner_text() + tab.locator("#result").inner_text()
        assert "global_batch_size" in facts
        assert tab.get_by_role("region", name="Ledger").locator("tbody tr").count() == 18
        chart = tab.get_by_role("img", name="Accuracy against time")
        chart.scroll_into_view_if_needed()
        chart.locator("svg").wait_for()
        tab.get_by_text("The numbers of this chart").first.click()
        numbers = tab.get_by_role("region", name="Accuracy against time").locator("tbody tr")
        numbers.first.wait_for()
        place = numbers.locator("xpath=../..").locator("th").all_inner_texts().index("accuracy")
        told = [float(row.split("\t")[place]) for row in numbers.all_inner_texts()]
        assert len(told) > 10
        near = sum(accuracy >= 0.94 for accuracy in told)  # three times the target's error of 2%
        assert 0 < near < len(told)
        assert eventually(chart.locator(".mark-symbol.role-mark path").count, near)
        link = tab.get_by_role("region", name="Findings").get_by_role("link").first
        code = link.inner_text()
        link.click()
        rule = tab.locator(f"#rule-{code}")
        rule.get_by_text("How to put it right").wait_for(state="visible")
        assert rule.locator("summary").evaluate("node => node === document.activeElement")
        tab.go_back()
        heading.wait_for(state="visible")
        tab.get_by_role("link", name="All results").click()
        row = tab.get_by_role("link", name="1xA1000").first
        assert row.evaluate("row => row === document.activeElement")
        assert visit.troubles == []


def test_the_address_of_a_result_opens_it(browser: Any, own: str) -> None:
    with Visit(browser, own) as visit:
        address = visit.tab.get_by_role("link", name="2xA1000").first.get_attribute("href")
    with Visit(browser, f"{own}{address}") as visit:
        assert visit.tab.locator("#result h1").inner_text() == "lab, 2xA1000"
        visit.tab.locator("#overview").wait_for(state="hidden")
    with Visit(browser, f"{own}#result-0000000000") as visit:
        visit.tab.locator("#overview").wait_for(state="visible")
        assert visit.troubles == []


def test_more_results_than_a_chart_shows_are_drawn_when_asked_for(browser: Any, many: str) -> None:
    with Visit(browser, many) as visit:
        selector = visit.table("resnet50, closed")
        chart = visit.tab.locator(f"{selector} {TIMES}")
        rows = visit.tab.locator(f"{selector} tbody tr:not(.invalid)").count()
        assert len(visit.labels(f"{selector} {TIMES} .canvas")) == 20
        assert f"The first 20 of {rows} are drawn" in chart.locator(".shown").inner_text()
        chart.get_by_role("button", name=f"Draw all {rows}").click()
        visit.tab.wait_for_function(
            "([canvas, rows]) => document.querySelectorAll(canvas + ' .role-axis-label text')"
            ".length > rows",
            arg=[f"{selector} {TIMES} .canvas", rows],
        )
        assert visit.troubles == []


def test_hostile_names_are_text_also_in_charts_and_their_tips(
    browser: Any, folder: Path, tmp_path: Path
) -> None:
    (honest,) = collect_all([make_campaign(tmp_path)])
    result: Result = dataclasses.replace(
        honest, submitter=HOSTILE, system=HOSTILE, configuration={HOSTILE: HOSTILE}
    )
    with Visit(browser, written(folder, "hostile", compare("1.0", [result]))) as visit:
        tab = visit.tab
        dot = tab.locator("#overview .mark-symbol.role-mark path").first
        dot.wait_for()
        dot.hover(force=True)
        tip = tab.locator(".tip")
        tip.wait_for(state="visible")
        assert VISIBLE[:30] in tip.inner_text()
        assert visit.names() == [VISIBLE]
        with tab.expect_download() as waited:
            tab.get_by_role("button", name="CSV of these").click()
        text = Path(waited.value.path()).read_bytes().decode()
        (line,) = csv.DictReader(io.StringIO(text))
        assert line["system"] == line["submitter"] == VISIBLE
        tab.locator("#overview tbody a").click()
        assert tab.locator("#result h1").inner_text() == f"{VISIBLE}, {VISIBLE}"[:400]
        visit.drawn("#result .canvas")
        assert tab.locator("img, iframe, object").count() == 0
        assert visit.troubles == []


def test_dark_and_light_and_always_white_paper(browser: Any, own: str) -> None:
    seen = {}
    for scheme, media in (("light", "screen"), ("dark", "screen"), ("dark", "print")):
        with Visit(browser, own, color_scheme=scheme) as visit:
            visit.tab.emulate_media(media=media)
            label = visit.tab.locator("#overview .role-axis-label text").first
            label.wait_for()
            seen[scheme, media] = (
                visit.tab.evaluate("getComputedStyle(document.body).backgroundColor"),
                label.evaluate("node => getComputedStyle(node).fill"),
            )
            assert visit.tab.locator("#filter").is_visible() == (media == "screen")
    assert seen["light", "screen"] == seen["dark", "print"]
    assert seen["light", "screen"][0] == "rgb(255, 255, 255)"
    for one, other in zip(seen["light", "screen"], seen["dark", "screen"], strict=True):
        assert one != other


def test_a_narrow_screen_cuts_nothing(browser: Any, folder: Path, tmp_path: Path) -> None:
    (result,) = collect_all([make_campaign(tmp_path)])
    long = dataclasses.replace(result, submitter="long" * 12, system="name" * 12, path="p" * 99)
    with Visit(browser, written(folder, "long", compare("1.0", [long]))) as visit:
        visit.tab.set_viewport_size({"width": 390, "height": 800})
        assert visit.tab.evaluate("document.documentElement.scrollWidth") <= 390
        times = visit.tab.locator("td[data-name='time to train']")
        for cell in (times.first, visit.tab.get_by_role("button", name="images/s").first):
            box = cell.bounding_box()
            assert box is not None
            assert box["x"] >= 0
            assert box["x"] + box["width"] <= 390
        visit.tab.get_by_role("link", name="namename").first.click()
        visit.drawn("#result .canvas")
        assert visit.tab.evaluate("document.documentElement.scrollWidth") <= 390


def test_without_scripts_the_tables_and_rules_are_there(browser: Any, own: str) -> None:
    with Visit(browser, own, java_script_enabled=False) as visit:
        visit.tab.locator("#overview tbody tr").first.wait_for(state="visible")
        visit.tab.locator("#rules .rule").first.wait_for(state="visible")
        visit.tab.locator("#filter").wait_for(state="hidden")


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def site(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("of-site")
    make_results(root)
    for name, text in load_site()(collect([root])):
        (folder / "site" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "site" / name).write_text(text, encoding="utf-8")
    return folder / "site"


@pytest.fixture
def served(site: Path) -> Iterator[str]:
    handler = functools.partial(Quiet, directory=str(site))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize("way", ["file", "server"])
def test_the_page_of_a_result_has_its_charts_and_leads_back(
    way: str,
    browser: Any,
    site: Path,
    served: str,
) -> None:
    home = site.as_uri() if way == "file" else served
    with Visit(browser, f"{home}/index.html") as visit:
        tab = visit.tab
        anchor = tab.locator("#overview tbody tr").filter(has_text="1xA1000").first
        name = anchor.get_attribute("data-result")
        tab.get_by_role("link", name="1xA1000").first.click()
        tab.wait_for_url(f"**/results/{name}.html")
        assert tab.locator("#result h1").inner_text() == "lab, 1xA1000"
        visit.drawn("#result .canvas")
        assert tab.get_by_role("region", name="Ledger").locator("tbody tr").count() == 18
        assert visit.faults() == []
        asked = {address.removeprefix(home) for address in visit.requests}
        assert asked == {"/index.html", f"/results/{name}.html", "/charts.js", "/result.js"}
        tab.get_by_role("region", name="Findings").get_by_role("link").first.click()
        tab.wait_for_url("**/index.html#rule-*")
        tab.locator("#rules").wait_for(state="visible")
        tab.goto(f"{home}/index.html#{name}")  # an address of the single page
        tab.wait_for_url(f"**/results/{name}.html")
        assert visit.troubles == []
    with Visit(browser, f"{home}/results/{name}.html", java_script_enabled=False) as visit:
        assert "6.17 s" in visit.tab.locator("#result").inner_text()
