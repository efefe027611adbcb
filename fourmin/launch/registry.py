"""Which launchers there are, by name. Their classes are imported when they are needed."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

from fourmin.base.errors import unknown


@dataclass(frozen=True)
class Kind:
    """One launcher; classes are named `module:Class`."""

    starts: str = ""
    """Its `Launcher`; '' where workers are never started from here."""
    submits: str = ""
    """Its `Submitter`, where the command itself is sent to a cluster first."""
    section: str = ""
    """The dataclass of its section in the site file."""
    title: str = ""
    """What its cluster is called."""
    program: str = ""
    """What submits; where it is on PATH, `auto` takes this launcher for several nodes."""
    inside: str = ""
    """The variable that its jobs have: there it starts workers and submits nothing."""
    one_node: bool = False
    """Whether it starts workers on this machine only."""


LAUNCHERS = {
    "local": Kind("fourmin.launch.local:LocalLauncher", one_node=True),
    "torchrun": Kind("fourmin.launch.torchrun:TorchrunLauncher"),
    "slurm": Kind(
        "fourmin.launch.slurm:SlurmLauncher",
        submits="fourmin.launch.sbatch:SlurmJobs",
        section="fourmin.launch.slurm:SlurmSite",
        title="Slurm",
        program="sbatch",
        inside="SLURM_JOB_ID",
    ),
    "kubernetes": Kind(
        submits="fourmin.launch.kubernetes:TrainJobs",
        section="fourmin.launch.kubernetes:KubernetesSite",
        title="Kubernetes",
    ),
}
LAUNCHER_NAMES = ("auto", *LAUNCHERS)


def kind_of(name: str) -> Kind:
    """The launcher of a name. Raises FourminError for unknown names."""
    if name not in LAUNCHERS:
        raise unknown(f"no launcher {name!r}", name, LAUNCHER_NAMES)
    return LAUNCHERS[name]


def imported(target: str) -> Any:
    """The class that `module:Class` names."""
    module, _, attribute = target.partition(":")
    return getattr(importlib.import_module(module), attribute)
