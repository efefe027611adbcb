"""Launchers: they place and start workers, and know nothing of what the workers do.

A lazy map from name to module; every launcher is a class with the shape of `Launcher`.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import Protocol, cast

from fourmin.config import Configuration
from fourmin.errors import FourminError, list_names
from fourmin.launch.job import Job

_LAUNCHERS = {"local": "fourmin.launch.local:LocalLauncher"}

LAUNCHER_NAMES = ("auto", *_LAUNCHERS)


class Launched(Protocol):
    """Workers that were started."""

    def exit_code(self) -> int | None:
        """The exit code of whatever watches the workers, or None while it runs."""

    def kill(self, workers: Iterable[int]) -> None:
        """End the watcher and every worker now, also those named by their process ids."""

    def output(self) -> str:
        """What the workers printed so far; the end of it, if it is long."""


class Launcher(Protocol):
    """Starts the workers of one run."""

    def command(self, configuration: Configuration) -> list[str]:
        """The command line that `start` runs."""

    def start(self, job: Job) -> Launched:
        """Start all workers of `job`."""


def load_launcher(name: str) -> Launcher:
    """The launcher of a name; `auto` is the local one. Raises FourminError for unknown names."""
    target = _LAUNCHERS.get("local" if name == "auto" else name)
    if target is None:
        raise FourminError(
            f"no launcher {name!r}", next_step=f"known: {list_names(LAUNCHER_NAMES)}"
        )
    module, _, attribute = target.partition(":")
    return cast(Launcher, getattr(importlib.import_module(module), attribute)())
