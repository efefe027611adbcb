"""The charts: honest axes, every run a mark where its time is, and files that anyone can draw."""

from __future__ import annotations

import dataclasses
import json
import math
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from campaign_factory import make_campaign
from report_factory import make_results

from fourmin.base.errors import FourminError
from fourmin.cli.main import main
from fourmin.report.charts import files, rows, specs
from fourmin.report.charts.theme import PAGE, PAPER
from fourmin.report.collect import collect, collect_all
from fourmin.report.group import compare
from fourmin.report.model import Comparison, Result
from fourmin.results.rcp import Convergence
from fourmin.rules.rule import Finding
from fourmin.rules.verdict import Verdict

pytestmark = pytest.mark.untraced

vl_convert = pytest.importorskip(
    "vl_convert", reason="no vl-convert-python: pip install '.[report]'"
)
REPOSITORY = Path(__file__).resolve().parents[2]
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    root = tmp_path_factory.mktemp("charts")
    make_results(root)
    return collect([root])


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Result:
    (result,) = collect_all([make_campaign(tmp_path_factory.mktemp("own"))])
    return result


def every(node: Any, key: str) -> Iterator[Any]:
    """Every value of a key, anywhere in a specification."""
    if isinstance(node, dict):
        for name, value in node.items():
            if name == key:
                yield value
            yield from every(value, key)
    elif isinstance(node, list):
        for value in node:
            yield from every(value, key)


def all_specifications(theme: Any) -> Iterator[dict[str, Any]]:
    yield specs.time_chart(theme, 500, "minutes")
    yield specs.accuracy_chart(theme, 500, "minutes")
    yield specs.timeline_chart(theme, 500, "seconds")
    yield specs.scaling_chart(theme, 250)
    yield specs.exposed_chart(theme, 500)
    yield specs.exposed_chart(theme, 500, by_run=True)


@pytest.mark.parametrize("theme", [PAPER, PAGE], ids=["paper", "page"])
def test_every_quantity_but_accuracy_is_on_a_linear_axis_from_zero(theme: Any) -> None:
    for spec in all_specifications(theme):
        drawn = [
            channel
            for encoding in every(spec, "encoding")
            for name, channel in encoding.items()
            if name in ("x", "y") and channel["type"] == "quantitative"
        ]
        assert drawn
        for channel in drawn:
            assert channel["scale"].get("type", "linear") == "linear"
            assert channel["scale"]["zero"] is (channel["field"] != "accuracy")


@pytest.mark.parametrize("theme", [PAPER, PAGE], ids=["paper", "page"])
def test_the_axes_of_time_against_chips_say_that_they_are_logarithmic(theme: Any) -> None:
    encodings = list(every(specs.chips_chart(theme, 500, "minutes"), "encoding"))
    axes = [axis for encoding in encodings for name, axis in encoding.items() if name in ("x", "y")]
    assert len(axes) == 3
    for axis in axes:
        assert axis["scale"]["type"] == "log"
        assert axis["axis"]["title"].endswith("(log scale)")


def test_the_line_is_the_best_time_with_no_more_chips(own: Result) -> None:
    def sized(chips: int, minutes: float) -> Result:
        name = f"{chips}-{minutes}"
        return dataclasses.replace(
            own, chips=chips, minutes=minutes, scaled_minutes=None, path=name, identity=name,
            group=name,
        )  # fmt: skip

    some = [sized(1, 8.0), sized(1, 9.0), sized(2, 16.0), sized(4, 2.0)]
    doubtful = dataclasses.replace(sized(1, 0.5), verdict=judged(own, "x", "note").verdict)
    svg = files.svg(compare("1.0", [*some, doubtful]), "chips")
    dots = drawn_dots(svg, PAPER.mark)
    assert len(dots) == len(some)
    (line,) = [
        path.get("d", "") for path in ElementTree.fromstring(svg).iter(f"{SVG}path")
        if path.get("stroke") == PAPER.mean
    ]  # fmt: skip
    points = [tuple(map(float, pair.split(","))) for pair in re.findall(r"[\d.]+,[\d.]+", line)]
    at = {(x, y) for x, y in dots}
    by_chips = sorted({x for x, _ in at})
    best_of_one = max(y for x, y in at if x == by_chips[0])  # lower on the picture is faster
    best_of_four = next(y for x, y in at if x == by_chips[2])
    assert points[0] == pytest.approx((by_chips[0], best_of_one), abs=0.1)
    assert points[-1] == pytest.approx((by_chips[2], best_of_four), abs=0.1)
    assert len({round(y, 1) for _, y in points}) == 2  # two chips are slower than one: no step
    # Both axes are logarithmic: 1, 2 and 4 chips, and 8 and 2 minutes, as 16 and 4.
    assert by_chips[1] - by_chips[0] == pytest.approx(by_chips[2] - by_chips[1], abs=0.1)


