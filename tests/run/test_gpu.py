"""The main job and the paper's models on GPUs: NCCL, FP16 with loss scaling, DALI's GPU decoder."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
import torch
from images import make_tree
from processes import fourmin, running
from signing import make_key

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU"),
]


def results_of(process, root: Path) -> list[dict]:
    assert process.returncode == 0, process.stderr
    assert json.loads(process.stdout.splitlines()[-1])["valid"] is True
    return [json.loads(path.read_bytes()) for path in sorted(root.glob("*/run-*/result.json"))]


def test_digits_reach_their_target_in_fp16(tmp_path: Path) -> None:
    process = fourmin(
        "run", "--practice", "--runs", "3", "--json", "--results-dir", str(tmp_path),
        state=tmp_path, timeout=280,
    )  # fmt: skip
    results = results_of(process, tmp_path)
    assert [result["status"] for result in results] == ["converged"] * 3
    configuration = results[0]["configuration"]
    assert (configuration["device"], configuration["precision"]) == ("cuda", "fp16")
    workers = configuration["procs_per_node"]
    assert workers == min(2, torch.cuda.device_count())
    for result in results:
        energy = result["energy"]
        assert energy["method"] == "nvml"
        assert energy["scope"] == ("1 GPU a node" if workers == 1 else f"{workers} GPUs a node")
        watts = energy["joules"] / (60 * result["minutes"]) / workers
        assert 20 < watts < 1500


@pytest.mark.parametrize("preset", ["resnet50-256", "alexnet-512"])
def test_two_steps_and_an_evaluation(preset: str, tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "tree", train=16, val=4)
    assert fourmin("data", "check", str(tree), state=tmp_path).returncode == 0
    workers = min(2, torch.cuda.device_count())
    process = fourmin(
        "run", "--practice", "--runs", "1", "--preset", preset, "--max-steps", "2", "--json",
        "--set", "global_batch_size=8", "--procs-per-node", str(workers),
        "--data-dir", str(tree), "--results-dir", str(tmp_path / "r"),
        state=tmp_path, timeout=280,
    )  # fmt: skip
    (result,) = results_of(process, tmp_path / "r")
    assert result["configuration"]["device"] == "cuda"
    assert len(result["first_losses"]) == 2
    assert [evaluation["samples"] for evaluation in result["evaluations"]] == [8]


@pytest.mark.parametrize("algorithm", ["native", "ring", "hierarchical", "hybrid"])
def test_every_all_reduce_trains_over_nccl(algorithm: str, tmp_path: Path) -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two CUDA GPUs")
    process = fourmin(
        "run", "--practice", "--runs", "1", "--json", "--allreduce", algorithm,
        "--max-steps", "44", "--results-dir", str(tmp_path), state=tmp_path, timeout=280,
    )  # fmt: skip
    (result,) = results_of(process, tmp_path)
    assert result["configuration"]["procs_per_node"] == 2


@pytest.mark.parametrize("step", ["eager", "fast"])
def test_a_killed_worker_goes_on_from_its_checkpoint(step: str, tmp_path: Path) -> None:
    options = ["--practice", "--runs", "1", "--set", f"step={step}"]
    with running(*options, "--results-dir", str(tmp_path), state=tmp_path) as command:
        command.wait_for(lambda e: e.get("key") == "epoch_stop" and e["metadata"]["epoch_num"] == 7)
        os.kill(command.workers()[-1], signal.SIGKILL)
        command.wait_for(lambda e: e["event"] == "run-restarting")
        output, errors = command.process.communicate(timeout=200)
    assert json.loads(output.splitlines()[-1])["valid"] is True, errors
    (path,) = tmp_path.glob("*/run-1/result.json")
    result = json.loads(path.read_bytes())
    assert result["status"] == "converged"
    (restart,) = result["restarts"]
    assert restart["epoch"] in (4, 6)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("step", ["eager", "fast"])
def test_deterministic_runs_repeat_their_bits(step: str, workers: int, tmp_path: Path) -> None:
    if torch.cuda.device_count() < workers:
        pytest.skip(f"needs {workers} CUDA GPUs")
    options = ["--set", f"step={step}", "--set", "deterministic=true", "--seed", "20181"]
    told = []
    for root in (tmp_path / "a", tmp_path / "b"):
        process = fourmin(
            "run", "--practice", "--runs", "1", "--json", *options, "--max-steps", "66",
            "--procs-per-node", str(workers), "--results-dir", str(root), state=tmp_path,
            timeout=280,
        )  # fmt: skip
        results_of(process, root)
        log = next(root.glob("*/run-1/events.log")).read_text()
        records = [json.loads(one.removeprefix(":::MLLOG ")) for one in log.splitlines()]
        states = [one["value"] for one in records if one["key"] == "state"]
        told.append([(one["elements_sha256"], one["step_loss"]) for one in states])
    assert told[0] == told[1]


@pytest.mark.parametrize("step", ["eager", "fast"])
def test_a_proof_is_replayed_on_the_same_kind_of_gpu(step: str, tmp_path: Path) -> None:
    states, results, audits = tmp_path / "states", tmp_path / "r", tmp_path / "audits"
    process = fourmin(
        "run", "--practice", "--runs", "1", "--json", "--set", f"step={step}", "--max-steps", "66",
        "--set", "deterministic=true", "--procs-per-node", "1", "--keep-states", str(states),
        "--results-dir", str(results), state=tmp_path, timeout=280,
    )  # fmt: skip
    results_of(process, results)
    (campaign,) = map(str, results.iterdir())
    auditor = ["audit", campaign, "--auditor", "aud", "--audits", str(audits)]
    asked = fourmin(*auditor, "--challenge", "--signing-key", str(make_key("aud")), state=tmp_path)
    assert asked.returncode == 0, asked.stderr
    (challenge,) = (audits / "aud").iterdir()
    proof = ["--challenge", str(challenge), "--states", str(states), "-o", str(tmp_path / "p.tar")]
    assert fourmin("prove", campaign, *proof, state=tmp_path).returncode == 0
    done = fourmin(*auditor, "--proof", str(tmp_path / "p.tar"), "--json", state=tmp_path)
    assert json.loads(done.stdout)["outcome"] == "audited", done.stdout
