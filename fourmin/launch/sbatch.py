"""`fourmin run` from outside of Slurm: its jobs, submitted, asked for and cancelled.

Inside a job `fourmin run` itself runs on the first node, starts one job step a run, and is the only
writer of the campaign. In the batch script every value is quoted, for sbatch or for the shell; only
the site file's own `setup` lines are shell.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from fourmin.base.errors import FourminError
from fourmin.launch.site import Site
from fourmin.launch.slurm import SlurmSite
from fourmin.launch.submit import FollowedJob, JobState, Phase
from fourmin.recipe.configuration import Configuration

SCRIPT = "job.sh"
_PLAIN = re.compile(r"[A-Za-z0-9_./:,=+@%^~-]+")
_PHASES: dict[Phase, tuple[str, ...]] = {
    "waiting": (
        "PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "RESIZING", "SUSPENDED",
    ),
    "running": ("RUNNING", "COMPLETING", "STAGE_OUT", "SIGNALING", "STOPPED"),
    "ended": ("COMPLETED", "FORGOTTEN"),
    "lost": ("NODE_FAIL", "PREEMPTED", "BOOT_FAIL"),
}  # fmt: skip


class SlurmJobs:
    """Batch jobs on a cluster that shares this host's files."""

    files_here = True

    def __init__(self, site: Site) -> None:
        self._site = site
        self.root = Path.cwd()
        self.gpus_per_node = site.section(SlurmSite).gpus_per_node or None

    def describe(self, configuration: Configuration, options: Sequence[str], folder: Path) -> str:
        """The batch script."""
        command = [sys.executable, "-m", "fourmin", "run", *options]
        command += ["--launcher", "slurm", "--json"]
        return batch_script(configuration, self._site, command, folder, self.root)

    def submit(
        self, configuration: Configuration, options: Sequence[str], folder: Path
    ) -> SlurmJob:
        script = self.describe(configuration, options, folder)
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / SCRIPT
        path.write_text(script)
        done = _slurm("sbatch", "--parsable", str(path))
        number = done.stdout.strip().partition(";")[0]
        if done.returncode or not number.isdigit():
            raise FourminError(
                "Slurm did not take the job",
                done.stderr.strip() or done.stdout.strip(),
                f"put it right in the site file or by options; the script is {path}",
            )
        return SlurmJob(number, folder)


class SlurmJob(FollowedJob):
    def __init__(self, number: str, folder: Path) -> None:
        super().__init__(f"Slurm job {number}", folder / number)
        self._number = number

    def state(self) -> JobState:
        done = _slurm("scontrol", "--oneliner", "show", "job", self._number)
        if done.returncode:
            if "Invalid job id" in done.stderr:
                return slurm_state("FORGOTTEN")
            return slurm_state("RUNNING", "no answer")
        found = dict(re.findall(r"(JobState|Reason|ExitCode)=(\S*)", done.stdout))
        code, _, number = found.get("ExitCode", "0:0").partition(":")
        ended_by = int(number) if number.isdigit() else 0
        return slurm_state(
            found.get("JobState", "UNKNOWN").partition("+")[0],
            found.get("Reason", ""),
            int(code) if int(code) or not ended_by else 128 + ended_by,
        )

    def interrupt(self) -> None:
        """SIGINT to the batch script, which the command has replaced."""
        _slurm("scancel", "--batch", "--signal=INT", self._number)

    def end(self) -> None:
        _slurm("scancel", self._number)


def slurm_state(name: str, reason: str = "", exit_code: int = 0) -> JobState:
    """A state by Slurm's name of it; one that is not known is a failure."""
    phase: Phase = "failed"
    for known, names in _PHASES.items():
        if name in names and not (known == "ended" and exit_code):
            phase = known
    return JobState(name, phase, reason, exit_code)


def _slurm(*command: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    except FileNotFoundError:
        raise FourminError(
            f"{command[0]} is not on PATH", next_step="load Slurm's module"
        ) from None
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 1, "", "no answer within 60 s")


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
