"""The TrainJob, and what each of its pods becomes."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from golden import Golden

from fourmin.base.errors import FourminError
from fourmin.cli import run_command
from fourmin.launch.kubernetes import job_name, trainjob
from fourmin.launch.pod import pod_command
from fourmin.launch.site import Site, parse_site
from fourmin.recipe.presets import load_preset

CLUSTER = {
    "kubernetes": {
        "namespace": "lab",
        "image": "registry.example/fourmin:1",
        "claim": "shared-data",
        "cpu": "64",
        "memory": "512Gi",
    },
    "environment": {"NCCL_IB_HCA": "mlx5"},
}
LARGE = load_preset("resnet50-64k").resolved(8, keep_workers=True)


def test_the_document_is_as_it_was(golden: Golden) -> None:
    arguments = ["--preset=resnet50-64k", "--data-dir=/workspace/imagenet"]
    document = trainjob(LARGE, parse_site(CLUSTER, "test"), arguments, "fourmin-x", "secret")
    golden.check("trainjob.json", json.dumps(document, indent=2) + "\n")


def test_what_the_cluster_must_be_told_is_asked_for() -> None:
    with pytest.raises(FourminError, match="image and a volume claim"):
        trainjob(LARGE, Site(), [], "fourmin-x", "secret")


def test_names_are_what_kubernetes_takes() -> None:
    assert job_name("resnet50-64k", "abc123") == "fourmin-resnet50-64k-abc123"
    long = job_name("A_" * 60, "abc123")
    assert len(long) <= 63
    assert set(long) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")


def test_the_first_pod_is_the_command_and_the_others_join_it() -> None:
    variables = {"PET_NODE_RANK": "0", "PET_MASTER_ADDR": "x-node-0-0.x"}
    assert pod_command(["--preset=digits"], variables) == [
        sys.executable, "-m", "fourmin", "run", "--preset=digits", "--launcher", "torchrun",
        "--address", "x-node-0-0.x:29401",
    ]  # fmt: skip
    assert pod_command(["--preset=digits"], {**variables, "PET_NODE_RANK": "3"}) == [
        sys.executable, "-m", "fourmin.launch.node", "x-node-0-0.x:29401", "--index", "3",
    ]  # fmt: skip


def test_run_writes_it_for_its_owner_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "site.toml").write_text(
        '[kubernetes]\nimage = "i"\nclaim = "c"\nmount = "/shared"\n'
    )
    run_command.run(
        launcher="kubernetes", nodes=2, procs_per_node=1, settings=["device=cpu"],
        site=Path("site.toml"),
    )  # fmt: skip
    (path,) = tmp_path.glob("fourmin-digits-*.json")
    assert path.stat().st_mode & 0o777 == 0o600
    assert f"kubectl create -f {path.name}" in capsys.readouterr().out
    secret, job = json.loads(path.read_text())["items"]
    trainer = job["spec"]["trainer"]
    assert trainer["numNodes"] == 2
    assert "--results-dir=/shared/results" in trainer["command"]
    assert trainer["env"][0]["valueFrom"]["secretKeyRef"]["name"] == secret["metadata"]["name"]
