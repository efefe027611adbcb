"""The ablation's grid goes on where it ended, and its page follows from the runs alone."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from benchmark_scripts import BENCHMARKS, load_script

from fourmin import __version__
from fourmin.recipe.presets import load_preset

PRESET = load_preset("tiny-imagenet")


@pytest.fixture(scope="module")
def ablation() -> ModuleType:
    return load_script("ablation")


@pytest.fixture(scope="module")
def page() -> ModuleType:
    return load_script("ablation_page")


def kept(ablation: ModuleType, run: Any, *accuracies: float, **changes: Any) -> dict[str, Any]:
    """What a run leaves, with its accuracy after each epoch."""
    configuration = {**PRESET.to_json(), **ablation.settings_of(run, PRESET)}
    return {
        **asdict(run),
        "accuracy": {str(epoch): value for epoch, value in enumerate(accuracies, start=1)},
        "diverged": False,
        "machine": "1 x a GPU",
        "seconds": 1.0,
        "configuration": configuration,
        **changes,
    }


def write(path: Path, runs: list[dict[str, Any]]) -> Path:
    document = {"schema_version": 1, "fourmin": __version__, "preset": "tiny-imagenet"}
    path.write_text(json.dumps({**document, "runs": runs}))
    return path


@pytest.fixture
def made(ablation: ModuleType, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The runs that are made, each at once; the copy of the package is not."""
    runs: list[Any] = []

    def carry_out(run: Any, settings: object, package: object, options: object) -> dict[str, Any]:
        if len(runs) % 4 == 3:
            runs.append(None)
            raise KeyboardInterrupt
        runs.append(run)
        return kept(ablation, run, 0.1, 0.2)

    monkeypatch.setattr(ablation, "carry_out", carry_out)
    monkeypatch.setattr(ablation, "without_target", lambda folder, benchmark: folder)
    return runs


def run(ablation: ModuleType, output: Path, *options: str) -> list[Any]:
    """The command `run`; returns the runs that the output holds after it."""
    given = ablation.parser().parse_args(["--output", str(output), *options])
    ablation.run_grid(given)
    return [ablation.key_of(one) for one in json.loads(output.read_bytes())["runs"]]


def test_what_was_cut_off_goes_on_and_nothing_runs_twice(
    ablation: ModuleType, made: list[Any], tmp_path: Path
) -> None:
    output = tmp_path / "new" / "out.json"
    with pytest.raises(KeyboardInterrupt):
        run(ablation, output, "--batches", "4096")
    assert len(json.loads(output.read_bytes())["runs"]) == 3
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            run(ablation, output, "--batches", "4096")
    everything = run(ablation, output, "--batches", "4096")
    assert everything == [one for one in made if one is not None]
    assert len(set(everything)) == len(everything) == 3 * 3 + 1


def test_the_parts_are_the_whole_and_share_nothing(
    ablation: ModuleType, made: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ablation, "carry_out", lambda run, *others: kept(ablation, run, 0.1))
    one = run(ablation, tmp_path / "1.json", "--part", "1/2", "--runs", "2")
    two = run(ablation, tmp_path / "2.json", "--part", "2/2", "--runs", "2")
    whole = run(ablation, tmp_path / "all.json", "--runs", "2")
    assert not set(one) & set(two)
    assert {*one, *two} == set(whole)
    assert len(whole) == 2 * (2 * 3 * 3 + 1)


