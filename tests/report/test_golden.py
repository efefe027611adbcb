"""The text formats, to the byte."""

from __future__ import annotations

import re
from importlib.metadata import version
from pathlib import Path

import pytest
from golden import Golden
from report_factory import PRICES, make_results

from fourmin.report import load_pair_renderer, load_renderer
from fourmin.report.collect import collect, collect_all
from fourmin.report.prices import load_prices
from fourmin.report.side_by_side import put_side_by_side

FORMATS = {"table": "txt", "markdown": "md", "csv": "csv", "json": "json"}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("golden")
    make_results(root / "results")
    (root / "prices.toml").write_text(PRICES)
    return root


def without_chance(text: str) -> str:
    return re.sub(r"(digits-\d{8}T\d{6}Z)-[0-9a-f]{6}", r"\1-abcdef", text)


@pytest.mark.parametrize("form", FORMATS)
def test_a_report(
    form: str, results: Path, golden: Golden, monkeypatch: pytest.MonkeyPatch
) -> None:
    if form == "table" and tuple(map(int, version("rich").split(".")[:2])) < (14, 3):
        pytest.skip("rich gave a full table other widths before 14.3")
    monkeypatch.chdir(results)
    monkeypatch.setenv("COLUMNS", "120")
    comparison = collect([Path("results")], prices=load_prices(Path("prices.toml")))
    golden.check(f"report.{FORMATS[form]}", without_chance(load_renderer(form)(comparison)))


@pytest.mark.parametrize("form", FORMATS)
def test_two_results_side_by_side(
    form: str, results: Path, golden: Golden, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(results)
    monkeypatch.setenv("COLUMNS", "120")
    found = collect_all([Path("results/one"), Path("results/two")])
    pair = put_side_by_side("1.0", found, "results/one", "results/two")
    golden.check(f"compare.{FORMATS[form]}", without_chance(load_pair_renderer(form)(pair)))


@pytest.mark.parametrize("form", FORMATS)
def test_published_results(form: str, golden: Golden, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    text = load_renderer(form)(collect([], published=True))
    golden.check(f"published.{FORMATS[form]}", text)