def drawn_dots(svg: bytes, colour: str) -> list[tuple[float, float]]:
    """Where the filled symbols of a colour are, in pixels from their panel's corner."""
    found = []
    for path in ElementTree.fromstring(svg).iter(f"{SVG}path"):
        if path.get("fill") == colour and path.get("transform", "").startswith("translate("):
            x, y = path.get("transform", "")[10:].split(")")[0].split(",")
            found.append((float(x), float(y)))
    return found


def test_a_dot_for_every_run_where_its_time_says(own: Result) -> None:
    dots = sorted(x for x, _ in drawn_dots(files.svg(compare("1.0", [own]), "time"), PAPER.mark))
    times = sorted(run.minutes for run in own.runs)
    assert len(dots) == len(times) == 5
    scale = [dot / time for dot, time in zip(dots, times, strict=True)]
    assert max(scale) == pytest.approx(min(scale), rel=1e-4)  # proportional: the axis is from zero


def test_a_run_that_did_not_converge_is_told_where_it_has_no_place(tmp_path: Path) -> None:
    result = collect([make_campaign(tmp_path, not_converged=[2])])
    text = files.svg(result, "time").decode()
    assert len(drawn_dots(text.encode(), PAPER.mark)) == 4
    assert "4 of 5 converged" in text


def judged(own: Result, name: str, severity: str) -> Result:
    """The result with a check that found an error, or that could not be made."""
    finding = Finding("CNV004", "", severity, name, None, "why", "", unchecked=severity == "note")
    verdict = Verdict(name, "campaign", (finding,), required=frozenset({"CNV004"}))
    return dataclasses.replace(own, path=name, identity=name, group=name, verdict=verdict)


def test_an_invalid_result_is_in_no_chart(own: Result) -> None:
    broken = judged(own, "broken", "error")
    svg = files.svg(compare("1.0", [own, broken]), "time")
    assert svg == files.svg(compare("1.0", [own]), "time")
    for chart in files.CHARTS:
        with pytest.raises(FourminError, match="nothing to draw"):
            files.svg(compare("1.0", [broken]), chart)


@pytest.mark.parametrize("chart", ["time", "exposed"])
def test_an_unchecked_result_is_hollow_and_says_why(own: Result, chart: str) -> None:
    full = files.svg(compare("1.0", [own]), chart)
    hollow = files.svg(compare("1.0", [judged(own, "open", "note")]), chart)
    assert len(drawn_dots(full, PAPER.mark)) == 5
    assert len(drawn_dots(hollow, PAPER.mark)) == 0
    assert len(drawn_dots(hollow, str(PAPER.background))) == 5
    assert b"unchecked CNV004" in hollow
    assert b"unchecked" not in full


