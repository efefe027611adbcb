"""Launchers: they place and start workers, and know nothing of what the workers do.

A lazy map from name to module; every launcher is a class with the shape of `Launcher`. Where
the workers of a run live is the launcher's business alone: a `Launched` run speaks through the
same queue of messages whether its workers are on this machine or on 256 nodes.
"""

from __future__ import annotations

import importlib
import os
import queue
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, cast

from fourmin.base.errors import FourminError, list_names
from fourmin.launch.control import Message
from fourmin.launch.job import Job
from fourmin.launch.site import Site
from fourmin.recipe.configuration import Configuration
from fourmin.system.survey import Survey

_LAUNCHERS = {
    "local": "fourmin.launch.local:LocalLauncher",
    "torchrun": "fourmin.launch.torchrun:TorchrunLauncher",
    "slurm": "fourmin.launch.slurm:SlurmLauncher",
}
KUBERNETES = "kubernetes"
"""Starts nothing from here: `fourmin.launch.kubernetes` writes what a cluster starts."""

LAUNCHER_NAMES = ("auto", *_LAUNCHERS, KUBERNETES)


class Launched(Protocol):
    """Workers that were started."""

    messages: queue.Queue[Message]
    """What the workers, and whatever watches them, said."""

    def go(self, rank: int) -> None:
        """Answer a worker's `ready`."""

    def exit_code(self) -> int | None:
        """The exit code of whatever watches the workers, or None while it runs."""

    def kill(self, workers: Iterable[int]) -> None:
        """End the watcher and every worker now, also those named by their process ids."""

    def output(self) -> str:
        """What the workers printed so far; the end of it, if it is long."""


class Launcher(Protocol):
    """Starts the workers of one run after another."""

    def describe(self, configuration: Configuration) -> str:
        """What `start` would run, as text for a shell."""

    def survey(self) -> Survey | None:
        """What a node has where the workers run; None where that is this Python, here."""

    def start(self, job: Job) -> Launched:
        """Start all workers of `job`. Raises FourminError where a node is not fit for it."""

    def close(self) -> None:
        """Let go of the nodes; no further run follows."""


@dataclass(frozen=True)
class Surroundings:
    """What a launcher may use beside the job: the site's settings, and a way to tell the user."""

    site: Site = field(default_factory=Site)
    say: Callable[[str], None] = lambda text: None
    address: str = ""
    """Where other nodes reach this host, with the launcher torchrun; '' to find out."""
    port: int = 0
    """The TCP port there; 0: any that is free."""


def load_launcher(name: str, surroundings: Surroundings | None = None) -> Launcher:
    """The launcher of a name. Raises FourminError for unknown names."""
    target = _LAUNCHERS.get(name)
    if target is None:
        raise _unknown(name)
    module, _, attribute = target.partition(":")
    return cast(
        Launcher,
        getattr(importlib.import_module(module), attribute)(surroundings or Surroundings()),
    )


@dataclass(frozen=True)
class Choice:
    """A launcher's name, why it is that one, and whether a job has to be submitted first."""

    name: str
    reason: str
    submits: bool


def choose_launcher(
    wanted: str, nodes: int, environment: Mapping[str, str] | None = None
) -> Choice:
    """Resolve `auto`, and say whether this process stands outside the cluster's allocation.

    Raises FourminError for an unknown name.
    """
    variables = os.environ if environment is None else environment
    job = variables.get("SLURM_JOB_ID")
    if wanted == "auto":
        if job:
            return Choice("slurm", f"inside Slurm job {job}", submits=False)
        if nodes > 1 and shutil.which("sbatch", path=variables.get("PATH")):
            return Choice("slurm", f"{nodes} nodes, and sbatch is here", submits=True)
        return Choice("local", "this machine", submits=False)
    if wanted not in LAUNCHER_NAMES:
        raise _unknown(wanted)
    return Choice(wanted, "as asked for", submits=wanted == "slurm" and not job)


def _unknown(name: str) -> FourminError:
    return FourminError(f"no launcher {name!r}", next_step=f"known: {list_names(LAUNCHER_NAMES)}")
