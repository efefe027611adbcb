"""The launchers of several nodes, with actors in the place of torchrun's agent."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import acting_agent
import pytest

from fourmin.base.errors import FourminError
from fourmin.campaign.watch import Failure, Watch
from fourmin.launch import Surroundings, network, node, torchrun
from fourmin.launch.hub import Hub
from fourmin.launch.job import Job
from fourmin.launch.slurm import SlurmLauncher
from fourmin.launch.torchrun import TorchrunLauncher
from fourmin.launch.wire import connect
from fourmin.system.hardware import compute_capabilities, usable_gpus
from fourmin.system.software import triton_installed

ACTOR = """
import os, sys
from pathlib import Path
from fourmin.launch.control import ControlClient
from fourmin.launch.job import Job
job = Job.read(Path(os.environ["FOURMIN_JOB"]))
rank = int(next(a for a in sys.argv if a.startswith("--node-rank=")).partition("=")[2])
client = ControlClient(job.control_socket, rank)
if rank == 0: client.ask_to_start()
if rank == 1 and job.submitter == "dies": os._exit(9)
client.finish()
"""
NODE = f"""
import os, sys
sys.path.append({str(Path(acting_agent.__file__).parent)!r})
from acting_agent import act_as
from fourmin.launch import node
act_as({ACTOR!r})
def tried(asked, scratch, forge, started):
    if os.environ["SLURMD_NODENAME"] == "n1": problems = []
    else: problems = ["too small for " + repr(["x" for _ in asked["names"]])]
    return {{"problems": problems, "step_ms": float(asked["configuration"]["nodes"]),
            "allreduce_ms": 1.0}}
