"""Two results side by side: what may be compared, what the test says, and what differs."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from campaign_factory import CREATED_MS, make_campaign
from foreign_factory import make_entry, make_package
from report_factory import gpu_campaign, gpu_system

from fourmin.base.errors import FourminError
from fourmin.report import load_pair_renderer
from fourmin.report.collect import collect_all
from fourmin.report.model import Result
from fourmin.report.published import published_results
from fourmin.report.side_by_side import (
    A_FASTER,
    B_FASTER,
    NO_DIFFERENCE,
    NO_SPREAD,
    NOT_ENOUGH,
    SideBySide,
    put_side_by_side,
)
from fourmin.results.rcp import Convergence, ReferencePoint
from fourmin.rules.rule import Finding
from fourmin.rules.verdict import Verdict


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Result:
    (found,) = collect_all([make_campaign(tmp_path_factory.mktemp("pair"))])
    return found


def timed(result: Result, name: str, *minutes: float | None, **changes: object) -> Result:
    """The result with runs of these times."""
    one = result.runs[0]
    runs = tuple(dataclasses.replace(one, minutes=value) for value in minutes)
    kept = sorted(m for m in minutes if m is not None)[1:-1]
    return dataclasses.replace(
        result,
        path=name,
        identity=name,
        group=name,
        runs=runs,
        **{
            "minutes": sum(kept) / len(kept) if kept else None,
            "scaled_minutes": None,
            "convergence": Convergence(None, None),
            **changes,
        },
    )


def pair(a: Result, b: Result) -> SideBySide:
    return put_side_by_side("1.0", [a, b], a.path, b.path)


def test_the_verdict_is_welchs_on_log_time(result: Result) -> None:
    stats = pytest.importorskip("scipy.stats")
    import math

    left, right = (4.0, 4.4, 3.9, 4.2, 4.1), (3.0, 3.3, 3.1, 2.9, 3.6)
    found = pair(timed(result, "a", *left), timed(result, "b", *right)).conclusion
    assert found is not None
    assert found.test is not None
    theirs = stats.ttest_ind(
        [math.log(m) for m in left], [math.log(m) for m in right], equal_var=False
    )
    assert found.test.t == pytest.approx(theirs.statistic, rel=1e-12)
    assert found.test.p == pytest.approx(theirs.pvalue, rel=1e-9)
    assert found.test.degrees == pytest.approx(theirs.df, rel=1e-12)
    interval = theirs.confidence_interval(0.95)
    assert found.typical_ci95 == pytest.approx(
        (math.exp(-interval.high), math.exp(-interval.low)), rel=1e-9
    )
    assert found.outcome == B_FASTER
    assert found.ratio == pytest.approx((3.0 + 3.1 + 3.3) / (4.0 + 4.1 + 4.2))


def test_outcomes(result: Result) -> None:
    def outcome(left: tuple[float | None, ...], right: tuple[float | None, ...]) -> str:
        verdict = pair(timed(result, "a", *left), timed(result, "b", *right)).conclusion
        assert verdict is not None
        return verdict.outcome

    slow, fast = (4.0, 4.1, 4.2), (3.0, 3.1, 3.2)
    assert outcome(slow, fast) == B_FASTER
    assert outcome(fast, slow) == A_FASTER
    assert outcome(slow, (4.0, 4.1, 4.25)) == NO_DIFFERENCE
    assert outcome(slow, (3.0, 3.1)) == NOT_ENOUGH
    assert outcome((*slow, None), fast) == NOT_ENOUGH
    assert outcome((4.0,) * 5, (3.0,) * 5) == NO_SPREAD
    assert outcome((4.0,) * 5, (3.0, 3.0, 3.1)) == B_FASTER


@pytest.mark.parametrize(
    "change",
    [{"quality_target": 0.9}, {"dataset": "other"}, {"clock": "MLPerf"}, {"benchmark": "x"}],
    ids=lambda change: next(iter(change)),
)
def test_what_must_not_be_compared_gets_no_verdict(
    change: dict[str, object], result: Result
) -> None:
    found = pair(timed(result, "a", 4.0, 4.1, 4.2), timed(result, "b", 3.0, 3.1, 3.2, **change))
    assert found.conclusion is None
    assert len(found.obstacles) == 1
    document = found.to_json()
    assert (document["comparable"], document["verdict"]) == (False, None)


def test_sources_with_other_clocks_are_not_compared(tmp_path: Path) -> None:
    own = make_campaign(tmp_path / "own", benchmark="resnet50")
    theirs = make_package(tmp_path / "mlperf")
    entry = make_entry(tmp_path / "dawn")
    found = [*collect_all([own, theirs, entry]), *published_results()]
    for name in (str(theirs), str(entry), "published:jia-2018-resnet50"):
        compared = put_side_by_side("1.0", found, str(own), name)
        assert any("rule of the clock" in reason for reason in compared.obstacles)
    own_against_mlperf = put_side_by_side("1.0", found, str(own), str(theirs))
    names = {d.name for d in own_against_mlperf.differences if d.area == "hyperparameters"}
    assert {"global_batch_size", "lars_opt_base_learning_rate"} <= names  # by MLPerf's keys


def test_every_difference_is_listed(tmp_path: Path) -> None:
    a = gpu_campaign(tmp_path / "a", 1, 1)
    b = gpu_campaign(
        tmp_path / "b",
        2,
        2,
        system=gpu_system(2, torch="2.13.0"),
        configuration={
            "device": "cuda",
            "precision": "bf16",
            "procs_per_node": 2,
            "base_learning_rate": 12.0,
        },
    )
    found = put_side_by_side("1.0", collect_all([a, b]), str(a), str(b))
    assert {(d.area, d.name, d.a, d.b) for d in found.differences} == {
        ("hyperparameters", "base_learning_rate", "16", "12"),
        ("hyperparameters", "precision", "fp16", "bf16"),
        ("hyperparameters", "procs_per_node", "1", "2"),
        ("software", "torch", "2.14.1", "2.13.0"),
        ("hardware", "accelerators.0.count", "1", "2"),
    }
    assert "another number of chips: 1 and 2" in found.notes


def test_what_a_reader_must_know_is_said(tmp_path: Path, result: Result) -> None:
    broken = make_campaign(tmp_path / "broken")
    (broken / "stray.txt").write_text("")
    practice = make_campaign(
        tmp_path / "practice", practice=True, created_ms=CREATED_MS + 1, beacon="1" * 64
    )
    found = put_side_by_side("1.0", collect_all([broken, practice]), str(broken), str(practice))
    assert any(why.startswith("A is INVALID: SCH003") for why in found.obstacles)
    assert found.conclusion is None
    assert "B is practice, which never counts" in found.notes


def test_times_are_compared_as_scaled(result: Result) -> None:
    a, b = timed(result, "a", 4.0, 4.1, 4.2), timed(result, "b", 3.9, 4.0, 4.1)
    assert a.minutes is not None
    reached = Convergence(10.0, ReferencePoint(64, 12.0, 1.0, 9.0))
    lucky = dataclasses.replace(b, scaled_minutes=1.2 * (b.minutes or 0), convergence=reached)
    plain, scaled = pair(a, b), pair(a, lucky)
    assert plain.conclusion is not None
    assert scaled.conclusion is not None
    assert plain.conclusion.outcome == NO_DIFFERENCE
    assert scaled.conclusion.outcome == A_FASTER
    assert scaled.conclusion.ratio == pytest.approx(1.2 * 4.0 / 4.1)
    assert scaled.conclusion.typical == pytest.approx(1.2 * (plain.conclusion.typical or 0))
    assert "A is not scaled: it has no reference point" in scaled.notes
    assert "4.800 min scaled, 4.000 min as run" in load_pair_renderer("table")(scaled)


def test_an_unchecked_side_is_compared_and_says_what_was_not_checked(result: Result) -> None:
    finding = Finding("CNV004", "", "note", "a", None, "no reference point", "", unchecked=True)
    verdict = Verdict("b", "campaign", (finding,), required=frozenset({"CNV004"}))
    found = pair(
        timed(result, "a", 4.0, 4.1, 4.2), timed(result, "b", 3.0, 3.1, 3.2, verdict=verdict)
    )
    assert found.conclusion is not None
    assert "B is unchecked: CNV004 no reference point" in found.notes
    assert found.to_json()["b"]["unchecked"] == ["CNV004"]


def test_a_name_is_a_path_a_folder_above_or_a_folders_name(tmp_path: Path) -> None:
    made = [
        make_campaign(tmp_path / name, created_ms=CREATED_MS + i, beacon=f"{i:064x}", epoch_ms=pace)
        for i, (name, pace) in enumerate((("a", 300.0), ("a", 200.0), ("a", 400.0), ("b", 300.0)))
    ]
    found = collect_all([tmp_path])

    def named(a: str, b: str) -> tuple[str, str]:
        compared = put_side_by_side("1.0", found, a, b)
        return compared.a.path, compared.b.path

    slowest, other = str(made[2]), str(made[3])
    assert named(slowest, other) == (slowest, other)
    assert named(made[2].name, f"{tmp_path}/b/") == (slowest, other)
    # Campaigns of one group: the median one.
    assert named(f"{tmp_path}/a", other) == (str(made[0]), other)
    compared = put_side_by_side("1.0", found, f"{tmp_path}/a", other)
    assert "A is the median of 3 campaigns" in compared.notes
    for a, b, why in (
        ("nothing", other, "no result nothing"),
        (other, other, "the same result"),
    ):
        with pytest.raises(FourminError, match=why):
            named(a, b)


def test_a_name_of_several_results_is_refused(tmp_path: Path) -> None:
    gpu_campaign(tmp_path, 1, 1)
    gpu_campaign(tmp_path, 2, 2)
    with pytest.raises(FourminError, match="names 2 results"):
        put_side_by_side("1.0", collect_all([tmp_path]), str(tmp_path), "x")


def test_the_command_compares(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from typer.testing import CliRunner

    from fourmin.cli.main import app

    monkeypatch.chdir(tmp_path)
    a = gpu_campaign(Path("results"), 1, 1)
    b = gpu_campaign(Path("results"), 2, 2)
    done = CliRunner().invoke(app, ["report", "--compare", a.name, str(b), "--format", "json"])
    document = json.loads(done.output)
    assert (document["a"]["path"], document["b"]["path"]) == (str(a), str(b))
    assert document["comparable"] is True
    done = CliRunner().invoke(
        app, ["report", "--compare", str(a), "published:jia-2018-alexnet", "--with", "published"]
    )
    assert "not comparable" in done.output
    done = CliRunner().invoke(app, ["report", "--with", "rumours"])
    assert isinstance(done.exception, FourminError)
    assert "published" in done.exception.next_step
