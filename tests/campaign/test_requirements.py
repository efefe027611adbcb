"""What a preset needs and this machine lacks: one message, at once, without a training stack."""

from __future__ import annotations

import subprocess
import sys

import pytest
from speed import SECOND, effort

from fourmin.base.errors import FourminError
from fourmin.campaign import prepare as preparing
from fourmin.campaign import requirements
from fourmin.campaign.placement import Placement
from fourmin.campaign.prepare import prepare, resolve_configuration
from fourmin.campaign.request import New, Request


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
    error = refused(Request("resnet50-64k", options={"nodes": 256}, results_dir=results))
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
    error = refused(Request("resnet50-8k", results_dir=tmp_path / "results"))
    assert error.what.startswith("4 things")
    assert "training needs torch, numpy, dali" in error.why
    assert "pip install 'fourmin[train]'" in error.next_step


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
        "from fourmin.campaign.placement import Placement\n"
        "from fourmin.campaign.prepare import prepare\n"
        "from fourmin.campaign.request import New, Request\n"
        "try:\n"
        "    request = Request('resnet50-64k', options={'nodes': 256})\n"
        "    prepare(New(request), Placement(launcher='local')).require()\n"
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
        assert "256 nodes" in done.stdout

    assert effort(refuse, SECOND) <= SECOND
    assert list(tmp_path.iterdir()) == []
