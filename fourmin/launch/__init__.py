"""Launchers: they place and start workers, and know nothing of what the workers do.

Every launcher is a class with the shape of `Launcher`, named in `registry`. Where the workers of a
run live is the launcher's business alone: a `Launched` run speaks through the same queue of
messages whether its workers are on this machine or on 256 nodes. Where a cluster stands between,
a `Submitter` first sends the command itself there.
"""

from __future__ import annotations

import os
import queue
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

from fourmin.launch.registry import LAUNCHERS, imported, kind_of
from fourmin.launch.site import Site
from fourmin.launch.timeouts import Timeouts

if TYPE_CHECKING:  # any command imports this package for the launchers' names
    from fourmin.launch.control import ControlMessage
    from fourmin.launch.job import Job
    from fourmin.launch.submit import FollowedJob
    from fourmin.launch.trial import Trial
    from fourmin.recipe.configuration import Configuration
    from fourmin.system.survey import Survey


class Launched(Protocol):
    """Workers that were started."""

    messages: queue.Queue[ControlMessage]
    """What the workers, and whatever watches them, said."""

    def go(self, rank: int) -> None:
        """Answer a worker's `ready`."""

    def exit_code(self) -> int | None:
        """The exit code of whatever watches the workers, or None while it runs."""

    def kill(self) -> None:
        """End the watcher and every worker now."""

    def output(self) -> str:
        """What the workers printed so far; the end of it, if it is long."""


class Launcher(Protocol):
    """Starts the workers of one run after another."""

    def describe(self, configuration: Configuration) -> str:
        """What `start` would run, as text for a shell."""

    def survey(self, nodes: int) -> Survey | None:
        """What a node has where the workers run; None where that is this Python, here.

        Raises FourminError where so many nodes cannot be had, or none answers.
        """

    def try_nodes(self, configuration: Configuration) -> list[Trial]:
        """How each node that there is for the runs does by itself; [] where that is one.

        Raises FourminError where a node does not come or cannot be tried.
        """

    def leave_out(self, names: Sequence[str]) -> None:
        """Start no workers on these nodes; as many as a run needs are left."""

    def start(self, job: Job) -> Launched:
        """Start all workers of `job`. Raises FourminError where a node is not fit for it."""

    def close(self) -> None:
        """Let go of the nodes; no further run follows."""


class Submitter(Protocol):
    """Sends `fourmin run` to a cluster. It is made from the site's settings."""

    root: Path
    """Where relative paths of that command lie."""
    files_here: bool
    """Whether its files are those of this host."""
    gpus_per_node: int | None
    """How many a node has; None where the site does not say."""

    def describe(self, configuration: Configuration, options: Sequence[str], folder: Path) -> str:
        """What `submit` sends: `fourmin run` with `options`, the job's files in `folder`.

        Raises FourminError for what the cluster could not take.
        """

    def submit(
        self, configuration: Configuration, options: Sequence[str], folder: Path
    ) -> FollowedJob | str:
        """Send it. Text instead of a job says what the user is to do, and nobody can follow it.

        Raises FourminError with the cluster's own words where it does not take it.
        """


@dataclass(frozen=True)
class Surroundings:
    """What a launcher may use beside the job: the site's settings, and a way to tell the user."""

    site: Site = field(default_factory=Site)
    say: Callable[[str], None] = lambda text: None
    address: str = ""
    """Where other nodes reach this host, with the launcher torchrun; '' to find out."""
    port: int = 0
    """The TCP port there; 0: any that is free."""
    timeouts: Timeouts = field(default_factory=Timeouts)


def load_launcher(name: str, surroundings: Surroundings | None = None) -> Launcher | None:
    """The launcher of a name; None where no workers are started from here.

    Raises FourminError for unknown names.
    """
    target = kind_of(name).starts
    return cast(Launcher, imported(target)(surroundings or Surroundings())) if target else None


def load_submitter(name: str, site: Site) -> Submitter:
    return cast(Submitter, imported(kind_of(name).submits)(site))


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
    if wanted != "auto":
        kind = kind_of(wanted)
        inside = kind.inside in variables
        return Choice(wanted, "as asked for", submits=bool(kind.submits) and not inside)
    for name, kind in LAUNCHERS.items():
        if kind.inside in variables:
            reason = f"inside {kind.title} job {variables[kind.inside]}"
            return Choice(name, reason, submits=False)
    for name, kind in LAUNCHERS.items():
        if nodes > 1 and kind.program and shutil.which(kind.program, path=variables.get("PATH")):
            return Choice(name, f"{nodes} nodes, and {kind.program} is here", submits=True)
    return Choice("local", "this machine", submits=False)
