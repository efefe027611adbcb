"""Whole estimates: presets, epochs, formats, and that no validator takes one for a result."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from bisect import bisect_left
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from speed import SECOND, effort

from fourmin.base.errors import FourminError
from fourmin.base.toml import tomllib
from fourmin.bench.step import Ceilings, PeerResult, StepOptions, StepReport
from fourmin.cli.estimate_command import _configuration
from fourmin.estimate.feed import Feed
from fourmin.estimate.fitted import accuracy
from fourmin.estimate.measured import with_data_report, with_stated_rate, with_step_report
from fourmin.estimate.models import load_shape
from fourmin.estimate.profile import load_profile
from fourmin.estimate.render import BANNER, text_lines
from fourmin.estimate.run import Estimate, estimate
from fourmin.estimate.step import estimate_step
from fourmin.recipe.presets import PRESETS
from fourmin.report.charts.lines import estimate_chart
from fourmin.rules.engine import check
from fourmin.ruleset import load_ruleset

ROOT = Path(__file__).resolve().parents[2]
PROFILES = ROOT / "fourmin" / "estimate" / "profiles"
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
    assert whole.stretches[0].evaluation_seconds == pytest.approx(whole.step.compute.seconds / 3)
    expected = 90 * 19 * whole.step.time.seconds + 22 * whole.stretches[0].evaluation_seconds
    assert whole.train_seconds == pytest.approx(expected)


def test_epochs_in_which_gradients_grow_sparser_are_counted_each() -> None:
    sparse = replace(made("resnet50-256", P40, nodes=2).configuration, gradient_density=1e-3)
    benchmark = load_ruleset().benchmark("resnet50")
    whole = estimate(replace(sparse, density_warmup_epochs=4), P40, benchmark, epochs=40)
    assert [one.epochs for one in whole.stretches] == [1, 1, 1, 1, 36]
    densities = [one.configuration.gradient_density for one in whole.stretches]
    assert densities == pytest.approx([10 ** (-0.6 * e) for e in range(1, 6)])
    seconds = [one.step.time.seconds for one in whole.stretches]
    assert seconds == sorted(seconds, reverse=True)
    assert whole.step.time == estimate(sparse, P40, benchmark, epochs=40).step.time
    assert whole.step.time.seconds == seconds[-1] < seconds[0]


def test_phases_are_counted_each_with_its_own_steps_sizes_and_evaluations() -> None:
    whole = made("resnet50-fastai", H100)
    epochs, sizes = (6, 8, 3, 12, 8), (128, 128, 224, 224, 288)
    batches = (8192, 16384, 8192, 28672, 16384)
    assert tuple(one.epochs for one in whole.stretches) == epochs
    assert tuple(one.configuration.image_size for one in whole.stretches) == sizes
    assert [one.steps_per_epoch for one in whole.stretches] == [1_281_167 // b for b in batches]
    # Evaluated after 1, 5, 9, ... 37.
    assert [one.evaluations for one in whole.stretches] == [2, 2, 1, 3, 2]
    assert whole.epochs == 37
    assert whole.train_seconds == pytest.approx(
        sum(
            one.epochs * one.steps_per_epoch * one.feed.seconds(one.step)
            + one.evaluations * one.evaluation_seconds
            for one in whole.stretches
        )
    )
    # Each phase is what an estimate of it alone says.
    own = whole.stretches[3].configuration
    alone = estimate(own, H100, load_ruleset().benchmark("resnet50"), epochs=12)
    assert alone.step.time == whole.stretches[3].step.time
    low, high = whole.train_interval
    assert low <= whole.train_seconds <= high
    said = whole.to_json()
    assert said["steps"] == sum(e * (1_281_167 // b) for e, b in zip(epochs, batches, strict=True))
    minutes = [phase["minutes"] for phase in said["phases"]]
    assert sum(minutes) == pytest.approx(said["train_minutes"])
    text = "\n".join(text_lines(whole))
    assert "288 pixels, batch 16,384" in text


def test_images_of_half_the_side_take_a_quarter_of_the_pass() -> None:
    """But for the part that no size changes; measured at other pixels, it is the same line."""
    configuration = made("resnet50-256", H100).configuration
    stated = with_stated_rate(H100, configuration, 1000.0)
    times = {}
    for size in (112, 224, 448):
        one = replace(configuration, image_size=size, eval_resize=512)
        times[size] = estimate_step(one, stated).time.compute
    assert times[224] == pytest.approx(configuration.local_batch_size / 1000.0)
    assert (times[448] - times[224]) / (times[224] - times[112]) == pytest.approx(4.0)


def test_compression_is_named_where_it_pays() -> None:
    """The bytes by hand: of each weight's elements a thousandth, 8 bytes each, the rest whole."""
    slow = replace(P40, between_bandwidth=P40.between_bandwidth / 100)
    dense, fast = made("resnet50-256", slow, nodes=2), made("resnet50-256", H100)
    assert dense.compressed < dense.step.time.seconds / 3
    assert any(line.startswith("compressed ") for line in text_lines(dense))
    assert not any(line.startswith("compressed ") for line in text_lines(fast))
    one = replace(dense.configuration, gradient_density=0.001, fusion_threshold=0)
    reductions = estimate_step(one, slow).reductions
    shape = load_shape("resnet50")
    sent = sum(
        8 * max(1, math.ceil(g.elements / 1000)) if g.operations else 4 * -(-g.elements // 4) * 4
        for g in shape.gradients
    )
    assert sum(one.nbytes for one in reductions) == pytest.approx(sent, rel=0.05)


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
    report.results.pop()
    path.write_text(json.dumps(report.to_json()))
    with pytest.raises(FourminError) as refused:
        with_step_report(P40, replace(configuration, step="fast"), path)
    assert refused.value.next_step.startswith("--set step=eager; or ")
    for other in ('{"schema": "another"}', "[" * 10**5):
        path.write_text(other)
        with pytest.raises(FourminError, match="no report of `bench step`"):
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
        return [line for line in text_lines(made("resnet50-8k", **changes)) if "hint" in line]

    (hint,) = hints(allreduce="ring")
    best = made("resnet50-8k", allreduce="native").step.time.seconds
    assert f"--allreduce native would take {1e3 * best:.1f} ms a step" in hint
    assert hints(allreduce="hierarchical") == []


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
    assert list(content)[:2] == ["schema_version", "kind"]
    assert content["kind"] == "fourmin-estimate"
    assert content["step"]["workers"] == 2048
    assert content["train_minutes"] > 0
    parts = ("compute", "exposed", "contention", "statistics")
    total = sum(content["step"][f"{part}_milliseconds"] for part in parts)
    assert total == pytest.approx(content["step"]["milliseconds"])


def test_all_reduce_is_counted_calls_and_bytes_by_the_published_latency_and_bandwidth(
    as_json: Path,
) -> None:
    """Within 5%, with the pieces that `tests/bench/test_rounds.py` counts, on 256 nodes of 8.

    Around the node 7 hops of NCCL's ring by LL (0.6 us after 6.6, half the links' bandwidth); over
    the nodes its tree by LL, 8 hops up and 8 down (5 us after 6.8, 0.92/3.8 of an adapter).
    """
    step = json.loads(as_json.read_text())["step"]
    published = tomllib.loads((PROFILES / "dgx-h100.toml").read_text())
    link = published["inside"]["bytes_per_second"]
    adapter = published["between"]["bytes_per_second"] / published["between"]["adapters"]
    assert [one["algorithm"] for one in step["buckets"]] == ["torus"] * 3 + ["hierarchical"]
    machine = 0.0
    for bucket, pieces in zip(step["buckets"], (5, 5, 4, 1), strict=True):
        assert sum(bucket["collectives"].values()) == 3 * pieces
        torus, nbytes = bucket["algorithm"] == "torus", bucket["bytes"]
        near = (6.6 + 7 * 0.6) * 1e-6 + nbytes / pieces * (7 / 8 if torus else 1) / (link / 2)
        shared = nbytes / (8 if torus else 1)
        far = pieces * (6.8 + 16 * 5.0) * 1e-6 + 2 * shared / (adapter * 0.92 / 3.8)
        # All but the first and the last within the node go on beside those over the nodes.
        machine += far + 2 * near
    host = sum((3 * 5, 3 * 5, 3 * 4, 3)) * published["call"]["seconds"]
    assert step["calls"] == 45
    assert step["communication_milliseconds"] == pytest.approx(1e3 * max(machine, host), rel=0.05)


def test_the_step_is_stated_for_hybrid_and_native(as_json: Path) -> None:
    content = json.loads(as_json.read_text())
    times = content["milliseconds_by_allreduce"]
    assert times["hybrid"] == pytest.approx(content["step"]["milliseconds"])
    native = made("resnet50-64k", H100, allreduce="native", nodes=256)
    assert times["native"] == pytest.approx(1e3 * native.step.time.seconds)
    (line,) = [line for line in text_lines(native) if line.startswith("step by all-reduce")]
    assert f"native {times['native']:.1f} ms" in line
    assert f"hybrid {times['hybrid']:.1f} ms" in line


def test_an_estimate_says_what_it_rests_on_and_its_interval(as_json: Path) -> None:
    content = json.loads(as_json.read_text())
    assert content["rests_on"] == dict(H100.sources)
    assert "2 H200" in content["rests_on"]["a round of messages"]
    efficiency = content["step"]["scaling_efficiency"]
    low, high = content["interval"]["scaling_efficiency"]
    assert (low, high) == pytest.approx(
        (efficiency * (1 - accuracy().interval), efficiency * (1 + accuracy().interval))
    )
    fast, slow = content["interval"]["train_minutes"]
    assert fast < content["train_minutes"] < slow
    # The steps of 84 epochs without the evaluations, at the lower efficiency.
    steps = content["steps"] * content["step"]["compute_milliseconds"] / low / 6e4
    evaluations = content["evaluations"] * content["evaluation_seconds"] / 60
    assert slow == pytest.approx(steps + evaluations)
    lines = list(text_lines(made("resnet50-64k")))
    assert sum("80% interval" in line for line in lines) == 2
    assert "  starting a collective: as on dgx-h100: " in "".join(
        line[:43] for line in lines if "starting a collective" in line
    )


def test_450_000_images_a_second_are_50_gigabytes_a_second(tmp_path: Path) -> None:
    configuration = made("resnet50-64k", P40, allreduce="native").configuration
    benchmark = load_ruleset().benchmark("resnet50")

    def at(rate: float, **machine: float) -> Estimate:
        profile = replace(with_stated_rate(P40, configuration, rate), **machine)
        return estimate(configuration, profile, benchmark)

    rates = range(150, 800)
    rate = rates[bisect_left(rates, 450_000, key=lambda rate: at(rate).step.images_per_second)]
    whole = at(rate)
    assert whole.step.images_per_second == pytest.approx(450_000, rel=0.01)
    assert whole.feed.bytes_per_second == pytest.approx(50e9, rel=0.05)
    assert (whole.feed.reading, whole.feed.decoding) == (None, None)
    assert any("reading of unknown speed" in line for line in text_lines(whole))
    # 256 nodes of 100 MB/s read 25.6 GB/s: half of what that needs.
    slow = at(rate, storage_bandwidth=100e6, decode_rate=1e4)
    assert slow.feed.limit(slow.step) == "reading"
    assert slow.feed.seconds(slow.step) == pytest.approx(65_536 * 115_439.6 / 25.6e9)
    steps = slow.epochs * slow.steps_per_epoch
    assert slow.train_seconds - whole.train_seconds == pytest.approx(
        steps * (slow.feed.seconds(slow.step) - slow.step.time.seconds)
    )
    assert slow.train_interval[0] == pytest.approx(slow.train_seconds)
    decoders = at(rate, storage_bandwidth=1e9, decode_rate=100.0)
    assert decoders.feed.limit(decoders.step) == "decoding"
    assert decoders.feed.seconds(decoders.step) == pytest.approx(32 / 100)
    assert made("resnet50-64k", P40).feed.limit(made("resnet50-64k", P40).step) == "compute"
    waits = made("resnet50-8k", H100, allreduce="ring")
    assert waits.feed.limit(waits.step) == "communication"
    # How fast photographs are decoded says nothing of smaller images.
    assert made("tiny-imagenet", H100).feed == Feed(None, None, None)
    # What `bench data` measured takes the place of all that.
    report = ROOT / "benchmarks" / "results" / "data-H200-photographs-fast.json"
    measured = with_data_report(H100, configuration, report)
    assert measured.storage_bandwidth == pytest.approx(1825.587e6, rel=1e-5)
    assert measured.image_bytes == pytest.approx(113_533, rel=1e-3)
    assert measured.decode_rate == pytest.approx(11_000.0, rel=1e-5)
    assert "H200" in dict(measured.sources)["reading"]
    with pytest.raises(FourminError, match="no report of `bench data`"):
        with_data_report(H100, replace(configuration, loader="torchvision"), report)


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
    def estimated() -> None:
        assert fourmin("estimate", "--preset", "resnet50-64k", "--nodes", "256").returncode == 0

    assert effort(estimated, SECOND) <= SECOND


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
    named = () if "--preset" in arguments else ("--preset", "resnet50-256")
    done = fourmin("estimate", *named, *arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) < 24