def test_runs_and_result_are_drawn_as_scaled(own: Result) -> None:
    double = dataclasses.replace(own, scaled_minutes=2 * (own.minutes or 0))
    drawn = rows.time_rows([double], ["a"], rows.MINUTES, True)
    (result,) = [row for row in drawn if row["kind"] == "result"]
    assert result["value"] == pytest.approx(2 * (own.minutes or 0), rel=1e-6)
    assert own.ci95 is not None
    assert result["low"] == pytest.approx(2 * own.ci95[0], rel=1e-6)
    # The interval is around the geometric mean of all runs, and has that for its tick.
    assert result["typical"] == pytest.approx(math.sqrt(result["low"] * result["high"]), rel=1e-6)
    assert result["typical"] != result["value"]
    runs = [row["value"] for row in drawn if row["kind"] == "run"]
    assert runs == pytest.approx([2 * (run.minutes or 0) for run in own.runs], rel=1e-6)
    alone = dataclasses.replace(own, convergence=Convergence(None, None))
    (label,) = {row["label"] for row in rows.time_rows([alone], ["a"], rows.MINUTES, True)}
    assert label == "a (not scaled)"


def test_results_that_must_not_be_compared_are_in_different_panels(comparison: Comparison) -> None:
    spec = files.specification(dataclasses.replace(comparison, practice=()), "time")
    assert len(spec["vconcat"]) == len({result.comparable for result in comparison.results}) == 2
    benchmarks = [panel["title"]["text"].split(",")[0] for panel in spec["vconcat"]]
    assert benchmarks == ["digits", "resnet50"]
    assert all(benchmark in spec["description"] for benchmark in benchmarks)


def test_the_ideal_line_goes_from_zero_through_the_measured_baseline(
    comparison: Comparison,
) -> None:
    names = {result.path: result.system for result in comparison.results}
    drawn = rows.scaling_rows(comparison.results, names)
    ideal = [row for row in drawn if row["kind"] == "ideal"]
    (base,) = [row for row in drawn if row["kind"] == "baseline"]
    assert [row["chips"] for row in ideal] == [0, max(row["chips"] for row in drawn)]
    assert ideal[0]["value"] == 0
    assert ideal[1]["value"] / ideal[1]["chips"] == pytest.approx(base["value"] / base["chips"])
    (two,) = [row for row in drawn if row["kind"] == "result" and row["chips"] == 2]
    ideal_there = ideal[1]["value"] / ideal[1]["chips"] * 2
    assert two["efficiency"] == pytest.approx(two["value"] / ideal_there, rel=1e-6)


def test_accuracy_is_drawn_evaluation_by_evaluation(own: Result) -> None:
    drawn = rows.accuracy_rows(own, "minutes")
    told = [
        (number, evaluated.epoch, evaluated.accuracy)
        for number, run in enumerate(own.runs, start=1)
        for evaluated in run.facts.evaluations
    ]
    assert [
        (row["run"], row["epoch"], pytest.approx(row["accuracy"])) for row in drawn[:-2]
    ] == told
    assert {row["accuracy"] for row in drawn[-2:]} == {own.quality_target}
    # Around the target of 98%: an evaluation below 94% has more than three times its error.
    assert {row["kind"] for row in drawn if row["accuracy"] < 0.94} == {rows.EARLY}
    assert {row["kind"] for row in drawn[:-2] if row["accuracy"] >= 0.94} == {"run"}


def test_a_run_that_came_nowhere_near_the_target_is_drawn(tmp_path: Path) -> None:
    (result,) = collect([make_campaign(tmp_path, not_converged=[2])]).results
    facts = result.runs[1].facts
    far = [dataclasses.replace(one, accuracy=0.1 * n) for n, one in enumerate(facts.evaluations)]
    far = far[:5]
    runs = list(result.runs)
    runs[1] = dataclasses.replace(runs[1], facts=dataclasses.replace(facts, evaluations=tuple(far)))
    drawn = rows.accuracy_rows(dataclasses.replace(result, runs=tuple(runs)), "minutes")
    of_two = [row["kind"] for row in drawn if row.get("run") == 2]
    assert of_two == [rows.EARLY] * (len(far) - 1) + ["run"]  # its best, the last


