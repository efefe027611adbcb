"""The paper's models on any JPEG tree, from `data check` to a validated practice campaign."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from finished_runs import FinishedRun
from images import make_tree
from processes import IN_GROUPS, fourmin


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = make_tree(tmp_path_factory.mktemp("tree"), train=16, val=4)
    checked = fourmin("data", "check", str(root), state=root)
    assert checked.returncode == 0, checked.stderr
    return root


def practice(tree: Path, results: Path, *options: str, timeout: float = 240) -> dict:
    process = fourmin(
        "run", "--practice", "--runs", "1", "--data-dir", str(tree), "--results-dir",
        str(results), "--json", *options, state=results, timeout=timeout,
    )  # fmt: skip
    assert process.returncode == 0, process.stderr
    assert json.loads(process.stdout.splitlines()[-1])["valid"] is True
    (path,) = results.glob("*/run-1/result.json")
    return json.loads(path.read_bytes())


@pytest.mark.parametrize(
    "preset", ["resnet50-256", pytest.param("alexnet-512", marks=pytest.mark.slow)]
)
def test_two_steps_and_an_evaluation_in_two_workers(
    preset: str, tree: Path, tmp_path: Path
) -> None:
    result = practice(
        tree, tmp_path, "--preset", preset, "--max-steps", "2", "--set", "global_batch_size=8",
        "--procs-per-node", "2", "--set", "device=cpu",
    )  # fmt: skip
    assert len(result["first_losses"]) == 2
    assert [e["samples"] for e in result["evaluations"]] == [8]
    assert result["dataset"]["train_samples"] == 32


@pytest.mark.slow
def test_generated_images_are_practised_on_and_too_few_are_told_before(tmp_path: Path) -> None:
    images, results = tmp_path / "fractals", tmp_path / "results"
    few = ("--classes", "3", "--train", "20", "--val", "5")
    made = fourmin("data", "generate", "fractals", str(images), *few, state=tmp_path)
    assert made.returncode == 0, made.stderr
    options = ("--preset", "fractals-resnet50", "--max-steps", "2", "--set", "device=cpu")
    process = fourmin(
        "run", "--practice", "--data-dir", str(images), "--results-dir", str(results), *options,
        state=tmp_path,
    )  # fmt: skip
    assert process.returncode == 2
    assert "a global batch of 256 is larger than the 60 training images" in process.stderr
    assert not results.exists()
    result = practice(images, results, *options, "--set", "global_batch_size=8")
    assert len(result["first_losses"]) == 2
    assert result["dataset"]["train_samples"] == 60


@pytest.mark.slow
def test_every_all_reduce_gives_the_same_losses(finished_run: Callable[..., FinishedRun]) -> None:
    """Hybrid, which is made of two of them, is not slow: see test_step_oracle.py."""
    found = {}
    names = ("native", "ring", "hierarchical", "halving-doubling", "torus", "hybrid")
    for name in names:
        (found[name],) = finished_run(*IN_GROUPS, "--allreduce", name).run_results()
        assert len(found[name]["communication"]["bucket_bytes"]) > 1
    for name, result in found.items():
        assert result["first_losses"] == pytest.approx(found["native"]["first_losses"], rel=1e-5)
        own = {"ring", "hierarchical"} if name == "hybrid" else {name}
        assert set(result["communication"]["algorithms"]) == own


def test_data_of_another_benchmark_is_refused(tree: Path, tmp_path: Path) -> None:
    process = fourmin(
        "run", "--preset", "resnet50-256", "--data-dir", str(tree), "--results-dir",
        str(tmp_path), "--set", "device=cpu", "--procs-per-node", "1", state=tmp_path,
    )  # fmt: skip
    assert process.returncode == 2
    assert "2 classes, the benchmark has 1,000" in process.stderr
    assert "32 training images, the benchmark has 1,281,167" in process.stderr


def test_a_tree_without_a_manifest_is_told_how_to_get_one(tmp_path: Path) -> None:
    root = make_tree(tmp_path / "tree", train=2, val=1)
    process = fourmin("run", "--practice", "--data-dir", str(root), state=tmp_path)
    assert process.returncode == 2
    assert f"fourmin data check {root}" in process.stderr
