"""Real `fourmin run` processes for tests: started, watched, killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

PRACTICE = ["--practice", "--set", "device=cpu", "--procs-per-node", "2"]
SHORT = [*PRACTICE, "--max-steps", "24", "--runs", "2"]
"""Two runs of an epoch and two steps: what most tests need to read."""
REPEATABLE = [*PRACTICE, "--seed", "20181", "--runs", "1"]
"""Same seed, same machine: same order, weights, losses and accuracies, to the last bit."""
FOUR_EPOCHS = [*REPEATABLE, "--max-steps", "88"]
FOUR_EPOCHS_OVER_A_RING = [*FOUR_EPOCHS, "--precision", "fp32", "--allreduce", "ring"]
IN_GROUPS = [
    *REPEATABLE, "--procs-per-node", "4", "--group-size", "2", "--max-steps", "8",
    "--precision", "fp32", "--fusion-threshold", "65536", "--hybrid-threshold", "100000",
]  # fmt: skip
"""Eight steps of four workers in two groups, with several buckets; the all-reduce is missing."""
HYBRID = [*IN_GROUPS, "--allreduce", "hybrid"]
AGENT, WORKER = "fourmin-agent", "fourmin-r"
"""What the agent's process is called, and how the names of workers' begin, before their ranks."""
_OF_TESTS = ("OMP_NUM_THREADS", "TRITON_INTERPRET")
"""Variables that tests set for themselves."""


def environment(state: Path) -> dict[str, str]:
    """The environment of a user whose memory of campaigns is this test's own."""
    own = {name: value for name, value in os.environ.items() if name not in _OF_TESTS}
    return {**own, "XDG_STATE_HOME": str(state), "COLUMNS": "200"}


def fourmin(*arguments: str, state: Path, timeout: float = 120) -> subprocess.CompletedProcess[str]:
    """Run the command to its end."""
    return subprocess.run(
        [sys.executable, "-m", "fourmin", *arguments],
        capture_output=True,
        text=True,
        timeout=timeout,
        env=environment(state),
        check=False,
    )


@contextmanager
def running(*arguments: str, state: Path) -> Iterator[Command]:
    """`fourmin run --json` under way; whatever is left of it is killed at the end."""
    process = subprocess.Popen(
        [sys.executable, "-m", "fourmin", "run", "--json", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(state),
        # A shell's background jobs ignore Ctrl-C, and their children would inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    command = Command(process, state)
    try:
        yield command
    finally:
        for survivor in [process.pid, *command.workers()]:
            try:
                os.kill(survivor, signal.SIGKILL)
            except ProcessLookupError:
                continue
        process.communicate()


class Command:
    """A running command and its workers."""

    def __init__(self, process: subprocess.Popen[str], state: Path) -> None:
        self.process = process
        self._state = str(state)
        self.events: list[dict[str, Any]] = []

    def wait_for(self, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The next event that is wanted."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.events.append(json.loads(line))
            if wanted(self.events[-1]):
                return self.events[-1]
        _, errors = self.process.communicate()
        raise AssertionError(f"the command ended early: {errors}")

    def wait_for_training(self, run: int = 1) -> None:
        """Until the first epoch of `run` has ended."""
        self.wait_for(lambda e: e.get("key") == "epoch_stop" and e.get("run") == run)

    @property
    def campaign(self) -> Path:
        """The campaign's folder."""
        return Path(next(e for e in self.events if e["event"] == "campaign-opened")["campaign"])

    def workers(self) -> list[int]:
        """Process ids of the workers that belong to this command, by rank."""
        found = {}
        for process in psutil.process_iter():
            try:
                rank = process.name().removeprefix(WORKER)
                # The state folder is this test's own, so it tells whose worker it is.
                if rank.isdigit() and process.environ().get("XDG_STATE_HOME") == self._state:
                    found[int(rank)] = process.pid
            except (psutil.NoSuchProcess, psutil.ZombieProcess, psutil.AccessDenied):
                continue
        return [found[rank] for rank in sorted(found)]

    def agent(self) -> int:
        """Process id of torchrun's agent."""
        for child in psutil.Process(self.process.pid).children(recursive=True):
            if child.name() == AGENT:
                return child.pid
        raise AssertionError("no agent")

    def end(self, timeout: float) -> tuple[int, str, float]:
        """Exit code, standard error and the seconds until the end."""
        began = time.monotonic()
        _, errors = self.process.communicate(timeout=timeout)
        return self.process.returncode, errors, time.monotonic() - began


def wait_until_gone(pids: list[int], seconds: float = 30) -> None:
    """Raise AssertionError unless these processes come to an end."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if not any(Path(f"/proc/{pid}").exists() for pid in pids):
            return
        time.sleep(0.05)
    raise AssertionError(f"still there after {seconds} s: {pids}")


def kinds(campaign: Path) -> list[str]:
    """The kinds of a ledger's lines, in order."""
    lines = (campaign / "ledger.jsonl").read_text().splitlines()
    return [json.loads(line)["kind"] for line in lines]