def test_after_the_time_budget_nothing_is_started(
    ablation: ModuleType, made: list[Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ablation.parser().parse_args(
        ["--output", str(tmp_path / "out.json"), "--time-budget", "-1"]
    )
    ablation.run_grid(given)
    assert made == []
    assert "goes on" in capsys.readouterr().out


def test_variants_of_a_batch_differ_in_what_they_are_named_for_alone(ablation: ModuleType) -> None:
    fields = {
        name: ablation.settings_of(ablation.Run(name, 4096, 3.0, 1), PRESET)
        for name in ablation.VARIANTS
    }

    def differ(a: str, b: str) -> set[str]:
        return {key for key in fields[a] if fields[a][key] != fields[b][key]}

    assert differ("sgd", "lars") == {"optimizer"}
    assert differ("lars", "lars-excluded") == {"exclude_bias_and_bn"}
    changed = PRESET.with_overrides(fields["lars"])
    assert changed.local_batch_size == PRESET.local_batch_size
    changed.resolved(0, keep_workers=False).check()


def test_rates_follow_the_scaling_that_the_page_states(ablation: ModuleType) -> None:
    # Linear from 0.4 at 512 is 3.2, the square root of 8 is 2.828; MLPerf's point at 4,096 has 10.
    assert ablation.usual_rates("sgd", 4096, PRESET) == [3.2, 1.13, 1.9]
    assert ablation.usual_rates("lars", 4096, PRESET) == [10.0, 5.0, 20.0]
    assert ablation.usual_rates("lars-excluded", 16384, PRESET) == [20.0, 10.0, 40.0]
    digits = load_preset("digits")  # its own rate is LARS's
    with pytest.raises(SystemExit, match="no rate for SGD"):
        ablation.planned(digits, [128], ["lars", "sgd"], 1, {})
    given = ablation.planned(digits, [128], ["lars", "sgd"], 1, {"sgd": [0.5]})
    assert {run.base_learning_rate for run in given if run.variant == "sgd"} == {0.5}


def test_the_package_that_runs_differs_in_the_target_alone(
    ablation: ModuleType, tmp_path: Path
) -> None:
    copy = ablation.without_target(tmp_path, "tiny-imagenet")
    original = BENCHMARKS.parent
    changed = [
        path.relative_to(copy).as_posix()
        for path in copy.rglob("*")
        if path.is_file() and path.read_bytes() != (original / path.relative_to(copy)).read_bytes()
    ]
    name = "rules/1.0/benchmarks/tiny-imagenet.json"
    assert changed == [name]
    old, new = (json.loads((folder / name).read_bytes()) for folder in (original, copy))
    assert new.pop("quality") == {**old.pop("quality"), "target": 1.0}
    assert new == old


def grid(ablation: ModuleType) -> list[dict[str, Any]]:
    """Two seeds of two rates for each of the three variants, and the preset."""
    last = {
        ("sgd", 1.0): (0.30, 0.34),
        ("sgd", 2.0): (0.10, 0.12),
        ("lars", 5.0): (0.40, 0.40),
        ("lars", 10.0): (0.40, 0.40),
        ("lars-excluded", 5.0): (0.20, 0.30),
        ("lars-excluded", 10.0): (0.45, 0.47),
        ("lars-excluded", 20.0): (0.90, None),
        (ablation.BASELINE, 0.4): (0.50, 0.52),
    }
    runs = []
    for (variant, rate), outcomes in last.items():
        batch = 512 if variant == ablation.BASELINE else 4096
        for seed, accuracy in enumerate(outcomes, start=1):
            one = ablation.Run(variant, batch, rate, seed)
            if accuracy is None:
                runs.append(kept(ablation, one, 0.005, diverged=True))
            else:
                runs.append(kept(ablation, one, accuracy / 2, accuracy))
    return runs


def test_the_best_rate_is_that_of_the_highest_median_and_the_lowest_of_equals(
    ablation: ModuleType, page: ModuleType
) -> None:
    best = page.best_points(page.points_of(grid(ablation)))
    found = {point.variant: (point.rate, round(point.score, 4)) for point in best}
    # A run that diverged is 0: the median of 0.90 and 0 is 0.45, less than 0.46.
    assert found == {
        "baseline": (0.4, 0.51),
        "sgd": (1.0, 0.32),
        "lars": (5.0, 0.40),
        "lars-excluded": (10.0, 0.46),
    }


def test_the_tables_show_the_best_rates_and_every_run(
    ablation: ModuleType, page: ModuleType
) -> None:
    points = page.points_of(grid(ablation))
    best, everything = page.best_table(points), page.all_table(points)
    assert "| 512 | the preset | 0.4 | 0.4 | 51.0% | - |" in best
    assert "| 4,096 | momentum SGD | 1 | 1, 2 | 32.0% | - |" in best
    assert "| 4,096 | LARS, no decay on bias and BN | 10 | 5, 10, 20 | 46.0% | +14.0 |" in best
    row = "| 4,096 | LARS, no decay on bias and BN | 20 | 90.0%, diverged in epoch 2 |"
    assert row in everything
    assert len(everything.splitlines()) == 2 + 8
    said = page.conclusions(points)
    assert "+8.0 points over momentum SGD" in said
    assert "a further +6.0: the paper's order is what was found" in said
    assert "up to 4.0 points" in said
    assert "grid for momentum SGD at 4,096, LARS at 4,096: another" in said


def test_the_page_is_whole_and_the_same_however_the_runs_were_shared(
    ablation: ModuleType, page: ModuleType, tmp_path: Path
) -> None:
    runs = grid(ablation)
    one = write(tmp_path / "one.json", runs)
    parts = [write(tmp_path / f"{i}.json", runs[i::2] + runs[:1]) for i in range(2)]
    text, drawn = (path.read_bytes() for path in page.write([one], tmp_path / "docs"))
    assert not re.search(r"[{}]", text.decode())
    assert max(len(line) for line in text.decode().splitlines() if line[0:1].isalpha()) <= 100
    again = page.write(parts[::-1], tmp_path / "again")
    assert again[1].read_bytes() == drawn
    assert page.all_table(page.points_of(runs)) in again[0].read_text()
    for name in ("momentum SGD", "LARS", "the preset", "batch 4,096"):
        assert f">{name}<" in drawn.decode()


def test_the_page_in_docs_is_what_its_results_give(page: ModuleType, tmp_path: Path) -> None:
    results = sorted((BENCHMARKS / "results").glob("ablation-*.json"))
    docs = BENCHMARKS.parent / "docs"
    for path in page.write(results, tmp_path):
        assert path.read_bytes() == (docs / path.name).read_bytes(), "run `make docs`"
    assert "docs/ablation.md" in (BENCHMARKS.parent / "README.md").read_text()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"weight_decay": 1e-4}, "differ in weight_decay"),
        ({"label_smoothing": 0.0, "max_epochs": 9}, "differ in label_smoothing, max_epochs"),
    ],
)
def test_runs_that_differ_in_more_than_the_variant_make_no_page(
    ablation: ModuleType, page: ModuleType, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    runs = grid(ablation)
    runs[3]["configuration"] |= changes
    with pytest.raises(SystemExit, match=message):
        page.merged([write(tmp_path / "runs.json", runs)])


@pytest.mark.slow
def test_a_run_goes_on_after_the_target_and_one_that_diverges_is_kept(tmp_path: Path) -> None:
    output = tmp_path / "out.json"
    subprocess.run(
        [sys.executable, str(BENCHMARKS / "ablation.py"), "--preset", "digits",
         "--batches", "128", "--variants", "lars", "sgd", "--output", str(output),
         "--learning-rates", "lars=16", "sgd=1e9"],
        check=True, timeout=240, cwd=tmp_path,
    )  # fmt: skip
    runs = {one["variant"]: one for one in json.loads(output.read_bytes())["runs"]}
    assert set(runs) == {"lars", "sgd", "baseline"}
    # The preset reaches its target, 0.98, in epoch 10 to 14.
    reached = [int(epoch) for epoch, value in runs["baseline"]["accuracy"].items() if value >= 0.98]
    assert min(reached) < 16
    assert "16" in runs["baseline"]["accuracy"]
    assert runs["sgd"]["diverged"]
    assert not runs["lars"]["diverged"]
