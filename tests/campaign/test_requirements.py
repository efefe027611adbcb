"""What a preset needs and this machine lacks: one message, at once, without a training stack."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys

import pytest
from speed import SECOND, effort

from fourmin.base.errors import FourminError
from fourmin.campaign import prepare as preparing
from fourmin.campaign import requirements
from fourmin.campaign.describe import plan_json, plan_lines
from fourmin.campaign.prepare import prepare, resolve_configuration
from fourmin.campaign.request import New, Placement, Request
from fourmin.campaign.requirements import Place
from fourmin.estimate.collectives import cost_of
from fourmin.estimate.hybrid import bucket_sizes, switching
from fourmin.estimate.profile import DEFAULT_PROFILE, load_profile
from fourmin.estimate.step import grouping
from fourmin.recipe import steps
from fourmin.system.survey import Survey


def gpus(monkeypatch, count):
    for module in (preparing, requirements):
        monkeypatch.setattr(module, "usable_gpus", lambda: count)


@pytest.fixture
def no_gpu(monkeypatch):
    gpus(monkeypatch, 0)


@pytest.fixture
def installed(monkeypatch):
    monkeypatch.setattr(requirements, "installed_version", lambda name: "1.0")


def refused(request: Request, placement: Placement | None = None) -> FourminError:
    # Not `auto`: a machine with sbatch would be none that starts workers here.
    prepared = prepare(New(request), placement or Placement(launcher="local"))
    with pytest.raises(FourminError) as caught:
        prepared.require()
    assert caught.value.exit_code == 2
    return caught.value


def test_everything_that_is_missing_is_named_in_one_message(no_gpu, installed, tmp_path):
    results = tmp_path / "results"
    asked = Request("resnet50-64k", options={"nodes": 256}, submitter="lab", results_dir=results)
    error = refused(asked)
    assert error.what == "3 things are missing or wrong for preset resnet50-64k here"
    for part in ("ImageNet ILSVRC-2012", "no --data-dir", "256 nodes need a launcher",
                 "8 workers a node on GPUs, but 0 can be used here"):  # fmt: skip
        assert part in error.why
    for part in ("--data-dir FOLDER", "fourmin data check FOLDER", "NVIDIA GPUs",
                 "--nodes 1 --set gradient_accumulation_steps=64 --set bn_span=1"):  # fmt: skip
        assert part in error.next_step
    assert not results.exists()


def test_the_training_stack_is_named_with_the_rest(no_gpu, monkeypatch, tmp_path):
    monkeypatch.setattr(requirements, "installed_version", lambda name: None)
    error = refused(Request("resnet50-8k", submitter="lab", results_dir=tmp_path / "results"))
    assert error.what.startswith("4 things")
    assert "training needs torch, numpy, dali" in error.why
    assert "[train]'" in error.next_step


def test_where_only_dali_is_missing_the_other_loader_is_named(no_gpu, monkeypatch, tmp_path):
    there = dict.fromkeys(("torch", "numpy", "torchvision"), "1.0")
    monkeypatch.setattr(requirements, "installed_version", there.get)
    error = refused(Request("digits", submitter="lab", results_dir=tmp_path / "results"))
    assert (error.what, error.why) == ("training needs dali, not installed here", "")
    assert error.next_step.startswith("--loader torchvision, or pip install ")
    del there["numpy"]
    error = refused(Request("digits", submitter="lab", results_dir=tmp_path / "results"))
    assert error.next_step.startswith("pip install ")


def test_one_thing_missing_is_said_without_a_list(no_gpu, installed, tmp_path):
    error = refused(Request("resnet50-256", practice=True, results_dir=tmp_path / "results"))
    assert error.what.startswith("benchmark resnet50 needs ImageNet")
    error = refused(Request("digits", options={"nodes": 2}, results_dir=tmp_path / "results"))
    assert error.what == "2 nodes need a launcher that reaches other nodes"
    assert "--nodes 1" in error.next_step


def test_what_is_suggested_for_one_node_is_the_same_training(no_gpu, monkeypatch):
    gpus(monkeypatch, 8)
    paper = resolve_configuration(Request("resnet50-64k"))
    one_node = resolve_configuration(
        Request(
            "resnet50-64k",
            options={"nodes": 1},
            settings=("gradient_accumulation_steps=64", "bn_span=1"),
        )
    )
    assert one_node.workers == 8
    assert one_node.global_batch_size == paper.global_batch_size
    shared = paper.bn_span * paper.local_batch_size
    assert one_node.bn_span * one_node.local_batch_size == shared == 128


@pytest.mark.parametrize(
    ("nodes", "settings", "span"),
    [
        (256, (), 4),
        (128, (), 2),
        (64, (), 1),
        (128, ("gradient_accumulation_steps=4",), 8),
        (8, ("gradient_accumulation_steps=8",), 1),
        (128, ("bn_span=4",), 4),
    ],
)
def test_128_images_share_batch_statistics_on_any_number_of_nodes(nodes, settings, span):
    found = resolve_configuration(Request("resnet50-64k", {"nodes": nodes}, settings))
    assert found.bn_span == span
    if "bn_span=4" not in settings:
        assert found.bn_span * found.local_batch_size == 128


def test_more_images_in_a_pass_than_share_statistics_are_refused():
    with pytest.raises(FourminError) as caught:
        resolve_configuration(Request("resnet50-64k", {"nodes": 32}))
    assert caught.value.what.startswith("256 workers cannot keep the 128 images")
    assert "each takes 256 in a pass" in caught.value.why
    assert "--set gradient_accumulation_steps=2 for 128 in a pass" in caught.value.next_step
    assert "--set bn_span=N" in caught.value.next_step
    settings = ("gradient_accumulation_steps=2",)
    assert resolve_configuration(Request("resnet50-64k", {"nodes": 32}, settings)).bn_span == 1


@pytest.mark.parametrize(
    ("allreduce", "settings", "named"),
    [
        ("ring", (), "--allreduce torus"),
        ("hybrid", ("hybrid_large=ring",), "--set hybrid_large=torus"),
        ("tuned", ('tuning=["0:torus", "1000:ring"]',), "a table without ring"),
    ],
)
def test_a_flat_ring_in_fp16_is_for_at_most_512_workers(allreduce, settings, named):
    def request(nodes, *more):
        return Request("resnet50-64k", {"nodes": nodes, "allreduce": allreduce}, settings + more)

    with pytest.raises(FourminError) as caught:
        resolve_configuration(request(128))
    assert caught.value.exit_code == 2
    assert "a flat ring of 1024 workers" in caught.value.what
    assert "up to 512" in caught.value.why
    assert named in caught.value.next_step
    assert resolve_configuration(request(64)).workers == 512
    assert resolve_configuration(request(128, "gradient_dtype=fp32")).workers == 1024


def test_a_threshold_left_to_the_model_is_a_number_in_the_plan():
    options = {"hybrid_threshold": "auto", "hybrid_large": "ring"}
    found = resolve_configuration(Request("resnet50-64k", {**options, "nodes": 64}))
    assert isinstance(found.hybrid_threshold, int)
    by_hand = {
        at: sum(
            cost_of("hierarchical" if size < at else "ring")(
                size, grouping(found), load_profile(DEFAULT_PROFILE)
            ).seconds
            for size in bucket_sizes(found)
        )
        for at in (0, 1 << 20, 1 << 40, found.hybrid_threshold)
    }
    assert by_hand[found.hybrid_threshold] == min(by_hand.values())
    with pytest.raises(FourminError, match="hybrid_threshold='often' is not of type int"):
        resolve_configuration(Request("resnet50-64k", {"hybrid_threshold": "often"}))


@pytest.mark.parametrize(
    ("threshold", "words"),
    [
        ("1048576", "hybrid takes torus for 3 buckets and hierarchical for 1 bucket"),
        ("67108864", "hybrid does not switch: it takes hierarchical for 4 buckets"),
        ("0", "hybrid does not switch: it takes torus for 4 buckets"),
    ],
)
def test_the_plan_says_where_hybrid_switches(threshold, words):
    found = resolve_configuration(
        Request("resnet50-64k", {"hybrid_threshold": threshold, "nodes": 256})
    )
    assert switching(found).startswith(words)
    assert switching(dataclasses.replace(found, allreduce="torus")) == ""


def test_a_launcher_that_reaches_other_nodes_is_not_refused(no_gpu, installed, tmp_path):
    request = Request("resnet50-64k", results_dir=tmp_path / "results")
    assert "launcher" not in refused(request, Placement(launcher="torchrun")).why


@pytest.mark.parametrize("nodes", [100, 3])
def test_workers_that_do_not_fit_name_counts_that_do(nodes):
    with pytest.raises(FourminError) as caught:
        resolve_configuration(Request("resnet50-64k", options={"nodes": nodes}))
    assert f"{nodes * 8} workers" in caught.value.what
    counts = caught.value.next_step.partition("fit: ")[2].partition(";")[0].split(", ")
    assert all(65536 % int(count) == 0 for count in counts)


def test_it_takes_no_time_and_no_torch(tmp_path):
    program = (
        "import sys\n"
        "from fourmin.base.errors import FourminError\n"
        "from fourmin.campaign.request import Placement\n"
        "from fourmin.campaign.prepare import prepare\n"
        "from fourmin.campaign.request import New, Request\n"
        "try:\n"
        "    request = Request('resnet50-64k', {'nodes': 128, 'hybrid_threshold': 'auto'})\n"
        "    prepared = prepare(New(request), Placement(launcher='local'))\n"
        "    config = prepared.configuration\n"
        "    assert (config.bn_span, config.hybrid_threshold) == (2, 0)\n"
        "    prepared.require()\n"
        "except FourminError as error:\n"
        "    assert not {'torch', 'numpy'} & set(sys.modules)\n"
        "    print(error)\n"
        "    sys.exit(error.exit_code)\n"
    )

    def refuse():
        done = subprocess.run(
            [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True
        )
        assert done.returncode == 2, done.stderr
        assert "128 nodes" in done.stdout

    assert effort(refuse, SECOND) <= SECOND
    assert list(tmp_path.iterdir()) == []


# The training step.


def nodes(monkeypatch, count=1, capabilities=("9.0",), triton=True):
    """This machine has GPUs that tests cannot have."""
    gpus(monkeypatch, count)
    monkeypatch.setattr(steps, "compute_capabilities", lambda: capabilities)
    monkeypatch.setattr(steps, "triton_installed", lambda: triton)


@pytest.mark.parametrize(
    ("preset", "has", "step", "line"),
    [
        ("tiny-imagenet", {}, "fast", "step: fast"),
        ("tiny-imagenet", {"triton": False}, "eager", "Triton is not installed"),
        ("tiny-imagenet", {"capabilities": ("7.0",)}, "eager", "one has 7.0"),
        ("resnet50-64k", {"count": 8}, "fast", "step: fast"),
        ("resnet50-8k", {"count": 8}, "fast", "step: fast"),
        ("digits", {"count": 0, "capabilities": ()}, "eager", "this run is on the cpu"),
    ],
)
def test_the_nodes_decide_the_step(installed, monkeypatch, tmp_path, preset, has, step, line):
    nodes(monkeypatch, **has)
    prepared = prepare(New(Request(preset, results_dir=tmp_path)), Placement(launcher="local"))
    assert prepared.configuration.step == plan_json(prepared)["configuration"]["step"] == step
    assert line in prepared.step
    assert prepared.step in "\n".join(plan_lines(prepared))
    assert not any("step" in one.what for one in prepared.refused)


@pytest.mark.parametrize(
    ("preset", "has", "why"),
    [
        ("digits", {"capabilities": ("7.5",)}, "one has 7.5"),
        ("digits", {"triton": False}, "Triton is not installed"),
    ],
)
def test_a_fast_step_that_cannot_run_here_is_refused(
    installed, monkeypatch, tmp_path, preset, has, why
):
    nodes(monkeypatch, **has)
    request = Request(preset, settings=("step=fast",), results_dir=tmp_path / "results")
    error = refused(request)
    assert error.what == "step=fast cannot run here"
    assert why in error.why
    assert error.next_step == "--set step=eager"
    assert list(tmp_path.iterdir()) == []


def test_without_a_survey_the_step_must_be_named(installed, monkeypatch, tmp_path):
    nodes(monkeypatch, capabilities=None)
    error = refused(Request("digits", results_dir=tmp_path / "results"))
    assert error.what == "no training step can be chosen"
    assert error.next_step == "--set step=fast or --set step=eager"
    assert list(tmp_path.iterdir()) == []
    for step in ("eager", "fast"):
        named = Request("digits", settings=(f"step={step}",), results_dir=tmp_path / "results")
        prepared = prepare(New(named), Placement(launcher="local"))
        assert prepared.refused == ()
        assert prepared.configuration.step == step


def test_a_surveyed_node_decides_for_the_others(monkeypatch):
    nodes(monkeypatch, 0, ())
    survey = Survey({"software": {}}, 8, ["8.0", "9.0"], True)
    assert Survey.from_text(f"a greeting\n{survey.to_text()}\n") == survey
    place = Place.seen("slurm", survey)
    assert resolve_configuration(Request("resnet50-8k"), place).step == "fast"
    old = dataclasses.replace(survey, capabilities=["6.1"])
    place = Place.seen("slurm", Survey.from_text(old.to_text()))
    assert resolve_configuration(Request("resnet50-8k"), place).step == "eager"


def test_a_job_that_is_submitted_decides_where_it_runs(monkeypatch, tmp_path):
    nodes(monkeypatch, 0, ())
    (tmp_path / "sbatch").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "sbatch").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    there = Placement(launcher="slurm")
    untold = prepare(New(Request("digits", results_dir=tmp_path / "results")), there)
    assert "decided where the workers run" in untold.step
    request = Request("digits", settings=("device=cuda",), results_dir=tmp_path / "results")
    prepared = prepare(New(request), there)
    assert prepared.refused == ()
    assert "decided where the workers run" in prepared.step
    assert prepared.submission is not None
    assert "--set=device=cuda" in prepared.submission.options
    assert "step=" not in " ".join(prepared.submission.options)
