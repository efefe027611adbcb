"""The TrainJob, and what each of its pods becomes."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from golden import Golden
from in_process import fourmin_run

from fourmin.base.errors import FourminError
from fourmin.launch.kubernetes import job_name, trainjob
from fourmin.launch.pod import pod_command
from fourmin.launch.site import Site, parse_site
from fourmin.recipe.presets import PRESETS, load_preset

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
QUANTITY = r"^[+-]?(\d+(\.\d*)?|\.\d+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?\d+)?$"


def some(required: str = "", **properties: Any) -> dict[str, Any]:
    """An object of these fields and no others: the API server drops unknown ones silently."""
    return {
        "type": "object", "properties": properties, "additionalProperties": False,
        "required": required.split(),
    }  # fmt: skip


def text(longest: int | None = None, shortest: int = 0) -> dict[str, Any]:
    limit = {} if longest is None else {"maxLength": longest}
    return {"type": "string", "minLength": shortest, **limit}


def many(items: dict[str, Any], most: int) -> dict[str, Any]:
    return {"type": "array", "items": items, "maxItems": most}


def quantities() -> dict[str, Any]:
    return {"type": "object", "additionalProperties": {"type": "string", "pattern": QUANTITY}}


def count(least: int) -> dict[str, Any]:
    return {"type": "integer", "minimum": least, "maximum": 2**31 - 1}


# Names, types, limits and required fields of what a TrainJob may say, as far as it could concern
# this project; restated from Kubeflow Trainer v2.2.0 with the limits of v2.3.0 where those are
# narrower (kubeflow/trainer, manifests/base/crds/trainer.kubeflow.org_trainjobs.yaml, Apache-2.0).
POD = some(
    volumes={"type": "array", "items": some(
        "name", name=text(),
        persistentVolumeClaim=some("claimName", claimName=text(), readOnly={"type": "boolean"}),
    )},
    containers={"type": "array", "items": some(
        "name", name=text(), env=many({}, 128),
        volumeMounts=many(some("mountPath name", mountPath=text(), name=text()), 128),
    )},
    nodeSelector={"type": "object"}, serviceAccountName=text(),
)  # fmt: skip
TRAINJOB = some(
    "apiVersion kind metadata spec",
    apiVersion={"const": "trainer.kubeflow.org/v1alpha1"},
    kind={"const": "TrainJob"},
    metadata=some("name", name={"type": "string", "pattern": r"^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$"},
                  namespace=text()),
    spec=some(
        "runtimeRef",
        runtimeRef=some("name", name=text(253, 1), apiGroup=text(253), kind=text(253)),
        suspend={"type": "boolean"},
        trainer=some(
            image=text(500),
            command=many(text(65536), 128),
            args=many(text(65536), 128),
            env=many(some("name", name=text(), value=text(), valueFrom=some(
                secretKeyRef=some("key", key=text(), name=text(), optional={"type": "boolean"}),
            )), 128),
            numNodes=count(0),
            numProcPerNode=count(1),
            resourcesPerNode=some(limits=quantities(), requests=quantities()),
        ),
        runtimePatches=many(some(
            "manager",
            manager=text(253, 1),
            trainingRuntimeSpec=some(template=some(spec=some(replicatedJobs=many(some(
                "name",
                name=text(253, 1),
                template=some(spec=some(template=some(spec=POD))),
            ), 100)))),
        ), 16),
    ),
)  # fmt: skip
LARGE = load_preset("resnet50-64k").resolved(8, keep_workers=True)


def test_the_document_is_as_it_was(golden: Golden) -> None:
    arguments = ["--preset=resnet50-64k", "--data-dir=/workspace/imagenet"]
    document = trainjob(LARGE, parse_site(CLUSTER, "test"), arguments, "fourmin-x", "secret")
    golden.check("trainjob.json", json.dumps(document, indent=2) + "\n")


def problems(document: dict[str, Any]) -> list[str]:
    validator = jsonschema.Draft202012Validator(TRAINJOB)
    return [error.message for error in validator.iter_errors(document)]


@pytest.mark.parametrize("preset", [*PRESETS])
@pytest.mark.parametrize("site", [CLUSTER, {"kubernetes": {"image": "i", "claim": "c"}}])
def test_the_document_is_what_trainer_s_schema_takes(preset: str, site: dict[str, Any]) -> None:
    configuration = load_preset(preset).resolved(8, keep_workers=True)
    arguments = [f"--preset={preset}", *(f"--set=x={number}" for number in range(100))]
    name = job_name(preset, "abc123")
    document = trainjob(configuration, parse_site(site, "test"), arguments, name, "secret")
    _, job = document["items"]
    assert problems(job) == []
    # Each of these would be dropped, or refused, by the API server.
    del job["spec"]["runtimePatches"][0]["manager"]
    job["spec"]["trainer"]["numNodes"] = "2"
    job["spec"]["podTemplateOverrides"] = []
    assert len(problems(job)) == 3


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
    fourmin_run(
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
