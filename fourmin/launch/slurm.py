"""Inside a Slurm allocation: srun places one process on each node, which starts the workers.

The command runs on the batch node (or where salloc was called) and is the only writer of the
ledger. Nodes take their place, and so ranks theirs, in Slurm's order, which follows the network
where Slurm knows it.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fourmin.base.errors import FourminError
from fourmin.base.processes import Scratch
from fourmin.launch import Surroundings, network
from fourmin.launch.agent import OUTPUT_LIMIT, describe_agents
from fourmin.launch.hub import Hub, Step
from fourmin.launch.job import Job
from fourmin.launch.nodes import NodesRun
from fourmin.launch.site import Site
from fourmin.launch.trial import Trial
from fourmin.recipe.configuration import Configuration
from fourmin.system.survey import Survey


@dataclass(frozen=True)
class SlurmSite:
    """`[slurm]`: how jobs are submitted, and how workers are bound inside them."""

    partition: str = ""
    account: str = ""
    time_limit: str = ""
    """As sbatch's --time takes it, such as 04:00:00."""
    gpus_per_node: int = 0
    """0: as many as there are workers on a node, where they train on GPUs."""
    cpus_per_task: int = 0
    """0: the whole node (--exclusive)."""
    cpu_bind: str = "none"
    gpu_bind: str = ""
    modules: tuple[str, ...] = ()
    setup: tuple[str, ...] = ()
    """Lines of shell that run before anything else in a job."""
    directives: tuple[str, ...] = ()
    """Further options of sbatch, such as --qos=high."""
    srun: tuple[str, ...] = ()
    """Further options of srun, such as --mpi=none."""


class SlurmLauncher:
    """One job step a run."""

    def __init__(self, surroundings: Surroundings) -> None:
        self._around, self._site = surroundings, surroundings.site
        self._left_out: frozenset[str] = frozenset()

    def describe(self, configuration: Configuration) -> str:
        """The srun line of every run; the port is chosen at its start."""
        srun = self._srun(configuration, ["BATCH-NODE"], "PORT")
        return f"{shlex.join(srun)}\n{describe_agents(configuration)}"

    def survey(self, nodes: int) -> Survey | None:
        """Ask a node, where workers run in a container or this host is none of the nodes."""
        _allocated(nodes)
        if not self._site.container.runtime and "SLURMD_NODENAME" in os.environ:
            return None
        command = [*_on_nodes(1, self._site, gpus=True), "-m", "fourmin.system.survey"]
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
        )
        try:
            return Survey.from_text(done.stdout)
        except ValueError:
            said = done.stderr.strip() or done.stdout.strip()
            raise FourminError(
                "a node of the allocation could not be looked at",
                "\n".join([shlex.join(command), *said.splitlines()[-8:]]),
                "the image, or that node's Python, must have this fourmin installed",
            ) from None

    def try_nodes(self, configuration: Configuration) -> list[Trial]:
        """All of the allocation, in a step of their own."""
        with Scratch() as scratch:
            step = self._gather(configuration, _allocated(1), scratch)
            try:
                return step.hub.try_nodes(configuration)
            finally:
                step.end()

    def leave_out(self, names: Sequence[str]) -> None:
        self._left_out = frozenset(names)

    def start(self, job: Job) -> SlurmRun:
        """Start the workers of `job` in a step of this allocation.

        Raises FourminError where there is none, it is too small, or a node does not come.
        """
        nodes = job.configuration.nodes
        names = _allocated(nodes)
        fit = tuple(name for name in names if name not in self._left_out)[:nodes]
        step = self._gather(job.configuration, fit, job.scratch)
        try:
            return SlurmRun(step.hub.start(job), step)
        except BaseException:
            step.give_up()
            raise

    def close(self) -> None:
        """Nothing outlives a run."""

    def _gather(self, configuration: Configuration, names: tuple[str, ...], scratch: Path) -> Step:
        """Start a process on each of these nodes, and wait for all of them."""
        hub = Hub(len(names), names, self._around)
        output = tempfile.TemporaryFile(dir=scratch)  # noqa: SIM115 - it lives with the step
        srun = self._srun(configuration, network.reachable_names(), str(hub.port), names)
        return Step(hub, srun, "srun", self._around.timeouts, output)

    def _srun(
        self,
        configuration: Configuration,
        addresses: Sequence[str],
        port: str,
        names: Sequence[str] = (),
    ) -> list[str]:
        command = srun_command(configuration, self._site, addresses, port, names)
        return [*command, *self._around.timeouts.options()]