node.trial.try_node = tried
node.main(sys.argv[1:])
"""
SRUN = """#!/bin/sh
# One process on each of two nodes, as Slurm would start them.
echo "$@" >> {log}
for one in "$@"; do case $one in --nodelist=*) names=${{one#*=}};; esac; done
while [ "$1" != -m ]; do shift; done
shift 2
SLURM_NODEID=0 SLURMD_NODENAME=${{names%%,*}} {python} {node} "$@" & first=$!
SLURM_NODEID=1 SLURMD_NODENAME=${{names##*,}} {python} {node} "$@" & second=$!
trap 'kill $first $second' TERM
wait $first && wait $second
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "node.py"
    path.write_text(NODE)
    return path


def watch(job: Job, launcher: TorchrunLauncher | SlurmLauncher) -> tuple[Failure | None, list[str]]:
    """How a run ended, and that its start was asked for."""
    asked: list[str] = []
    failure = Watch(job, lambda: asked.append("start"), lambda record: None).until_the_end(launcher)
    return failure, asked


@pytest.fixture
def slurm(tmp_path: Path, program: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An allocation of two nodes; its srun."""
    folder = tmp_path / "bin"
    folder.mkdir()
    srun = folder / "srun"
    srun.write_text(
        SRUN.format(
            python=shlex.quote(sys.executable), node=shlex.quote(str(program)),
            log=shlex.quote(str(tmp_path / "asked")),
        )
    )  # fmt: skip
    (folder / "scontrol").write_text("#!/bin/sh\necho n1; echo n2\n")
    for tool in folder.iterdir():
        tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURM_JOB_NODELIST", "n[1-2]")
    monkeypatch.setenv("SLURM_JOB_NUM_NODES", "2")
    monkeypatch.delenv("SLURM_NODEID", raising=False)
    return srun


def test_slurm_runs_a_step_for_each_run(slurm: Path, job: Job) -> None:
    launcher = SlurmLauncher(Surroundings())
    for _ in range(2):
        assert watch(job, launcher) == (None, ["start"])
    failure, _ = watch(replace(job, submitter="dies"), launcher)
    assert failure is not None
    assert failure.summary.endswith("on node n2 died without a word")
    launcher.close()


def test_nodes_are_tried_in_a_step_and_left_out_of_later_ones(
    slurm: Path, job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launcher = SlurmLauncher(Surroundings())
    first, second = launcher.try_nodes(job.configuration)
    assert (first.name, second.name) == ("n1", "n2")
    assert (second.step_ms, second.problems) == (2.0, ("too small for ['x']",))
    (slurm.parent / "scontrol").write_text("#!/bin/sh\necho n1; echo n2; echo n3\n")
    monkeypatch.setenv("SLURM_JOB_NUM_NODES", "3")
    launcher.leave_out(["n1"])
    assert watch(job, launcher) == (None, ["start"])
    tried, ran = (tmp_path / "asked").read_text().splitlines()
    assert "--nodelist=n1,n2 --nodes=2 --ntasks=2 " in tried
    assert "--nodelist=n2,n3 --nodes=2 --ntasks=2 " in ran
    launcher.close()


def test_a_step_that_ends_before_its_nodes_come_is_told(slurm: Path, job: Job) -> None:
    slurm.write_text("#!/bin/sh\necho srun: error: no such image >&2\nexit 5\n")
    with pytest.raises(FourminError, match="2 of 2 nodes did not answer: n1, n2") as caught:
        watch(job, SlurmLauncher(Surroundings()))
    assert "srun ended with 5; srun: error: no such image" in caught.value.why


def test_an_allocation_that_is_too_small_or_absent_is_refused(
    slurm: Path, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = replace(job, configuration=job.configuration.with_overrides({"nodes": 3}))
    with pytest.raises(FourminError, match="needs 3 nodes, the allocation has 2"):
        watch(large, SlurmLauncher(Surroundings()))
    monkeypatch.delenv("SLURM_JOB_ID")
    with pytest.raises(FourminError, match="no Slurm allocation"):
        watch(job, SlurmLauncher(Surroundings()))


def test_a_node_is_asked_where_the_command_is_none_itself(
    slurm: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launcher = SlurmLauncher(Surroundings())
    monkeypatch.setenv("SLURMD_NODENAME", "n1")
    assert launcher.survey(2) is None
    monkeypatch.delenv("SLURMD_NODENAME")
    slurm.write_text('#!/bin/sh\nwhile [ "$1" != -m ]; do shift; done\n'
                     f'echo a greeting; exec {shlex.quote(sys.executable)} "$@"\n')  # fmt: skip
    survey = launcher.survey(2)
    assert survey is not None
    assert survey.system["software"]["fourmin"]
    assert (survey.gpus, survey.capabilities) == (usable_gpus(), compute_capabilities())
    assert survey.triton == triton_installed()
    slurm.write_text("#!/bin/sh\necho no such file >&2\nexit 1\n")
    with pytest.raises(FourminError, match="could not be looked at") as caught:
        launcher.survey(2)
    assert "no such file" in caught.value.why


def test_nodes_started_by_hand_stay_for_all_runs(
    job: Job, program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def command(addresses: list[str], port: str, index: int, timeouts: object) -> list[str]:
        place = f"{','.join(addresses)}:{port}"
        return [sys.executable, str(program), place, "--index", str(index)]

    monkeypatch.setattr(torchrun, "_node_command", command)
    monkeypatch.delenv("FOURMIN_TOKEN", raising=False)
    started: list[subprocess.Popen[bytes]] = []

    def by_hand(text: str) -> None:
        if "FOURMIN_TOKEN=" in text:
            started.append(subprocess.Popen(["bash", "-c", f"exec env {text}"]))

    launcher = TorchrunLauncher(Surroundings(say=by_hand, address="127.0.0.1"))
    try:
        assert "--index 1" in launcher.describe(job.configuration)
        for _ in range(2):
            assert watch(job, launcher) == (None, ["start"])
    finally:
        launcher.close()
    assert [process.wait(10) for process in started] == [0]


def test_a_node_s_part_in_this_process(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fourmin.launch.agent.AGENT_MODULE", "acting_agent")
    monkeypatch.setenv("ACTOR", ACTOR)
    monkeypatch.setenv("PYTHONPATH", str(Path(acting_agent.__file__).parent))
    # The lock's holder is this process, so that it cannot be seen to be refused.
    monkeypatch.setattr(node.preflight, "_results_problem", lambda job: "")
    hub = Hub(2)
    codes: list[int] = []

    def serve(index: int) -> None:
        wire = connect(["nowhere.invalid", "127.0.0.1"], hub.port, hub.token, 20)
        codes.append(node.NodePart(wire, f"n{index}", index).serve())

    threads = [threading.Thread(target=serve, args=(index,)) for index in range(2)]
    for thread in threads:
        thread.start()
    hub.wait(90, lambda: "")
    broken = replace(job, manifest=job.manifest.with_name("missing"))
    with pytest.raises(FourminError, match="fewer than 1 GPUs"):
        hub.start(
            replace(broken, configuration=job.configuration.with_overrides({"device": "cuda"}))
        )
    run = hub.start(job)
    kinds = []
    while kinds.count("finished") < 2:
        message = run.messages.get(timeout=20)
        kinds.append(message.kind)
        if message.kind == "ready":
            run.go(message.rank)
    run.kill()
    hub.close()
    for thread in threads:
        thread.join(10)
    assert codes == [0, 0]


def test_addresses_of_this_host() -> None:
    assert network.interface_of("127.0.0.1") == "lo"
    assert network.interface_of("203.0.113.9") is None
    names = network.reachable_names()
    assert names[-1] == "127.0.0.1"
    assert not network.is_loopback(names[0])
    assert not network.is_loopback("a-name")
    assert 1024 <= network.free_port() <= 65535
