"""Reference points are of whole runs of one configuration, beside those of other batch sizes."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest
from benchmark_scripts import load_script
from campaign_factory import make_campaign

from fourmin.log import keys


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return load_script("reference_points")


def test_the_epochs_of_every_run_that_ended(script: ModuleType, tmp_path: Path) -> None:
    campaign = make_campaign(tmp_path)
    benchmark, point, source = script.gathered([campaign])
    assert (benchmark, point["global_batch_size"]) == ("digits", 64)
    assert point["epochs"] == [12, 12, 12, 12, 12]
    assert [[at for at, _ in curve] for curve in point["curves"]] == [[2, 4, 6, 8, 10, 12]] * 5
    assert point["hyperparameters"]["optimizer"] == "lars"
    assert source.startswith("5 practice runs (`fourmin run --practice --preset digits`")
    log = campaign / "run-2" / "events.log"
    log.write_text("".join(x for x in log.open() if f'"{keys.RUN_STOP}"' not in x))
    _, cut, source = script.gathered([campaign])
    assert cut["epochs"] == [12, 12, 12, 12]
    assert source.endswith("; 1 runs that were cut off left out")


def test_campaigns_of_two_configurations_or_short_of_the_target(
    script: ModuleType, tmp_path: Path
) -> None:
    campaigns = [
        make_campaign(tmp_path / "a"),
        make_campaign(tmp_path / "b", configuration={"warmup_epochs": 1.0}),
    ]
    with pytest.raises(SystemExit, match="different configurations"):
        script.gathered(campaigns)
    for log in campaigns[0].glob("run-*/events.log"):
        log.write_text("".join(x for x in log.open() if f'"{keys.EVAL_ACCURACY}"' not in x))
    with pytest.raises(SystemExit, match="did not reach"):
        script.gathered(campaigns[:1])


def test_points_of_other_batch_sizes_stay(script: ModuleType) -> None:
    large, small = ({"global_batch_size": n, "epochs": [n]} for n in (4096, 256))
    document = script.with_point(None, "fractals-resnet50", large, "5 runs")
    document = script.with_point(document, "fractals-resnet50", small, "9 runs")
    again = {**small, "epochs": [11]}
    document = script.with_point(document, "fractals-resnet50", again, "10 runs")
    assert document["rounds"]["1.0"] == [again, large]
    assert document["source"] == "batch 4096: 5 runs\nbatch 256: 10 runs"


def test_runs_are_added_to_those_of_their_batch_size(script: ModuleType, tmp_path: Path) -> None:
    _, point, _ = script.gathered([make_campaign(tmp_path)])
    document = script.with_point(None, "digits", point, "5 runs")
    document = script.with_point(document, "digits", point, "5 more", add=True)
    (both,) = document["rounds"]["1.0"]
    assert both == {**point, "epochs": 2 * point["epochs"], "curves": 2 * point["curves"]}
    assert document["source"] == "batch 64: 5 runs\nbatch 64: 5 more"
    other = {**point, "hyperparameters": {"optimizer": "sgd"}}
    with pytest.raises(SystemExit, match="other hyperparameters"):
        script.with_point(document, "digits", other, "5 others", add=True)
