"""A real Slurm on this host, for tests: munge, a controller and four node daemons, all its own.

The four nodes share this host and differ by port. A second partition has 256 fictitious nodes
with 8 GPUs each, on which nothing can run, but against which a script can be checked.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

TOOLS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scancel", "scontrol")
NODES = 4
SECONDS = 30.0

CONFIGURATION = """\
ClusterName=fourmin-test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0,sched_interval=1
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
KillWait=5
MinJobAge=600
InactiveLimit=0
MpiDefault=none
SwitchType=switch/none
GresTypes=gpu
NodeName=n[1-4] NodeHostname={host} NodeAddr=127.0.0.1 Port=[{ports[1]}-{ports[4]}] \
CPUs={cpus} State=UNKNOWN
NodeName=big[001-256] NodeHostname=nowhere[001-256] CPUs=64 Gres=gpu:8 State=CLOUD
PartitionName=here Nodes=n[1-4] Default=YES MaxTime=INFINITE State=UP
PartitionName=large Nodes=big[001-256] MaxTime=INFINITE State=UP
"""


class UnavailableError(Exception):
    """Slurm cannot be started here; the reason."""


@dataclass(frozen=True)
class Cluster:
    """A running Slurm."""

    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        """What makes Slurm's commands find it."""
        return {**os.environ, "SLURM_CONF": str(self.folder / "slurm.conf")}

    def ask(self, *command: str) -> str:
        """What a command of Slurm's prints."""
        done = subprocess.run(
            command, env=self.environment, capture_output=True, text=True, check=False, timeout=30
        )
        return done.stdout + done.stderr

    def jobs(self) -> list[str]:
        """Ids and states of all jobs that have not ended, such as `7 RUNNING`."""
        return self.ask("squeue", "--noheader", "--format=%i %T").splitlines()


@contextmanager
def slurm_cluster(folder: Path) -> Iterator[Cluster]:
    """Start Slurm in `folder` and stop it at the end. Raises UnavailableError with the reason."""
    if os.getuid() != 0:
        raise UnavailableError("Slurm's daemons need root")
    for tool in TOOLS:
        if shutil.which(tool) is None:
            raise UnavailableError(f"{tool} is missing (packages slurm-wlm and munge)")
    cluster = Cluster(folder)
    ports = _free_ports(NODES + 1)
    host = socket.gethostname().partition(".")[0]
    cpus = os.cpu_count() or 1
    (folder / "state").mkdir()
    (folder / "slurm.conf").write_text(
        CONFIGURATION.format(host=host, folder=folder, ports=ports, cpus=cpus)
    )
    (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
    (folder / "munge.key").write_bytes(os.urandom(128))
    (folder / "munge.key").chmod(0o600)
    (folder / "gres.conf").write_text("NodeName=big[001-256] Name=gpu Count=8\n")
    daemons: list[subprocess.Popen[bytes]] = []
    munge = ["munged", "--foreground", "--force", "--num-threads=2"]
    munge += [f"--{name}={folder}/munge.{end}" for name, end in (
        ("key-file", "key"), ("socket", "socket"), ("pid-file", "pid"), ("log-file", "log"),
        ("seed-file", "seed"),
    )]  # fmt: skip
    try:
        _start(daemons, cluster, munge)
        _until(lambda: (folder / "munge.socket").exists(), "munged", cluster)
        _start(daemons, cluster, ["slurmctld", "-D"])
        for node in range(1, NODES + 1):
            _start(daemons, cluster, ["slurmd", "-D", "-N", f"n{node}"])
        _until(lambda: _idle(cluster) == NODES, "the four nodes", cluster)
        yield cluster
    finally:
        with suppress(Exception):
            cluster.ask("scancel", "--user=root", "--signal=KILL")
            cluster.ask("scancel", "--user=root")
            _until(lambda: not cluster.jobs(), "the last job's end", cluster)
        for daemon in reversed(daemons):
            daemon.terminate()
        for daemon in daemons:
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()


def _idle(cluster: Cluster) -> int:
    states = cluster.ask("sinfo", "--noheader", "--partition=here", "--Node", "--format=%t")
    return states.split().count("idle")


def _start(daemons: list[subprocess.Popen[bytes]], cluster: Cluster, command: list[str]) -> None:
    with (cluster.folder / "daemons.log").open("ab") as log:
        daemons.append(
            subprocess.Popen(
                command,
                env=cluster.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        )


def _until(condition: object, what: str, cluster: Cluster) -> None:
    assert callable(condition)
    deadline = time.monotonic() + SECONDS
    while not condition():
        if time.monotonic() > deadline:
            log = (cluster.folder / "daemons.log").read_text(errors="replace")[-2000:]
            raise UnavailableError(f"{what} did not come within {SECONDS:.0f} s:\n{log}")
        time.sleep(0.1)


def _free_ports(count: int) -> list[int]:
    """`count` free ports, the last `count - 1` of them one after another."""
    for first in range(17000, 30000, 50):
        ports = list(range(first, first + count))
        sockets = []
        try:
            for port in ports:
                taken = socket.socket()
                sockets.append(taken)
                taken.bind(("127.0.0.1", port))
            return ports
        except OSError:
            continue
        finally:
            for taken in sockets:
                taken.close()
    raise UnavailableError("no free ports")
