"""The files of a site; in a browser it is in test_browser.py."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from report_factory import make_results
from typer.testing import CliRunner

from fourmin.base.errors import FourminError
from fourmin.cli.main import app
from fourmin.report.collect import collect

pytest.importorskip("jinja2", reason="no jinja2: pip install '.[report]'")
pytest.importorskip("vl_convert", reason="no vl-convert-python: pip install '.[report]'")


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("results")
    make_results(root)
    return root


@pytest.fixture(scope="module")
def site(results: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    arguments = ["report", str(results), "--format", "site", "--output", str(folder)]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    return folder


def test_every_result_has_a_page_and_all_data_is_there(site: Path, results: Path) -> None:
    every = collect([results]).every
    pages = {path.name for path in (site / "results").iterdir()}
    assert len(pages) == len(every)
    index = (site / "index.html").read_text()
    assert all(f'href="results/{name}"' in index for name in pages)
    data = json.loads((site / "data.json").read_text())
    kinds = ("results", "failed", "pending", "practice")
    told = {one["path"] for kind in kinds for one in data[kind]}
    assert told == {result.path.replace(str(results), results.name) for result in every}
    lines = list(csv.DictReader(io.StringIO((site / "data.csv").read_text())))
    assert {line["path"] for line in lines} == told
    for path in site.rglob("*.*"):
        assert str(results) not in path.read_text()


def test_a_site_is_written_over_and_needs_a_folder(site: Path, results: Path) -> None:
    before = {path: path.read_bytes() for path in site.rglob("*.*")}
    arguments = ["report", str(results), "--format", "site"]
    assert CliRunner().invoke(app, [*arguments, "--output", str(site)]).exit_code == 0
    assert {path: path.read_bytes() for path in site.rglob("*.*")} == before
    for more in ([], ["--output", str(site), "--chart", "time"]):
        refused = CliRunner().invoke(app, [*arguments, *more]).exception
        assert isinstance(refused, FourminError)
        assert "--format site --output DIR" in str(refused.next_step)
