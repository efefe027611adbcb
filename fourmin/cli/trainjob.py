"""`fourmin run --launcher kubernetes`: writes the TrainJob and says how it is started."""

from __future__ import annotations

import json
import os
import secrets
from pathlib import Path

from fourmin.campaign.placement import Placement
from fourmin.campaign.prepare import Request
from fourmin.cli.output import stdout
from fourmin.launch.batch import CAMPAIGN_POINTER
from fourmin.launch.kubernetes import job_name, trainjob
from fourmin.launch.submit import JOBS_FOLDER
from fourmin.recipe.configuration import Configuration


def write_trainjob(
    placement: Placement,
    request: Request,
    existing: Path | None,
    base: str | None,
    configuration: Configuration,
) -> None:
    """Write it into this folder, readable by its owner alone: it holds the token."""
    name = job_name(configuration.preset, secrets.token_hex(3))
    text = trainjob_text(
        placement, request, existing, base, configuration, name, secrets.token_hex(16)
    )
    path = Path(f"{name}.json")
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text + "\n")
    console = stdout()
    console.print(f"written: {path}")
    console.print(f"next: kubectl create -f {path}; kubectl logs -f -l jobset.sigs.k8s.io/"
                  f"jobset-name={name} shows its progress")  # fmt: skip


def trainjob_text(
    placement: Placement,
    request: Request,
    existing: Path | None,
    base: str | None,
    configuration: Configuration,
    name: str = "fourmin-NAME",
    token: str = "TOKEN",
) -> str:
    """The document. Relative paths are taken below the shared volume's mount."""
    mount = Path(placement.site.kubernetes.mount)
    arguments = placement.arguments(request, existing, base, mount)
    results = mount / (request.results_dir if existing is None else existing.parent)
    pointer = results / JOBS_FOLDER / f"{name}.{CAMPAIGN_POINTER}"
    document = trainjob(
        configuration,
        placement.site,
        [*arguments, f"--campaign-file={pointer}"],
        name,
        token,
    )
    return json.dumps(document, indent=2)
