"""torchrun's elastic agent on one node: how it is called, and the processes below it."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from fourmin.launch.job import JOB_VARIABLE, Job
from fourmin.recipe.configuration import Configuration
from fourmin.system.environment import DEVICE_QUEUES

OUTPUT_LIMIT = 20_000
"""Characters of the workers' output that are kept for an error message."""


def agent_command(
    configuration: Configuration, place: Sequence[str], module: str = "fourmin.training.worker"
) -> list[str]:
    """The agent's command line; `place` says where it meets the agents of other nodes, `module`
    what its workers are.
    """
    return [
        sys.executable,
        "-m",
        "torch.distributed.run",
        *place,
        f"--nproc-per-node={configuration.procs_per_node}",
        "--max-restarts=0",
        "--module",
        module,
    ]


def describe_agent(configuration: Configuration) -> str:
    """How the agent is called on each of several nodes, for people."""
    place = [
        f"--nnodes={configuration.nodes}",
        "--node-rank=PLACE",
        "--master-addr=FIRST-NODE",
        "--master-port=PORT",
    ]
    return f"  which starts there: {shlex.join(agent_command(configuration, place))}"


def agent_environment(threads: int, scratch: Path) -> dict[str, str]:
    return {
        **DEVICE_QUEUES,
        "TORCHINDUCTOR_CACHE_DIR": str(scratch / "inductor"),  # nothing is compiled in a run
        **os.environ,
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        # A folder named like one of our modules, where the user stands, must not win.
        "PYTHONSAFEPATH": "1",
        # Only messages that say what went wrong; the agent's own log is noise here.
        "TORCHELASTIC_ERROR_FILE": str(scratch / "error.json"),
        "TORCH_CPP_LOG_LEVEL": "ERROR",
        # torchrun's own folder, which it leaves behind.
        "PET_LOG_DIR": str(scratch / "torchrun"),
    }


def start_agent(command: Sequence[str], job: Job, variables: Mapping[str, str]) -> Agent:
    """Start the agent, which starts this node's workers; they read the job that is written here.

    `variables` are added to the environment.
    """
    job.write()
    variables = {JOB_VARIABLE: str(job.path), **variables}
    return spawn_agent(command, job.configuration.threads, job.scratch, variables, job.path)


def spawn_agent(
    command: Sequence[str],
    threads: int,
    scratch: Path,
    variables: Mapping[str, str],
    job: Path | None = None,
) -> Agent:
    """Start an agent whose workers have `threads` each; its files lie in `scratch`."""
    output = tempfile.TemporaryFile(dir=scratch)  # noqa: SIM115 - it lives with the agent
    process = subprocess.Popen(
        command,
        env={**agent_environment(threads, scratch), "PYTHONUNBUFFERED": "1", **variables},
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        # Ctrl-C goes to the command alone, which then ends the workers in order.
        start_new_session=True,
    )
    return Agent(process, output, job)


class Agent:
    def __init__(
        self, process: subprocess.Popen[bytes], output: IO[bytes], job: Path | None = None
    ) -> None:
        """`job` is the file by which workers are known that the agent left behind."""
        self._process = process
        self._output = output
        self._job = job

    def exit_code(self) -> int | None:
        """The agent's exit code, or None while it runs."""
        return self._process.poll()

    def wait(self) -> int:
        """Its exit code, once it has ended."""
        return self._process.wait()

    def kill(self, workers: Iterable[int]) -> None:
        """Kill the agent and everything below it, and `workers` that it may have left behind.

        What has ended may have left its number to a process of somebody else, who is spared.
        """
        family = {pid for pid in workers if self._started(pid)}
        if self._process.poll() is None:
            family |= {self._process.pid, *descendants(self._process.pid)}
        for pid in family:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()

    def _started(self, pid: int) -> bool:
        """Whether a process has the environment of this agent's job."""
        try:
            environment = Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            return False
        return f"{JOB_VARIABLE}={self._job}".encode() in environment.split(b"\0")

    def output(self) -> str:
        self._output.seek(0)
        return self._output.read().decode(errors="replace")[-OUTPUT_LIMIT:]


def descendants(pid: int) -> list[int]:
    """Process ids below `pid` that live now, from /proc."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            # The command name may hold spaces and parentheses; what follows it does not.
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            continue
        children.setdefault(parent, []).append(int(stat.parent.name))
    found, pending = [], [pid]
    while pending:
        below = children.get(pending.pop(), [])
        found.extend(below)
        pending.extend(below)
    return found
