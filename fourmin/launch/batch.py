"""The batch script of a Slurm job: what is asked of sbatch, and what runs on the first node.

Inside it `fourmin run` itself runs, starts one job step a run, and is the only writer of the
campaign. Every value is quoted, for sbatch or for the shell; only the site file's own `setup`
lines are shell.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from fourmin.base.errors import FourminError
from fourmin.launch.site import Site
from fourmin.launch.slurm import SlurmSite
from fourmin.recipe.configuration import Configuration

_PLAIN = re.compile(r"[A-Za-z0-9_./:,=+@%^~-]+")


def batch_script(
    configuration: Configuration,
    site: Site,
    arguments: Sequence[str],
    folder: Path,
    working_directory: Path,
) -> str:
    """The whole script. `arguments` are those of the python that runs inside it.

    What it prints goes to `<job>.out` and `<job>.err` in `folder`. Raises FourminError for a
    value that sbatch could not take as it is.
    """
    slurm = site.section(SlurmSite)
    options = [
        f"--job-name=fourmin-{configuration.preset}",
        f"--nodes={configuration.nodes}",
        "--ntasks-per-node=1",
    ]
    if slurm.cpus_per_task:
        options.append(f"--cpus-per-task={slurm.cpus_per_task}")
    else:
        options.append("--exclusive")
    if configuration.device == "cuda":
        options.append(f"--gpus-per-node={slurm.gpus_per_node or configuration.procs_per_node}")
    for name, value in (
        ("partition", slurm.partition),
        ("account", slurm.account),
        ("time", slurm.time_limit),
    ):
        if value:
            options.append(f"--{name}={value}")
    # A percent sign begins a pattern there.
    place = str(folder).replace("%", "%%")
    options += [
        f"--chdir={working_directory}",
        f"--output={place}/%j.out",
        f"--error={place}/%j.err",
        # A job that is requeued goes on in the same files.
        "--open-mode=append",
        "--requeue",
        *slurm.directives,
    ]
    lines = ["#!/bin/bash", *(f"#SBATCH {directive(option)}" for option in options), ""]
    lines += slurm.setup
    lines += [f"module load {shlex.quote(module)}" for module in slurm.modules]
    lines += [f"export {name}={shlex.quote(value)}" for name, value in site.environment.items()]
    # Replaces the shell, so that a signal to the batch script reaches the command.
    lines.append(f"exec {shlex.join(arguments)}")
    return "\n".join(lines) + "\n"


def directive(option: str) -> str:
    """An option as an #SBATCH line takes it: quoted where sbatch would split or cut it.

    Raises FourminError for what is no option or cannot be quoted.
    """
    name, separator, value = option.partition("=")
    if not re.fullmatch(r"--?[A-Za-z][A-Za-z0-9-]*", name):
        raise FourminError(
            f"{option!r} is no option of sbatch", next_step="write it as --name=value"
        )
    if not separator or _PLAIN.fullmatch(value):
        return option
    if not value.isprintable() or '"' in value or "\\" in value:
        raise FourminError(
            f"sbatch cannot take {name}={value!r}",
            "quotes, backslashes and control characters have no place in its directives",
        )
    return f'{name}="{value}"'
