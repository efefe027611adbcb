"""Twenty seeded faults on a real Slurm of four nodes: each ends with its cause named and leaves
nothing behind. What is done to whom, and when, follows from the seed."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from processes import AGENT, WORKER
from slurm_cluster import Cluster

pytestmark = pytest.mark.slow

RUN = [
    sys.executable, "-m", "fourmin", "run", "--launcher", "slurm", "--nodes", "4",
    "--procs-per-node", "1", "--set", "device=cpu", "--practice", "--runs", "1",
    "--max-restarts", "0", "--timeout", "silence=10", "--timeout", "collective=20",
    "--directive", "--no-requeue", "--set", "base_learning_rate=0.001", "--set", "max_epochs=400",
]  # fmt: skip
SEEDS = range(20)
PATIENCE = 150.0

NODE, COMMAND = "-m fourmin.launch.node", "-m fourmin run"
GONE = "node {node} is gone"
DIED = r"worker {rank} \(process \d+\) on node {node} died without a word"


@dataclass(frozen=True)
class Fault:
    """`victim`: whose process gets the signal; '' where it is none."""

    name: str
    victim: str
    number: int
    cause: str
    """What the command's last words hold; a pattern with {node} and {rank}."""
    codes: tuple[int, ...]
    early: bool = False
    """Whether it may come while the workers still start."""


FAULTS = (
    Fault("a worker is killed", WORKER, signal.SIGKILL, DIED, (3,)),
    Fault("a worker crashes", WORKER, signal.SIGSEGV, DIED, (3,)),
    Fault(
        "a worker stands still", WORKER, signal.SIGSTOP,
        r"worker \d on node n\d: .*(reduc|collective)|no worker has come further",
        (3,),
    ),
    Fault(
        "an agent is killed", AGENT, signal.SIGKILL,
        f"node {{node}} lost its agent|{DIED}", (3,),
    ),
    Fault("a node's process is killed", NODE, signal.SIGKILL, GONE, (2, 3), early=True),
    Fault(
        "a node falls silent", NODE, signal.SIGSTOP,
        "node {node} has not answered for 10 s", (3,),
    ),
    Fault("the command in the job is killed", COMMAND, signal.SIGKILL,
          r"Slurm job \d+ ended: FAILED", (2, 137), early=True),
    Fault("the job is cancelled", "", 0, "ended: CANCELLED", (2, 130, 137, 143), early=True),
    Fault("a node is set down", "", 1, "ended: NODE_FAIL", (2, 130, 137, 143)),
    Fault("Ctrl-C", "", signal.SIGINT, r"Slurm job \d+ is cancelled", (130,), early=True),
)  # fmt: skip


def processes(mark: Path) -> dict[int, tuple[str, dict[str, str]]]:
    """Name with command line, and environment, of each process that this test's command has
    started."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            entries = (folder / "environ").read_text(errors="replace").split("\0")
            line = (folder / "cmdline").read_text(errors="replace").replace("\0", " ")
            line = f"{(folder / 'comm').read_text().strip()} {line}"
        except OSError:
            continue
        variables = dict(one.partition("=")[::2] for one in entries)
        if variables.get("XDG_STATE_HOME") == str(mark):
            found[int(folder.name)] = line, variables
    return found


def victim(mark: Path, fault: Fault, node: str, own: int) -> int:
    """The process that gets the signal, as soon as there is one."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        for pid, (line, variables) in processes(mark).items():
            there = variables.get("SLURMD_NODENAME") == node or fault.victim == COMMAND
            its = fault.victim in line and not line.startswith("srun")
            if there and its and pid != own:
                return pid
        time.sleep(0.1)
    raise AssertionError(f"no {fault.victim} on {node}")


@pytest.mark.parametrize("seed", SEEDS)
def test_a_fault_is_named_and_leaves_nothing(cluster: Cluster, tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    fault = FAULTS[seed % len(FAULTS)]
    rank = chance.randrange(4)
    node = f"n{rank + 1}"
    if fault.number == 1:
        node = f"n{chance.randrange(2, 5)}"  # the first one has the command
    early = fault.early and chance.random() < 0.5
    wait = chance.uniform(0.0, 2.0)
    environment = {**cluster.environment, "XDG_STATE_HOME": str(tmp_path), "COLUMNS": "240"}
    process = subprocess.Popen(
        [*RUN, "--results-dir", str(tmp_path / "results")],
        env=environment, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    try:
        assert process.stderr is not None
        heard = []
        for line in process.stderr:
            heard.append(line)
            if ("run 1/1  seed" if early else "run 1/1  epoch") in line:
                break
        else:
            raise AssertionError("".join(heard))
        time.sleep(wait)
        if fault.victim:
            os.kill(victim(tmp_path, fault, node, process.pid), fault.number)
        elif fault.number == signal.SIGINT:
            process.send_signal(signal.SIGINT)
        elif fault.number == 1:
            cluster.ask("scontrol", "update", f"nodename={node}", "state=down", "reason=test")
        else:
            cluster.ask("scancel", *(job.split()[0] for job in cluster.jobs()))
        _, errors = process.communicate(timeout=PATIENCE)
        said = f"{fault.name}, rank {rank}, {node}, early {early}:\n{''.join(heard)}\n{errors}"
        assert re.search(fault.cause.format(node=node, rank=rank), errors), said
        assert process.returncode in fault.codes, said
        assert "Traceback" not in errors, said
    finally:
        process.kill()
        if fault.number == 1:
            cluster.ask("scontrol", "update", f"nodename={node}", "state=resume")
    deadline = time.monotonic() + 60
    while (left := processes(tmp_path)) or cluster.jobs():
        assert time.monotonic() < deadline, (left, cluster.jobs())
        time.sleep(0.2)
    # What was written is whole, and the next command can take it up.
    (campaign,) = (tmp_path / "results").glob("practice-digits-*")
    validated = subprocess.run(
        [sys.executable, "-m", "fourmin", "validate", str(campaign)],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert validated.returncode == 0, validated.stdout