def test_no_moment_on_the_clock_is_blank_in_a_timeline(
    comparison: Comparison, tmp_path: Path
) -> None:
    folder = make_campaign(tmp_path, restarts=[(2, 4), (3, 0)], aborted=[4])
    seen = set()
    for result in (*comparison.every, *collect_all([folder])):
        drawn = rows.timeline_rows(result, rows.SECONDS)
        seen.update(row["part"] for row in drawn)
        for number, run in enumerate(result.runs, start=1):
            clock = next((span for span in run.spans if span.name == "run"), None)
            if clock is None or clock.stop is None:
                continue
            covered = 0.0
            for row in sorted(drawn, key=lambda row: float(row["start"])):
                if row["run"] == number and row["start"] <= covered + 1e-4:
                    covered = max(covered, row["stop"])
            assert covered == pytest.approx(clock.stop * 60, abs=1e-4)
    assert seen == {*rows.PARTS.values()}


def test_every_name_in_a_chart_is_unique(own: Result) -> None:
    one = f"{own.submitter}, {own.system}"
    assert rows.labels([own, own]) == [one, f"{one} (2)"]
    more = [own, dataclasses.replace(own, chips=8), dataclasses.replace(own, system="other")]
    assert rows.labels(more) == [f"{one}, 1 chip", f"{one}, 8 chips", f"{own.submitter}, other"]
    rounds = [own, dataclasses.replace(own, round="2.0")]
    assert rows.labels(rounds) == [f"{one}, 1.0", f"{one}, 2.0"]


def test_seconds_only_where_every_time_is_below_a_minute() -> None:
    assert rows.unit_of([0.2, None, 0.9]) == "seconds"
    assert rows.unit_of([0.2, 1.5]) == "minutes"
    assert rows.unit_of([]) == "minutes"


@pytest.mark.parametrize("chart", files.CHARTS)
def test_a_file_is_the_same_every_time_and_holds_no_script(
    chart: str, comparison: Comparison
) -> None:
    hostile = "<script>alert(1)</script>\x1b[2J\u202e=1+1"
    named = [
        dataclasses.replace(result, submitter=hostile, system=hostile)
        for result in comparison.results
    ]
    some = compare("1.0", named) if chart != "scaling" else comparison
    first = files.svg(some, chart)
    assert first == files.svg(some, chart)
    tags = {element.tag for element in ElementTree.fromstring(first).iter()}
    assert tags <= {f"{SVG}{name}" for name in ("svg", "g", "path", "rect", "line", "text", "defs",
                                                "clipPath", "tspan", "title")}  # fmt: skip
    assert b"\x1b" not in first
    assert "\u202e" not in first.decode()
    if chart not in ("scaling", "chips"):  # a dot of the second has no name
        assert "&lt;script" in first.decode()


@pytest.mark.parametrize("chart", ["time", "accuracy"])
def test_practice_is_drawn_in_panels_of_its_own_that_say_so(chart: str, tmp_path: Path) -> None:
    practice = make_campaign(tmp_path / "practice", practice=True, runs=3)
    alone = collect([practice])
    assert not alone.results
    (panel,) = files.specification(alone, chart)["vconcat"]
    assert panel["title"]["text"].startswith("Practice, which never counts: ")
    both = files.specification(collect([practice, make_campaign(tmp_path / "counts")]), chart)
    said = ["Practice" in panel["title"]["text"] for panel in both["vconcat"]]
    assert said == [False, True]
    assert both["vconcat"][1]["data"] == panel["data"]


def test_a_chart_as_html_is_the_picture_and_fetches_nothing(tmp_path: Path) -> None:
    folder = make_campaign(tmp_path, practice=True, runs=3)
    out = tmp_path / "chart.html"
    command = ("report", str(folder), "--format", "html", "--chart", "accuracy")
    assert run(*command, "--output", str(out)) == 0
    text = out.read_text(encoding="utf-8")
    assert files.svg(collect([folder]), "accuracy").decode() in text
    assert "default-src 'none'" in text.partition("<svg")[0]
    # What the policy would refuse is not there.
    assert not [word for word in ("<script", "<style", "style=", "<image") if word in text]


