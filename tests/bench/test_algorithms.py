"""The comparison of algorithms: what is run, which rate is chosen, what the page says."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from benchmark_scripts import load_script

from fourmin.recipe.configuration import Configuration
from fourmin.recipe.presets import load_preset


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return load_script("algorithms")


def found(epochs: int | None, seconds: float = 1.0, **more: Any) -> dict[str, Any]:
    accuracy = {1: 0.5, 2: 0.98}
    return {"epochs": epochs, "seconds": seconds, "accuracy": accuracy, "staleness": None,
            "ended": "", "machine": "2 cores", **more}  # fmt: skip


def fill(script: ModuleType, kept: Any, names: list[str]) -> list[Any]:
    """Every run of the plan, each at once; the second rate of each is the best."""
    made = []
    options = Namespace(contenders=names, workers=[1, 4], runs=2)
    for run in script.planned(options, kept):
        second = run.rate == script.CONTENDERS[run.contender][1][1]
        stale = {"mean": 0.5, "max": 3} if run.contender == "Hogwild!" else None
        kept.add(run, found(4 if second else 6, run.workers, staleness=stale))
        made.append(run)
    return made


def test_each_is_run_with_its_best_rate_and_the_same_seeds(
    script: ModuleType, tmp_path: Path
) -> None:
    kept = script.Kept(tmp_path / "a" / "kept.json", "digits")
    made = fill(script, kept, ["Hogwild!", "pipeline, SGD"])
    rates, runs = made[:6], made[6:]
    assert {(run.workers, run.seed) for run in rates} == {(2, 2012)}
    assert {(run.contender, run.rate) for run in runs} == {
        ("Hogwild!", 0.15), ("pipeline, SGD", 0.05)
    }  # fmt: skip
    # A network of three stages has no fourth worker to give layers to.
    assert sorted((r.contender, r.workers, r.seed) for r in runs) == [
        *(("Hogwild!", workers, seed) for workers in (1, 4) for seed in (2012, 2013)),
        *(("pipeline, SGD", 1, seed) for seed in (2012, 2013)),
    ]
    again = script.Kept(tmp_path / "a" / "kept.json", "digits")
    assert list(again.runs) == made == list(kept.runs)
    with pytest.raises(SystemExit, match="runs of another preset"):
        script.Kept(tmp_path / "a" / "kept.json", "fashion-mnist")


def test_of_equal_epochs_the_fastest_rate_is_taken_and_none_reached_is_last(
    script: ModuleType, tmp_path: Path
) -> None:
    kept = script.Kept(tmp_path / "kept.json", "digits")
    for rate, epochs, seconds in ((0.1, None, 1.0), (0.05, 8, 9.0), (0.2, 8, 7.0)):
        run = script.Run("synchronous SGD", 2, rate, script.FIRST_SEED)
        kept.add(run, found(epochs, seconds))
    assert kept.best_rate("synchronous SGD") == 0.2


def test_the_page_has_each_run_of_the_best_rate(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = script.Kept(tmp_path / "kept.json", "digits")
    fill(script, kept, ["Hogwild!"])
    lost = script.Run("Hogwild!", 4, 0.15, 2012)
    kept.add(lost, found(None, 60.0))
    (tmp_path / "docs").mkdir()
    text = f"# Title\n\n{script.BEGIN}\nold\n{script.END}\n\nafter\n"
    (tmp_path / "docs/algorithms.md").write_text(text)
    monkeypatch.setattr(script, "ROOT", tmp_path)
    script.page(Namespace(results=[tmp_path / "kept.json"]))
    written = (tmp_path / "docs/algorithms.md").read_text()
    assert written.startswith("# Title\n\n")
    assert written.endswith("\n\nafter\n")
    assert "old" not in written
    assert "| Hogwild! | 0.15 | 1 | 4, 4 | 1.0 | 0.50, 3 |" in written
    assert "| Hogwild! | 0.15 | 4 | not, 4 | - | 0.50, 3 |" in written
    assert (tmp_path / "docs/algorithms.svg").read_bytes().startswith(b"<svg")


def test_every_contender_is_a_configuration_that_can_run(script: ModuleType) -> None:
    preset = load_preset("digits").to_json()
    for settings, rates in script.CONTENDERS.values():
        for rate in rates:
            own = {"division": "open", "device": "cpu", "step": "eager", "precision": "fp32",
                   "global_batch_size": script.BATCH, "base_learning_rate": rate}  # fmt: skip
            made = Configuration.from_json({**preset, **own, **settings})
            made.resolved(0, keep_workers=False, cpus=2, cpu_precision="bf16").check()
