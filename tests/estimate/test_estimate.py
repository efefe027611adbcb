"""Whole estimates: presets, epochs, formats, and that no validator takes one for a result."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fourmin.base.errors import FourminError
from fourmin.bench.step import Ceilings, PeerResult, StepOptions, StepReport
from fourmin.cli.estimate_command import _configuration
from fourmin.estimate.measured import with_stated_rate, with_step_report
from fourmin.estimate.profile import load_profile
from fourmin.estimate.render import BANNER, text_lines
from fourmin.estimate.run import Estimate, estimate
from fourmin.recipe.presets import PRESETS
from fourmin.report.charts.lines import estimate_chart
from fourmin.rules.engine import check
from fourmin.ruleset import load_ruleset

P40, H100 = load_profile("p40-100gbe"), load_profile("dgx-h100")


def fourmin(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "fourmin", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def made(preset: str, profile: Any = P40, epochs: int | None = None, **options: Any) -> Estimate:
    configuration = _configuration(preset, options, [], None, profile)
    benchmark = load_ruleset().benchmark(configuration.benchmark)
    return estimate(configuration, profile, benchmark, epochs=epochs)


@pytest.mark.parametrize("profile", [P40, H100], ids=lambda profile: profile.name)
@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_can_be_estimated(preset: str, profile: Any) -> None:
    whole = made(preset, profile)
    assert 0 < whole.step.time.efficiency <= 1
    assert whole.train_seconds > 0
    assert min(whole.alternatives.values()) == pytest.approx(whole.alternatives["tuned"])


def test_time_to_train_is_steps_and_evaluations() -> None:
    whole = made("resnet50-64k", epochs=90)
    assert whole.steps_per_epoch == 1_281_167 // 65_536 == 19
    assert (whole.epochs, whole.evaluations) == (90, 22)  # after epochs 4, 8, ... 88
    # One forward pass, a third of the step's arithmetic: 65,536 images hold the 50,000.
    assert whole.evaluation_seconds == pytest.approx(whole.step.compute.seconds / 3)
    expected = 90 * 19 * whole.step.time.seconds + 22 * whole.evaluation_seconds
    assert whole.train_seconds == pytest.approx(expected)


def test_epochs_are_those_of_the_reference_point_up_to_an_evaluation() -> None:
    assert made("resnet50-64k").epochs == 84  # 83.6 epochs, evaluated every 4
    alexnet = made("alexnet-64k")
    assert alexnet.epochs == 95
    assert "no reference" in alexnet.epochs_source


def test_the_curve_goes_from_one_node_to_all_with_the_same_images_each() -> None:
    whole = made("resnet50-64k", nodes=48, global_batch_size=48 * 8 * 32)
    assert [one.workers for one in whole.curve] == [8, 16, 32, 64, 128, 256, 384]
    assert {one.local_batch for one in whole.curve} == {32}
    assert whole.curve[-1] == whole.step


def test_the_profile_limits_the_workers_of_a_node() -> None:
    xe8545 = load_profile("xe8545-a100")
    assert made("resnet50-256", xe8545).configuration.procs_per_node == 4
    with pytest.raises(FourminError, match="--procs-per-node 4"):
        made("resnet50-256", xe8545, procs_per_node=8)


def test_stated_and_measured_compute_replace_the_profiles(tmp_path: Path) -> None:
    configuration = made("resnet50-64k").configuration
    benchmark = load_ruleset().benchmark("resnet50")
    stated = with_stated_rate(P40, configuration, 100.0)
    assert estimate(configuration, stated, benchmark).step.time.compute == pytest.approx(0.32)
    report = StepReport(
        StepOptions("resnet50", "cuda", "fp16", (64,), 224, 1000, ("eager",), 1, 3, 1),
        "a GPU",
        "torch",
        Ceilings(1.0, "fp16", 1, 1.0),
        1.0,
        results=[PeerResult("eager", 32, (0.3, 0.5, 0.4)), PeerResult("fast", 32, (0.1,))],
    )
    path = tmp_path / "step.json"
    path.write_text(json.dumps(report.to_json()))
    measured = with_step_report(P40, configuration, path)
    whole = estimate(configuration, measured, benchmark)
    assert whole.step.time.compute == pytest.approx(0.4)
    assert "step.json" in whole.step.compute.source
    with pytest.raises(FourminError, match="does not have"):
        with_step_report(P40, replace(configuration, precision="fp32"), path)
    path.write_text('{"schema": "another"}')
    with pytest.raises(FourminError, match="no report of a step"):
        with_step_report(P40, configuration, path)


def test_text_and_chart_say_that_it_is_an_estimate() -> None:
    whole = made("resnet50-64k")
    lines = list(text_lines(whole))
    assert lines[0] == BANNER
    assert "points of scaling efficiency" in lines[1]
    assert any("CAREFUL" in line for line in text_lines(made("alexnet-64k")))
    svg = estimate_chart(whole)
    root = ElementTree.fromstring(svg)
    texts = [element.text for element in root.iter() if element.text]
    assert any("Estimate, not measured" in text for text in texts)
    assert "ideal" in texts
    assert texts.count("0") == 2  # both axes begin there


def test_a_faster_all_reduce_is_named_and_one_within_a_tenth_is_not() -> None:
    def hints(**changes: object) -> list[str]:
        return [line for line in text_lines(made("resnet50-64k", **changes)) if "hint" in line]

    (hint,) = hints(allreduce="native")
    best = made("resnet50-64k", allreduce="torus").step.time.seconds
    assert f"--allreduce torus would take {1e3 * best:.1f} ms a step" in hint
    assert hints(allreduce="halving-doubling") == []


def test_the_paper_s_presets_switch_at_the_tail() -> None:
    def taken(preset: str) -> list[tuple[str, bool]]:
        return [(one.algorithm, one.nbytes >= 1 << 20) for one in made(preset).step.reductions]

    for preset in ("resnet50-64k", "alexnet-64k"):
        assert taken(preset) == [("torus", True)] * 3 + [("hierarchical", False)]


@pytest.fixture(scope="module")
def as_json(tmp_path_factory: pytest.TempPathFactory) -> Path:
    done = fourmin("estimate", "--preset", "resnet50-64k", "--nodes", "256", "--json")
    assert done.returncode == 0, done.stderr
    path = tmp_path_factory.mktemp("estimate") / "estimate.json"
    path.write_text(done.stdout)
    return path


def test_json_says_its_kind_first(as_json: Path) -> None:
    content = json.loads(as_json.read_text())
    assert next(iter(content)) == "kind"
    assert content["kind"] == "fourmin-estimate"
    assert content["step"]["workers"] == 2048
    assert content["train_minutes"] > 0
    parts = ("compute", "exposed", "contention", "statistics")
    total = sum(content["step"][f"{part}_milliseconds"] for part in parts)
    assert total == pytest.approx(content["step"]["milliseconds"])


def test_validate_refuses_an_estimate_and_says_why(as_json: Path) -> None:
    for given in (as_json, as_json.parent):
        done = fourmin("validate", "--format", "json", str(given))
        assert done.returncode == 1
        report = json.loads(done.stdout)
        assert [(c["kind"], c["ok"]) for c in report["checked"]] == [("unknown", False)]
        (finding,) = report["findings"]
        assert (finding["code"], finding["severity"]) == ("SCH007", "error")
        assert "fourmin-estimate" in finding["message"]
        assert finding["path"] == str(as_json)


def test_an_estimate_in_a_runs_folder_is_named(as_json: Path, tmp_path: Path) -> None:
    run = tmp_path / "run-1"
    run.mkdir()
    (run / "events.log").write_text("")
    (run / "result.json").write_bytes(as_json.read_bytes())
    codes = {finding.code for finding in check([run]).findings}
    assert "SCH007" in codes


def test_report_has_no_row_for_an_estimate(as_json: Path) -> None:
    done = fourmin("report", "--format", "json", str(as_json.parent))
    assert json.loads(done.stdout)["results"] == []


def test_256_nodes_in_less_than_a_second() -> None:
    seconds = []
    for _ in range(3):
        before = os.times()
        assert fourmin("estimate", "--preset", "resnet50-64k", "--nodes", "256").returncode == 0
        after = os.times()
        # CPU time of the child: other load on the machine is not the command's.
        seconds.append(
            after.children_user + after.children_system
            - before.children_user - before.children_system
        )  # fmt: skip
    assert min(seconds) < 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--preset", "nosuch"], "no preset 'nosuch'"),
        (["--system-profile", "nosuch"], "no system profile 'nosuch'"),
        (["--nodes", "7", "--preset", "resnet50-64k"], "cannot be shared equally"),
        (["--nodes", "2", "--set", "nodes=4"], "nodes is given by an option and by --set"),
        (["--allreduce", "magic"], "allreduce='magic' is not known"),
        (["--precision", "fp32"], "no time for"),
        (["--set", "device=cpu"], "GPUs only"),
        (["--images-per-second", "9", "--step-report", "x"], "both say"),
        (["--output", "/nowhere/chart.svg"], "cannot write /nowhere/chart.svg"),
    ],
)
def test_errors_are_short_and_exit_with_2(arguments: list[str], message: str) -> None:
    done = fourmin("estimate", *arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) < 24
