"""Practice runs for the scripts here: how they are started, and what their event logs say."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fourmin import __version__
from fourmin.base.errors import NOT_CONVERGED
from fourmin.base.files import write_durably
from fourmin.log import keys
from fourmin.log.reader import read_log
from fourmin.log.timeline import Timeline


def practice(
    preset: str, runs: int, folder: Path, *options: str, package: Path | None = None
) -> Path:
    """Run a practice campaign in the empty `folder`; returns the campaign's folder.

    A run that diverges ends the campaign, and its log says so. `package` is a folder with the
    package to run instead of this one.
    Raises subprocess.CalledProcessError where the command fails for another reason.
    """
    command = [sys.executable, "-m", "fourmin", "run", "--practice", "--preset", preset]
    command += ["--runs", str(runs), "--results-dir", str(folder.absolute()), "--quiet", *options]
    environment = dict(os.environ)
    if package is not None:
        others = filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))
        paths = [package.absolute(), *(Path(other).absolute() for other in others)]
        environment["PYTHONPATH"] = os.pathsep.join(map(str, paths))
    done = subprocess.run(command, stdout=subprocess.DEVNULL, cwd=package, env=environment)
    if done.returncode != NOT_CONVERGED:
        done.check_returncode()
    (plan,) = folder.glob("*/campaign.json")
    return plan.parent


def as_options(settings: Mapping[str, Any]) -> list[str]:
    """Settings of a configuration as `practice` takes them."""
    return [f"--set={name}={json.dumps(value).strip(chr(34))}" for name, value in settings.items()]


def kept_in(output: Path, preset: str) -> list[dict[str, Any]]:
    """The runs that an output holds. Exits where they are another preset's or version's."""
    if not output.exists():
        return []
    document = json.loads(output.read_bytes())
    if (document["preset"], document["fourmin"]) != (preset, __version__):
        sys.exit(f"{output} holds runs of another preset or version: name another --output")
    runs: list[dict[str, Any]] = document["runs"]
    return runs


def keep(output: Path, preset: str, runs: Sequence[Mapping[str, Any]]) -> None:
    """Have an output hold these runs."""
    document = {"schema_version": 1, "fourmin": __version__, "preset": preset, "runs": runs}
    output.parent.mkdir(parents=True, exist_ok=True)
    write_durably(output, (json.dumps(document, indent=1) + "\n").encode())


def event_logs(campaign: Path) -> list[Path]:
    """The event logs of a campaign, in the order of its runs."""
    return sorted(
        campaign.glob("run-*/events.log"), key=lambda log: int(log.parent.name.split("-")[1])
    )


def accuracies(log: Path) -> list[tuple[int, float]]:
    """Epoch and accuracy of every evaluation in an event log."""
    return [
        (round(evaluation.epoch or 0), evaluation.accuracy)
        for evaluation in Timeline(read_log(log)).evaluations
        if evaluation.accuracy is not None
    ]


def epochs_to(target: float, curve: Sequence[tuple[int, float]]) -> int | None:
    """Epochs after which a run of these `accuracies` first reached `target`; None if it never."""
    return next((epoch for epoch, accuracy in curve if accuracy >= target), None)


def abort_reason(log: Path) -> str:
    """Why a run ended before its time; empty where it did not."""
    reason = Timeline(read_log(log)).value(keys.ABORT)
    return "" if reason is None else str(reason)


def was_interrupted(log: Path) -> bool:
    """Whether a run was ended by its user, which says nothing about its convergence."""
    return abort_reason(log).startswith("interrupted")


def has_ended(log: Path) -> bool:
    """Whether a run came to its end, which one that was killed did not."""
    return Timeline(read_log(log)).count(keys.RUN_STOP) > 0


def machine_of(log: Path) -> str:
    """What an event log says of the machine: its accelerators, or else its processor."""
    hardware = Timeline(read_log(log)).value(keys.SYSTEM)["hardware"]
    gpus = [f"{one['count']} x {one['model']}" for one in hardware["accelerators"]]
    processor = hardware["processor"]
    return ", ".join(gpus) or f"{processor['cpus']} cores of {processor['model']}"
