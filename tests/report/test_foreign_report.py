"""Results of other benchmarks in a report: their rows, and which never stand together."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from foreign_factory import make_entry, make_package

from fourmin.report import FORMATS, load_renderer
from fourmin.report.charts.rows import accuracy_rows
from fourmin.report.collect import collect


def test_a_set_is_a_row(tmp_path: Path) -> None:
    folder = make_package(tmp_path)
    document = json.loads(load_renderer("json")(collect([tmp_path])))
    (result,) = document["results"]
    assert result["path"] == str(folder)
    assert (result["source"], result["registration"], result["division"]) == (
        "mlperf",
        "none",
        "closed",
    )
    assert (result["submitter"], result["system"], result["benchmark"]) == (
        "ACME",
        "8xA1000",
        "resnet50",
    )
    assert (result["chips"], result["global_batch_size"], result["quality_target"]) == (
        16,
        3200,
        0.759,
    )
    assert [Path(run["path"]).name for run in result["runs"]] == [
        f"result_{run}.txt" for run in range(5)
    ]
    assert {run["status"] for run in result["runs"]} == {"converged"}
    assert {run["epochs"] for run in result["runs"]} == {35}
    times = sorted(run["minutes"] for run in result["runs"])
    assert result["minutes"] == pytest.approx(sum(times[1:4]) / 3)
    assert result["scaled_minutes"] > result["minutes"]
    assert result["valid"] is True
    assert result["images_per_second"] == pytest.approx(1_281_167 / 20, rel=0.01)


def test_what_must_not_be_compared_is_never_in_one_table(tmp_path: Path) -> None:
    for name in ("v0.5", "v0.6", "v4.0"):
        make_package(tmp_path / name, name)
    make_package(tmp_path / "open", "v4.0", division="open")
    make_entry(tmp_path / "dawn")
    results = collect([tmp_path]).results
    assert len(results) == 5
    tables = {}
    for result in results:
        tables.setdefault(result.comparable, []).append(result)
    together = [sorted(r.path.split("/")[-6] for r in rows) for rows in tables.values() if rows[1:]]
    assert together == [["v0.6", "v4.0"]]
    assert results == tuple(sorted(results, key=lambda r: (r.comparable, r.minutes)))


def test_single_logs_and_other_benchmarks_have_no_row(tmp_path: Path) -> None:
    folder = make_package(tmp_path)
    folder.rename(folder.with_name("bert"))
    lone = make_package(tmp_path / "lone", runs=1) / "result_0.txt"
    assert collect([tmp_path / "v4.0", lone]).results == ()


def test_an_invalid_set_says_so(tmp_path: Path) -> None:
    make_package(tmp_path, runs=4)
    (result,) = collect([tmp_path]).results
    assert result.valid is False
    assert result.verdict.findings


def test_a_long_name_does_not_push_the_numbers_out(tmp_path: Path) -> None:
    make_entry(tmp_path, author="A very long name " * 20, hardware="many chips " * 20)
    text = load_renderer("table")(collect([tmp_path]))
    assert "36.000 min" in text
    assert "valid" in text.split("runs 36.000")[0]


@pytest.mark.parametrize("name", FORMATS)
def test_hostile_names_stay_text_in_every_format(name: str, tmp_path: Path) -> None:
    folder = make_package(tmp_path)
    hostile = folder.parents[3] / "\x1b[31m<b>EVIL"
    folder.parents[2].rename(hostile)
    text = load_renderer(name)(collect([tmp_path]))
    assert "\x1b" not in text
    assert "EVIL" in text


def test_hours_that_no_clock_gives_are_none(tmp_path: Path) -> None:
    """In milliseconds they were infinite, of which there is no JSON and no axis."""
    table = "epoch\thours\ttop1Accuracy\ttop5Accuracy\n1\t0.1\t70\t90\n2\t1e308\t75\t94\n"
    make_entry(tmp_path, table=table)
    found = collect([tmp_path])
    assert json.loads(load_renderer("json")(found))["results"][0]["minutes"] is None
    assert accuracy_rows(found.every[0], "minutes")[-1]["time"] == pytest.approx(6)
