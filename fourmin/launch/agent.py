"""torchrun's elastic agent on one node: the process that forks it, and what is below it."""

from __future__ import annotations

import ctypes
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from fourmin.base.processes import Scratch
from fourmin.launch.job import JOB_VARIABLE, Job
from fourmin.recipe.configuration import Configuration
from fourmin.system.environment import DEVICE_QUEUES

OUTPUT_LIMIT = 20_000
"""Characters of the workers' output that are kept for an error message."""
AGENT_MODULE = "fourmin.training.agent"
_DEATH_SIGNAL = 1  # of linux/prctl.h
LOOKS_EVERY = 0.02
"""Seconds between two looks at what is being ended."""


def agent_arguments(workers: int, place: Sequence[str], module: str) -> list[str]:
    """torchrun's arguments; `place` says where the agent meets those of other nodes, `module` what
    its workers are.
    """
    return [*place, f"--nproc-per-node={workers}", "--max-restarts=0", "--module", module]


def worker_arguments(configuration: Configuration, place: Sequence[str]) -> list[str]:
    """Those of a run."""
    return agent_arguments(configuration.procs_per_node, place, "fourmin.training.worker")


def describe_agent(configuration: Configuration, place: Sequence[str]) -> str:
    """How an agent is called, as text for a shell."""
    return shlex.join([sys.executable, "-m", AGENT_MODULE, *worker_arguments(configuration, place)])


def describe_agents(configuration: Configuration) -> str:
    """How the agent is called on each of several nodes, for people."""
    place = [
        f"--nnodes={configuration.nodes}",
        "--node-rank=PLACE",
        "--master-addr=FIRST-NODE",
        "--master-port=PORT",
    ]
    return f"  which starts there: {describe_agent(configuration, place)}"


def agent_environment(threads: int, scratch: Path) -> dict[str, str]:
    return {
        **DEVICE_QUEUES,
        "TORCHINDUCTOR_CACHE_DIR": str(scratch),  # nothing is compiled in a run
        **os.environ,
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        # A folder named like one of our modules, where the user stands, must not win.
        "PYTHONSAFEPATH": "1",
        "PYTHONUNBUFFERED": "1",
        # How many GPUs there are is asked of NVML: CUDA, once asked, would not survive a fork.
        "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
        # Only messages that say what went wrong; the agent's own log is noise here.
        "TORCH_CPP_LOG_LEVEL": "ERROR",
    }


class Forge:
    """A process of this node that forks one agent after another (`fourmin.training.agent`).

    Agent, workers and every run need the same imports, which take seconds: they are made once.
    Between runs, and while a clock runs, it waits for a line and executes nothing.
    """

    def __init__(self) -> None:
        """Nothing is started before it is needed."""
        self._process: subprocess.Popen[bytes] | None = None
        self._scratch: Scratch | None = None
        self._threads = 0

    def start(self, arguments: Sequence[str], job: Job, variables: Mapping[str, str]) -> Agent:
        """Start an agent, which starts this node's workers; they read the job that is written here.

        `arguments` are torchrun's; `variables` are added to the environment.
        """
        job.write()
        variables = {JOB_VARIABLE: str(job.path), **variables}
        return self.spawn(arguments, job.configuration.threads, job.scratch, variables)

    def spawn(
        self,
        arguments: Sequence[str],
        threads: int,
        scratch: Path,
        variables: Mapping[str, str],
    ) -> Agent:
        """Start an agent whose workers have `threads` each; its files lie in `scratch`."""
        self.prepare(threads)
        output = scratch / "output"
        request = {
            "arguments": [f"--log-dir={scratch / 'agent'}", *arguments],
            "variables": {**variables, "TORCHELASTIC_ERROR_FILE": str(scratch / "error.json")},
            "output": str(output),
        }
        assert self._process is not None
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # its end is told as the agent's
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
        return Agent(self, output)

    def prepare(self, threads: int) -> None:
        """Begin to import, for agents whose workers have `threads` each; nobody waits for it."""
        if self._process is not None and self._process.poll() is None and self._threads == threads:
            return
        self.close()
        self._threads = threads
        self._scratch = Scratch()
        with (self._scratch.path / "errors").open("wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", AGENT_MODULE],
                env=agent_environment(threads, self._scratch.path),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                # Ctrl-C goes to the command alone, which then ends the workers in order.
                start_new_session=True,
            )
        assert self._process.stdout is not None
        os.set_blocking(self._process.stdout.fileno(), False)

    def heard(self) -> int | None:
        """The exit code of the agent, once, as soon as it has ended; that of the forge for ever."""
        process = self._process
        if process is None:
            return -signal.SIGKILL
        assert process.stdout is not None
        said = process.stdout.read()
        return None if said is None else int(said) if said else process.wait()

    def errors(self) -> str:
        """What it printed itself while it lives: why it could not begin, say."""
        return "" if self._scratch is None else _text(self._scratch.path / "errors")

    def kill_agent(self) -> None:
        """Kill the agent and all workers: below, or left to the forge by an agent that died."""
        while self._process is not None and (family := descendants(self._process.pid)):
            for pid in family:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(LOOKS_EVERY)

    def close(self) -> None:
        """End it and all that it has started."""
        self.kill_agent()
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            with suppress(BrokenPipeError):
                process.communicate()
        scratch, self._scratch = self._scratch, None
        if scratch is not None:
            scratch.remove()


class Agent:
    """The agent of one run."""

    def __init__(self, forge: Forge, output: Path) -> None:
        self._forge = forge
        self._output = output
        self._code: int | None = None

    def exit_code(self) -> int | None:
        """The agent's exit code, or None while it runs."""
        if self._code is None:
            self._code = self._forge.heard()
        return self._code

    def wait(self) -> int:
        """Its exit code, once it has ended."""
        while (code := self.exit_code()) is None:
            time.sleep(LOOKS_EVERY)
        return code

    def kill(self) -> None:
        """Kill the agent and everything below it."""
        if self.exit_code() is None:
            self._forge.close()  # which may not have come to fork it
        self._forge.kill_agent()
        self.wait()

    def output(self) -> str:
        """The end of what was printed."""
        return (self._forge.errors() + _text(self._output))[-OUTPUT_LIMIT:]


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except FileNotFoundError:
        return ""


def bind_process(name: str) -> None:
    """Die with the parent of this process, whatever ends that; `name`, of at most 15 characters,
    is what `ps -e` and `top` show.
    """
    control_process(_DEATH_SIGNAL, signal.SIGKILL)
    Path("/proc/self/comm").write_text(name)


def control_process(option: int, value: int) -> None:
    """prctl(2)."""
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def descendants(pid: int) -> list[int]:
    """Process ids below `pid` that live now, from /proc."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            # The command name may hold spaces and parentheses; what follows it does not.
            state, parent = stat.read_text().rpartition(")")[2].split()[:2]
        except (OSError, ValueError, IndexError):
            continue
        if state != "Z":
            children.setdefault(int(parent), []).append(int(stat.parent.name))
    found, pending = [], [pid]
    while pending:
        below = children.get(pending.pop(), [])
        found.extend(below)
        pending.extend(below)
    return found