class SlurmRun:
    """The workers of one run, and the job step they are in."""

    def __init__(self, run: NodesRun, step: Step) -> None:
        self._run, self._step = run, step
        self.messages, self.go = run.messages, run.go

    def exit_code(self) -> int | None:
        """The agents' exit code, or srun's if that ends first; None while they run."""
        code = self._run.exit_code()
        return self._step.process.poll() if code is None else code

    def kill(self) -> None:
        self._run.kill()
        self._step.end()

    def output(self) -> str:
        """What srun said, and what the nodes printed."""
        return f"{self._step.printed()}\n{self._run.output()}"[-OUTPUT_LIMIT:]


def srun_command(
    configuration: Configuration,
    site: Site,
    addresses: Sequence[str],
    port: str,
    names: Sequence[str] = (),
) -> list[str]:
    """The command line that starts one `fourmin.launch.node` on each of so many nodes.

    `names`: those of the allocation on which; without them Slurm chooses.
    """
    nodes = len(names) or configuration.nodes
    python = _on_nodes(nodes, site, gpus=configuration.device == "cuda")
    if names:
        python.insert(1, f"--nodelist={','.join(names)}")
    return [*python, "-m", "fourmin.launch.node", f"{','.join(addresses)}:{port}"]


def _on_nodes(nodes: int, site: Site, *, gpus: bool) -> list[str]:
    """The start of a command line: one Python on each of so many nodes, in the site's container."""
    slurm, container = site.section(SlurmSite), site.container
    command = ["srun", f"--nodes={nodes}", f"--ntasks={nodes}", "--ntasks-per-node=1"]
    # Also from within another step, such as an interactive shell's.
    command += ["--overlap", "--export=ALL", "--unbuffered", f"--cpu-bind={slurm.cpu_bind}"]
    if slurm.cpus_per_task:
        # Since Slurm 22.05 srun does not take it from the job.
        command.append(f"--cpus-per-task={slurm.cpus_per_task}")
    if slurm.gpu_bind:
        command.append(f"--gpu-bind={slurm.gpu_bind}")
    command += slurm.srun
    if not container.runtime:
        return [*command, sys.executable]
    if container.runtime == "enroot":
        command.append(f"--container-image={container.image}")
        if container.mounts:
            command.append(f"--container-mounts={','.join(container.mounts)}")
        return [*command, *container.options, container.python]
    command += ["apptainer", "exec", *(["--nv"] if gpus else [])]
    command += [f"--bind={mount}" for mount in container.mounts]
    return [*command, *container.options, container.image, container.python]


def _allocated(nodes: int) -> tuple[str, ...]:
    """Names of the allocation's nodes. Raises FourminError where they are too few."""
    if "SLURM_JOB_ID" not in os.environ:
        raise FourminError(
            "this process is in no Slurm allocation",
            "SLURM_JOB_ID is not set",
            "`fourmin run --launcher slurm` from a host with sbatch, or inside salloc",
        )
    if shutil.which("srun") is None:
        raise FourminError("srun is not on PATH", next_step="load Slurm's module")
    listed = os.environ.get("SLURM_JOB_NODELIST", "")
    done = subprocess.run(
        ["scontrol", "show", "hostnames", listed], capture_output=True, text=True, check=False
    )
    names = tuple(done.stdout.split())
    have = int(os.environ.get("SLURM_JOB_NUM_NODES") or len(names))
    if have < nodes:
        raise FourminError(
            f"the run needs {nodes} nodes, the allocation has {have}",
            next_step=f"--nodes {have}, or a larger allocation",
        )
    return names