def test_an_interval_that_says_nothing_is_not_drawn(own: Result) -> None:
    two = dataclasses.replace(own, runs=own.runs[:2])
    (drawn,) = [r for r in rows.time_rows([two], ["a"], "minutes", False) if r["kind"] == "result"]
    assert drawn["low"] is drawn["high"] is None
    assert drawn["typical"] is not None


def test_why_nothing_is_drawn_is_true(own: Result) -> None:
    broken, empty = judged(own, "broken", "error"), dataclasses.replace(own, runs=())
    told = {"only invalid results have it": broken, "no run has an evaluation": empty}
    for why, results in told.items():
        with pytest.raises(FourminError, match="nothing to draw") as caught:
            files.svg(compare("1.0", [results]), "accuracy")
        assert why in caught.value.why


def test_a_picture_is_a_picture(own: Result) -> None:
    data = files.png(compare("1.0", [own]), "accuracy")
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = (int.from_bytes(data[at : at + 4], "big") for at in (16, 20))
    assert width > 1000 > height > 200


def test_the_command_writes_files(tmp_path: Path, capsysbinary: Any) -> None:
    folder = make_campaign(tmp_path)
    out = tmp_path / "chart.svg"
    assert run("report", str(folder), "--format", "svg", "--output", str(out)) == 0
    assert out.read_bytes() == files.svg(collect([folder]), "time")
    assert run("report", str(folder), "--format", "png", "--chart", "exposed") == 0
    assert capsysbinary.readouterr().out.startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--format", "svg", "--chart", "pie"), "no chart 'pie'"),
        (("--chart", "time"), "a chart alone is no table"),
        (("--format", "svg", "--chart", "scaling"), "nothing to draw in the chart scaling"),
        (("--chart", "time", "--compare", "a", "b"), "--compare has no charts"),
        (("--format", "html", "--compare", "a", "b"), "two results cannot be compared as html"),
    ],
)
def test_wrong_usage_says_what_to_do(
    arguments: tuple[str, ...], message: str, tmp_path: Path, capsys: Any
) -> None:
    folder = make_campaign(tmp_path)
    assert run("report", str(folder), *arguments) == 2
    error = capsys.readouterr().err
    assert message in error
    assert " next: " in error or " why: " in error


@pytest.mark.parametrize("form", ["svg", "html"])
def test_a_missing_library_is_named_with_what_to_install(
    form: str, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fourmin.report.page import vega

    vega._bundling.cache_clear()
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    assert run("report", str(make_campaign(tmp_path)), "--format", form) == 2
    assert "[report]'" in capsys.readouterr().err


def run(*arguments: str) -> int:
    """The exit code of the command."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["fourmin", *arguments])
        try:
            main()
        except SystemExit as end:
            return int(end.code or 0)
    return 0


def test_the_chart_in_the_documentation_is_of_the_submissions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(REPOSITORY)
    drawn = files.svg(collect([Path("submissions")]), "time").decode()
    kept = Path("docs/time-to-train.svg").read_text()
    number = re.compile(r"-?\d+(?:\.\d+)?")
    assert number.sub("#", drawn) == number.sub("#", kept), "run `make docs`"
    # Words are measured in a machine's own Liberation Sans, whose versions differ by a pixel.
    pairs = zip(number.findall(drawn), number.findall(kept), strict=True)
    assert all(abs(float(a) - float(b)) <= 2 for a, b in pairs), "run `make docs`"
    assert "docs/time-to-train.svg" in Path("README.md").read_text()


def test_a_specification_is_json_for_anybody_elses_vega_lite(comparison: Comparison) -> None:
    for chart in files.CHARTS:
        if chart == "exposed":
            continue
        spec = files.specification(comparison, chart)
        assert json.loads(json.dumps(spec, allow_nan=False)) == spec
        assert vl_convert.vegalite_to_vega(spec)["$schema"].endswith("vega/v6.json")
