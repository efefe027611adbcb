"""A TrainJob of Kubeflow Trainer v2 (trainer.kubeflow.org/v1alpha1), as JSON, which is YAML too.

Nothing is started from here: `kubectl create -f` does that. Every pod runs `fourmin.launch.pod`;
the first becomes the command, with the campaign on a volume that all pods share, and the others
join it. The token by which they know each other is a Secret in the same file.
"""

from __future__ import annotations

import base64
import json
import os
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fourmin.base.errors import FourminError
from fourmin.launch.site import Site
from fourmin.launch.wire import TOKEN_VARIABLE
from fourmin.recipe.configuration import Configuration

API_VERSION = "trainer.kubeflow.org/v1alpha1"
VOLUME = "shared"
_LONGEST_NAME = 63


@dataclass(frozen=True)
class KubernetesSite:
    """`[kubernetes]`: what a TrainJob needs to know of the cluster."""

    namespace: str = ""
    runtime: str = "torch-distributed"
    image: str = ""
    gpu_resource: str = "nvidia.com/gpu"
    cpu: str = ""
    memory: str = ""
    claim: str = ""
    """A PersistentVolumeClaim that all nodes share, for data and results."""
    mount: str = "/workspace"


class TrainJobs:
    """TrainJobs for a cluster whose shared volume this host need not see."""

    files_here = False
    gpus_per_node = None

    def __init__(self, site: Site) -> None:
        self._site = site
        self.root = Path(site.section(KubernetesSite).mount)

    def describe(
        self,
        configuration: Configuration,
        options: Sequence[str],
        folder: Path,
        token: str = "TOKEN",
    ) -> str:
        """The document. Its names end as the job's folder does."""
        name = job_name(configuration.preset, folder.name[-6:].lower())
        return json.dumps(trainjob(configuration, self._site, options, name, token), indent=2)

    def submit(self, configuration: Configuration, options: Sequence[str], folder: Path) -> str:
        """Write it into this folder, readable by its owner alone: it holds the token."""
        text = self.describe(configuration, options, folder, secrets.token_hex(16))
        name = json.loads(text)["items"][0]["metadata"]["name"]
        path = Path(f"{name}.json")
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(text + "\n")
        shows = f"kubectl logs -f -l jobset.sigs.k8s.io/jobset-name={name} shows its progress"
        return f"written: {path}\nnext: kubectl create -f {path}; {shows}"


def trainjob(
    configuration: Configuration, site: Site, arguments: Sequence[str], name: str, token: str
) -> dict[str, Any]:
    """A List of the Secret and the TrainJob. `arguments` are those of the command in the pod.

    Raises FourminError where the site file lacks what a cluster must be told.
    """
    cluster = site.section(KubernetesSite)
    if not cluster.image or not cluster.claim:
        raise FourminError(
            "a TrainJob needs an image and a volume claim",
            "the image has fourmin installed; the claim is shared by all nodes",
            "image and claim under [kubernetes] in the site file; see docs/hpc.md",
        )
    metadata = {"name": name, **({"namespace": cluster.namespace} if cluster.namespace else {})}
    gpus = str(configuration.procs_per_node) if configuration.device == "cuda" else ""
    wanted = {"cpu": cluster.cpu, "memory": cluster.memory, cluster.gpu_resource: gpus}
    limits = {resource: amount for resource, amount in wanted.items() if amount}
    trainer = {
        "image": cluster.image,
        "command": ["python3", "-m", "fourmin.launch.pod", *arguments],
        "env": [
            {
                "name": TOKEN_VARIABLE,
                "valueFrom": {"secretKeyRef": {"name": name, "key": "token"}},
            },
            *({"name": key, "value": value} for key, value in site.environment.items()),
        ],
        "numNodes": configuration.nodes,
        "numProcPerNode": configuration.procs_per_node,
        **({"resourcesPerNode": {"limits": limits}} if limits else {}),
    }
    job = {
        "apiVersion": API_VERSION,
        "kind": "TrainJob",
        "metadata": metadata,
        "spec": {
            "runtimeRef": {"name": cluster.runtime},
            "trainer": trainer,
            "runtimePatches": [
                {
                    "manager": "fourmin",
                    "trainingRuntimeSpec": _patch(cluster.claim, cluster.mount),
                }
            ],
        },
    }
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": metadata,
        "data": {"token": base64.b64encode(token.encode()).decode()},
    }
    return {"apiVersion": "v1", "kind": "List", "items": [secret, job]}


def job_name(preset: str, suffix: str) -> str:
    """A name that Kubernetes takes: lower case letters, digits and hyphens."""
    middle = re.sub(r"[^a-z0-9]+", "-", preset.lower()).strip("-")
    return f"fourmin-{middle[: _LONGEST_NAME - 9 - len(suffix)]}-{suffix}"


def _patch(claim: str, mount: str) -> Mapping[str, Any]:
    """The shared volume, in the pods of the runtime's replicated job `node`."""
    pod = {
        "volumes": [{"name": VOLUME, "persistentVolumeClaim": {"claimName": claim}}],
        "containers": [
            {"name": "node", "volumeMounts": [{"name": VOLUME, "mountPath": mount}]},
        ],
    }
    template = {"spec": {"template": {"spec": pod}}}
    return {"template": {"spec": {"replicatedJobs": [{"name": "node", "template": template}]}}}
