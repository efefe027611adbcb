"""`fourmin bench data` on the CPU: every stage is measured, and its numbers go together."""

from __future__ import annotations

import itertools
import json
import shutil

import pytest
from images import make_tree
from output_kinds import require_kind
from typer.testing import CliRunner

from fourmin.base.errors import FourminError
from fourmin.bench.data import DataOptions, DataReport, DataResult, _batches
from fourmin.cli.main import app
from fourmin.datasets.check import check_tree
from fourmin.datasets.prepare import prepare
from fourmin.recipe.presets import load_preset

BRIEF = ["bench", "data", "--device", "cpu", "--precision", "fp32", "--seconds", "0.01",
         "--repeats", "2", "--batch-size", "8"]  # fmt: skip


def run(*arguments: object):
    return CliRunner().invoke(app, [*BRIEF, *map(str, arguments)])


def test_without_arguments_it_measures_the_digits_with_both_loaders():
    result = run("--json")
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    require_kind(report, "bench-data")
    assert (report["data"], report["layout"], report["images"]) == ("digits-v1", "tree", 1437)
    assert (report["model"], report["device"], report["decoder"]) == ("resnet8", "cpu", "cpu")
    rows = {(row["stage"], row["loader"]): row for row in report["results"]}
    assert set(rows) == {("read", None), ("synthetic", None)} | {
        (stage, loader)
        for stage in ("decode", "pipeline", "fed")
        for loader in ("dali", "torchvision")
    }
    for row in rows.values():
        low, high = sorted(row["windows"])
        assert 0 < low <= row["images_per_second"] <= high
    assert rows["read", None]["megabytes_per_second"] > 0
    for loader in ("dali", "torchvision"):
        row = rows["fed", loader]
        assert row["of_synthetic"] == pytest.approx(
            row["images_per_second"] / rows["synthetic", None]["images_per_second"]
        )


def test_shards_and_another_preset(tmp_path):
    tree = make_tree(tmp_path / "tree", train=8, val=2, side=40)
    assert check_tree(tree, workers=1).ok
    prepare([tree], tmp_path / "shards", workers=1)
    result = run("--data-dir", tmp_path / "shards", "--preset", "digits", "--loader", "torchvision")
    assert result.exit_code == 0, result.output
    assert "16 training images of shards (shards)" in result.stdout
    assert "of synthetic" in result.stdout
    assert "dali" not in result.stdout


def test_each_loader_is_measured_without_and_with_the_decoded_cache(tmp_path):
    tree = make_tree(tmp_path / "tree", train=8, val=2, side=40)
    assert check_tree(tree, workers=1).ok
    result = run("--data-dir", tree, "--preset", "digits", "--decoded-cache", 3, "--json")
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert report["decoded_cache"] == 3
    rows = [(row["stage"], row["loader"], row["decoded_cache"]) for row in report["results"]]
    assert len(rows) == len(set(rows)) == 2 + 2 * (1 + 2 + 2)
    for stage, caches in (("decode", {0}), ("pipeline", {0, 3}), ("fed", {0, 3})):
        for loader in ("dali", "torchvision"):
            assert {row[2] for row in rows if row[:2] == (stage, loader)} == caches
    assert all(row["images_per_second"] > 0 for row in report["results"])


def test_a_measurement_with_the_cache_begins_when_it_is_full(tmp_path):
    tree = make_tree(tmp_path / "tree", train=8, val=2, side=40)
    report = check_tree(tree, workers=1)
    config = load_preset("digits").with_overrides(
        {"loader": "torchvision", "decoded_cache": 1, "global_batch_size": 8, "procs_per_node": 1}
    )
    config = config.resolved(0, keep_workers=True)
    batches, loader = _batches(config, report.manifest, tree)
    with loader:
        assert len(loader.cache) == 16
        shutil.rmtree(tree / "train")
        assert len(list(itertools.islice(batches, 5))) == 5


@pytest.mark.parametrize(
    ("arguments", "word"),
    [(["--loader", "pigeon"], "pigeon"), (["--device", "tpu"], "tpu"), (["--preset", "no"], "no"),
     (["--data-dir", "/nowhere"], "/nowhere"), (["--precision", "fp16"], "fp16")],
)  # fmt: skip
def test_what_does_not_exist_is_named(arguments, word):
    result = run(*arguments)
    if isinstance(result.exception, SystemExit):  # refused with the option's name
        assert result.exit_code == 2
        assert f"'{word}' is not known" in result.output
        return
    assert isinstance(result.exception, FourminError)
    assert word in result.exception.what


def test_a_loader_that_is_not_there_is_a_line_of_the_report():
    options = DataOptions("d", "tree", 9, "resnet8", "cpu", "fp32", "eager", "cpu", 8, 16, 1,
                          ("dali", "torchvision"), 1.0, 1)  # fmt: skip
    report = DataReport(options, "a machine", "torch")
    report.results = [
        DataResult("decode", "dali", note="not measured: the package nvidia is missing"),
        DataResult("synthetic", "", (100.0, 300.0, 200.0)),
        DataResult("fed", "torchvision", (150.0,)),
    ]
    report.results.append(DataResult("fed", "dali", (1.0,), decoded_cache=5))
    text = report.to_text()
    assert "dali, cached" in text
    assert "the package nvidia is missing" in text
    assert report.to_json()["results"][2]["of_synthetic"] == 0.75
