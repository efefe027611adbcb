"""The gate: what fails it, what it cannot tell, and how often it errs on the reference runs."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

import pytest
from campaign_factory import make_campaign
from report_factory import gpu_campaign
from typer.testing import CliRunner

from fourmin.base.errors import FourminError
from fourmin.cli.main import app
from fourmin.report.collect import collect_all
from fourmin.report.gate import (
    CANNOT_TELL,
    NOT_SLOWER,
    PLANNED_LOOK,
    SLOWER,
    Asked,
    Gate,
    judge_values,
)
from fourmin.report.side_by_side import SideBySide, put_side_by_side
from fourmin.results.power import chi_square_quantile, runs_to_tell, smallest_detectable

HUNDREDTHS = Asked(0.05)


def gated(a: Path, b: Path, asked: Asked = HUNDREDTHS) -> Gate:
    found = put_side_by_side("1.0", collect_all([a, b]), str(a), str(b), asked).gate
    assert found is not None
    return found


def outcomes(gate: Gate) -> dict[str, str]:
    return {one.of: one.outcome for one in gate.judged}


def report(*options: str) -> tuple[int, str]:
    """The exit code and all that is said."""
    done = CliRunner().invoke(app, ["report", *options])
    if isinstance(done.exception, FourminError):
        return done.exception.exit_code, str(done.exception)
    return done.exit_code, done.output


def test_rate_and_epochs_are_judged_apart(tmp_path: Path) -> None:
    a = gpu_campaign(tmp_path / "a", 1, 1, epochs=[12, 14, 12, 10, 12])
    fewer = gpu_campaign(tmp_path / "b", 2, 1, epoch_ms=400.0, epochs=[10, 12, 10, 12, 14])
    assert outcomes(gated(a, fewer)) == {"rate": SLOWER, "epochs": CANNOT_TELL}
    assert gated(a, fewer).failed
    assert outcomes(gated(fewer, a)) == {"rate": NOT_SLOWER, "epochs": CANNOT_TELL}
    assert not gated(fewer, a).failed
    assert not gated(a, fewer, Asked(0.5)).failed
    more = gpu_campaign(tmp_path / "c", 3, 1, epochs=[16] * 5)
    assert outcomes(gated(a, more)) == {"rate": NOT_SLOWER, "epochs": SLOWER}
    assert outcomes(gated(a, more, Asked(0.05, ("rate",)))) == {"rate": NOT_SLOWER}
    assert outcomes(gated(a, more, Asked(0.05, ("time",)))) == {"time": SLOWER}


def test_the_bounds_are_welchs() -> None:
    stats = pytest.importorskip("scipy.stats")
    a, b = (4.0, 4.4, 3.9, 4.2, 4.1), (4.4, 4.9, 4.6)
    found = judge_values("time", 0.05, (a, 0.0), (b, 0.0))
    theirs = stats.ttest_ind([math.log(v) for v in b], [math.log(v) for v in a], equal_var=False)
    bounds = theirs.confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((math.exp(bounds.low), math.exp(bounds.high)))
    assert found.ratio == pytest.approx(stats.gmean(b) / stats.gmean(a))


def test_equal_runs_are_known_as_closely_as_evaluations_let_them_be() -> None:
    few = judge_values("epochs", 0.05, ([12.0] * 5, 1 / 6), ([12.0] * 5, 1 / 6))
    assert few.outcome == CANNOT_TELL
    many = few.runs_to_tell
    assert many is not None
    equal = ([12.0] * many, 1 / 6)
    assert judge_values("epochs", 0.05, equal, equal).outcome == NOT_SLOWER
    assert judge_values("rate", 0.05, ([1.0] * 5, 0.001), ([1.0] * 5, 0.001)).outcome == NOT_SLOWER
    assert judge_values("rate", 0.05, ([1.0] * 5, 0.0), ([1.1] * 5, 0.0)).outcome == SLOWER


def test_a_run_that_missed_the_target_fails_where_none_of_a_did(tmp_path: Path) -> None:
    a = gpu_campaign(tmp_path / "a", 1, 1)
    missed = gpu_campaign(tmp_path / "b", 2, 1, not_converged=[2])
    crashed = gpu_campaign(tmp_path / "c", 3, 1, aborted=[4])
    for other in (missed, crashed):
        found = gated(a, other)
        assert (found.failed, found.missed, found.runs) == (True, (0, 1), (5, 5))
        assert not gated(other, a).failed
    also = gpu_campaign(tmp_path / "d", 4, 1, not_converged=[1])
    assert outcomes(gated(missed, also)) == {"rate": NOT_SLOWER, "epochs": CANNOT_TELL}
    assert not gated(missed, also).failed
    status, text = report("--compare", str(a), str(missed), "--fail-if-slower", "5%")
    assert (status, "0 of 5 runs of A and 1 of 5 of B missed it" in text) == (1, True)


@pytest.mark.parametrize("missed", [(1, 4), (1, 5), (0, 1), (2, 2), (1, 2), (5, 5), (3, 0)])
def test_more_misses_than_by_chance_are_fishers(missed: tuple[int, int]) -> None:
    stats = pytest.importorskip("scipy.stats")
    a, b = missed
    gate = Gate(HUNDREDTHS, (), missed, (5, 5))
    p = stats.fisher_exact([[b, 5 - b], [a, 5 - a]], alternative="greater").pvalue
    assert gate.misses_more == (b > 0 and (a == 0 or p < 0.025))


def test_what_must_not_be_gated_is_refused(tmp_path: Path) -> None:
    a = gpu_campaign(tmp_path / "a", 1, 1)
    broken = gpu_campaign(tmp_path / "broken", 2, 1)
    (broken / "stray.txt").write_text("")
    others = {
        "B is INVALID": broken,
        "another number of chips: 1 and 2": gpu_campaign(tmp_path / "two", 3, 2),
        "another chip: ACME A1000 and Test CPU": make_campaign(tmp_path / "cpu"),
        "another benchmark": gpu_campaign(tmp_path / "resnet", 5, 1, benchmark="resnet50"),
        "B is unfinished": gpu_campaign(tmp_path / "killed", 6, 1, killed_in=3),
        "not enough runs": gpu_campaign(tmp_path / "few", 7, 1, practice=True, runs=2),
    }
    for why, other in others.items():
        status, text = report("--compare", str(a), str(other), "--fail-if-slower", "5%")
        assert (status, why in text) == (2, True), text
    for options, why in (
        (["--fail-if-slower", "5"], "needs --compare"),
        (["--compare", "a", "b", "--fail-if-slower", "much"], "no gate --fail-if-slower"),
        (["--compare", "a", "b", "--fail-if-slower", "-1%"], "no gate --fail-if-slower"),
        (["--compare", "a", "b", "--fail-if-slower", "5%", "--of", "cost"], "--of cost"),
        (["--compare", "a", "b", "--of", "rate"], "need --fail-if-slower"),
        (["--format", "junit"], "need --fail-if-slower"),
    ):
        status, text = report(*options)
        assert (status, why in text) == (2, True), text


def test_practice_is_marked_and_software_listed(tmp_path: Path) -> None:
    from report_factory import gpu_system

    a = gpu_campaign(tmp_path / "a", 1, 1, practice=True)
    b = gpu_campaign(tmp_path / "b", 2, 1, practice=True, system=gpu_system(1, torch="2.13.0"))
    status, text = report("--compare", str(a), str(b), "--fail-if-slower", "5%")
    assert status == 0
    assert "A is practice, which never counts" in text
    assert "2.13.0" in text
    assert "B is unchecked" in text or "unchecked" not in text


def test_every_format_tells_the_gate(tmp_path: Path) -> None:
    a = gpu_campaign(tmp_path / "a", 1, 1, epochs=[12, 14, 12, 10, 12])
    b = gpu_campaign(tmp_path / "b", 2, 1, epoch_ms=400.0, epochs=[12, 14, 12, 10, 12])
    texts = {}
    for form in ("table", "markdown", "csv", "json", "github", "junit"):
        file = tmp_path / form
        status, said = report(
            "--compare", str(a), str(b), "--fail-if-slower", "5%", "--format", form,
            "--output", str(file),
        )  # fmt: skip
        assert (status, "is more than 5% slower: FAILED" in said) == (1, True)
        texts[form] = file.read_text()
        assert "slower" in texts[form]
        assert "times as long an image" in texts[form] or form == "json"
    gate = json.loads(texts["json"])["gate"]
    assert (gate["failed"], gate["margin_percent"]) == (True, pytest.approx(5))
    assert [one["outcome"] for one in gate["judged"]] == [SLOWER, CANNOT_TELL]
    assert gate["judged"][0]["ratio"] == pytest.approx(400 / 300, rel=0.02)
    github = texts["github"].splitlines()
    assert sum(line.startswith("::error title=") for line in github) == 1
    assert sum(line.startswith("::warning title=") for line in github) == 1
    suite = ElementTree.fromstring(texts["junit"]).find("testsuite")
    assert suite is not None
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("2", "1", "1")
    cases = {case.get("name"): case for case in suite.findall("testcase")}
    assert cases["rate"].find("failure") is not None
    assert cases["epochs"].find("skipped") is not None


def test_added_runs_are_judged_at_the_planned_number_only(tmp_path: Path) -> None:
    def side(name: str, *runs: int, epochs: Sequence[int]) -> Path:
        for place, count in enumerate(runs):
            gpu_campaign(
                tmp_path / name, 10 * len(name) + place, 1, practice=True, runs=count,
                epochs=[epochs[i % len(epochs)] for i in range(count)],
            )  # fmt: skip
        return tmp_path / name

    only = Asked(0.5, ("epochs",))
    slow, quick = [12, 14, 16, 14, 14], [10, 8, 8, 10, 10]
    planned = gated(side("a", 5, epochs=quick), side("bb", 5, epochs=slow), only).judged[0]
    assert planned.outcome == CANNOT_TELL
    number = planned.runs_to_tell
    assert number is not None
    assert 5 < number < 60
    early = gated(side("ccc", 5, 3, epochs=quick), side("dddd", 5, 3, epochs=slow), only).judged[0]
    assert (early.outcome, early.runs, early.runs_to_tell) == (CANNOT_TELL, (5, 5), number)
    assert f"8 and 8 runs are there, which are judged at {number} each" in early.why
    a = side("eeeee", 5, number, epochs=quick)
    b = side("ffffff", 5, number, epochs=slow)
    late = gated(a, b, only).judged[0]
    assert (late.runs, late.confidence) == ((number, number), PLANNED_LOOK)
    assert late.runs_to_tell is None


def test_a_side_of_several_kinds_is_refused(tmp_path: Path) -> None:
    a = gpu_campaign(tmp_path / "a", 1, 1)
    gpu_campaign(tmp_path / "b", 2, 1, practice=True)
    gpu_campaign(tmp_path / "b", 3, 1, practice=True, configuration={"device": "cpu"})
    status, text = report("--compare", str(a), str(tmp_path / "b"), "--fail-if-slower", "5%")
    assert (status, "names 2 results, not one" in text) == (2, True)


@pytest.mark.parametrize(("probability", "degrees"), [(0.1, 8), (0.1, 3.7), (0.5, 1), (0.975, 60)])
def test_quantiles_of_chi_square(probability: float, degrees: float) -> None:
    stats = pytest.importorskip("scipy.stats")
    ours = chi_square_quantile(probability, degrees)
    assert ours == pytest.approx(stats.chi2.ppf(probability, degrees), rel=1e-9)


@pytest.mark.parametrize("count", [3, 5, 12, 40])
def test_the_smallest_detectable_difference_is_found_nine_times_in_ten(count: int) -> None:
    stats = pytest.importorskip("scipy.stats")
    values = [math.exp(0.1 * random.Random(i).gauss(0, 1)) for i in range(count)]
    share = smallest_detectable(values)
    assert share is not None
    deviation = stats.tstd([math.log(value) for value in values])
    shift = math.log1p(share) / (deviation * math.sqrt(2 / count))
    degrees = 2 * count - 2
    power = stats.nct.sf(stats.t.ppf(0.975, degrees), degrees, shift)
    assert power == pytest.approx(0.9, abs=0.012)


@pytest.mark.parametrize(("variance", "degrees"), [(0.02, 8), (0.0002, 6.3), (0.3, 8), (0.001, 90)])
def test_as_many_runs_as_are_asked_for_tell(variance: float, degrees: float) -> None:
    stats = pytest.importorskip("scipy.stats")
    distance = math.log(1.1 / 1.05)
    upper = variance * degrees / stats.chi2.ppf(0.1, degrees)

    def power(number: int) -> float:
        freedom = 2 * number - 2
        critical = stats.t.ppf(PLANNED_LOOK, freedom)
        return float(stats.nct.sf(critical, freedom, distance / math.sqrt(upper / number)))

    number = runs_to_tell(variance, degrees, distance, PLANNED_LOOK)
    assert power(number) > 0.945
    assert number == 2 or power(math.floor(0.9 * number) - 1) < 0.95


def test_side_by_side_without_a_gate_has_none(tmp_path: Path) -> None:
    a, b = gpu_campaign(tmp_path / "a", 1, 1), gpu_campaign(tmp_path / "b", 2, 1)
    found: SideBySide = put_side_by_side("1.0", collect_all([a, b]), str(a), str(b))
    assert found.gate is None
    assert found.to_json()["gate"] is None
