"""Nodes over real sockets and processes; only torchrun's agent is replaced by an actor."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import acting_agent
import pytest

from fourmin.base.errors import FourminError
from fourmin.datasets.digits import ensure_digits
from fourmin.datasets.manifest import MANIFEST_NAME
from fourmin.launch import hub as hub_module
from fourmin.launch import preflight
from fourmin.launch.control import ORPHANED
from fourmin.launch.hub import Hub
from fourmin.launch.job import Job
from fourmin.launch.nodes import NodesRun
from fourmin.launch.timeouts import Timeouts
from fourmin.launch.wire import TOKEN_VARIABLE, connect

ACTOR = """
import os, sys, time
from pathlib import Path
from fourmin.launch.control import ControlClient
from fourmin.launch.job import Job
job = Job.read(Path(os.environ["FOURMIN_JOB"]))
rank = int(next(a for a in sys.argv if a.startswith("--node-rank=")).partition("=")[2])
print("actor", rank, job.clocks is not None, flush=True)
client = ControlClient(job.control_socket, rank)
if rank == 0: client.ask_to_start()
what = job.submitter if rank == 1 else "finish"
if what == "fail": client.fail("out of luck", "the details", final=True); sys.exit(1)
if what == "sleep" or job.submitter == "sleep": time.sleep(60)
if what == "agent-dies": os._exit(7)
client.finish()
"""
NODE = f"""
import sys
sys.path.append({str(Path(acting_agent.__file__).parent)!r})
from acting_agent import act_as
from fourmin.launch import node
act_as({ACTOR!r})
if "--old" in sys.argv:
    sys.argv.remove("--old")
    node.preflight.package_digest = lambda: "0" * 64
node.main(sys.argv[1:])
"""


class Nodes:
    """A hub and the node processes that were started for it."""

    def __init__(self, hub: Hub) -> None:
        self.hub = hub
        self.processes: list[subprocess.Popen[str]] = []

    def add(self, name: str, index: int, *options: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", NODE, f"127.0.0.1:{self.hub.port}", "--index", str(index),
             "--name", name, *options],
            env={**os.environ, TOKEN_VARIABLE: self.hub.token},
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.processes.append(process)
        return process

    def both(self) -> Hub:
        self.add("n1", 0)
        self.add("n2", 1)
        self.hub.wait(90, lambda: "")
        return self.hub


@pytest.fixture
def nodes() -> Iterator[Nodes]:
    made = Nodes(Hub(2, ("n1", "n2")))
    yield made
    made.hub.close()
    for process in made.processes:
        try:
            process.wait(60)
        finally:
            process.kill()
            process.communicate()


def until(run: NodesRun, kind: str, seconds: float = 90) -> Any:
    """The next message of a kind; rank 0 is let go when it asks."""
    deadline = time.monotonic() + seconds
    while True:
        message = run.messages.get(timeout=max(0.01, deadline - time.monotonic()))
        if message.kind == "ready":
            run.go(message.rank)
        if message.kind == kind:
            return message


def wait_for(condition: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_two_runs_one_after_the_other_on_the_same_nodes(nodes: Nodes, job: Job) -> None:
    hub = nodes.both()
    for _ in range(2):
        run = hub.start(job)
        told = [until(run, "finished") for _ in range(2)]
        assert {(m.rank, m.node) for m in told} == {(0, "n1"), (1, "n2")}
        wait_for(lambda run=run: run.exit_code() is not None)
        assert run.exit_code() == 0
        run.kill()
        assert "[n2] actor 1 True" in run.output()
    hub.close()
    assert [process.wait(60) for process in nodes.processes] == [0, 0]


def test_a_failed_worker_is_named_with_its_node(nodes: Nodes, job: Job) -> None:
    run = nodes.both().start(replace(job, submitter="fail"))
    message = until(run, "failed")
    assert (message.rank, message.node) == (1, "n2")
    assert message.data["summary"] == "out of luck"
    run.kill()


def test_an_agent_that_dies_without_a_word_names_its_node(nodes: Nodes, job: Job) -> None:
    run = nodes.both().start(replace(job, submitter="agent-dies"))
    # Its worker hung up as well, and either names the node.
    message = until(run, "lost")
    assert message.node == "n2"
    run.kill()


def test_a_killed_node_is_named_at_once_and_leaves_no_worker(nodes: Nodes, job: Job) -> None:
    # The broken line tells: nobody waits for a silence.
    nodes.hub._timeouts = Timeouts(silence=3600)
    hub = nodes.both()
    run = hub.start(replace(job, submitter="sleep"))
    worker = next(m for m in iter(lambda: until(run, "hello"), None) if m.rank == 1)
    nodes.processes[1].kill()
    message = until(run, "node-lost")
    assert message.node == "n2"
    wait_for(lambda: not Path(f"/proc/{worker.pid}").exists())
    run.kill()
    assert [node.name for node in hub.lost()] == ["n2"]
    # Another may take its place.
    nodes.add("n3", 1)
    hub.wait(90, lambda: "")
    again = hub.start(job)
    assert {until(again, "finished").node for _ in range(2)} == {"n1", "n3"}
    again.kill()


def test_a_host_that_falls_silent_is_lost(
    nodes: Nodes, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes.hub._timeouts = Timeouts(silence=1)
    monkeypatch.setattr(hub_module, "PING_SECONDS", 0.1)
    run = nodes.both().start(replace(job, submitter="sleep"))
    until(run, "hello")
    nodes.processes[1].send_signal(signal.SIGSTOP)
    message = until(run, "node-lost")
    assert message.node == "n2"
    assert message.data["summary"] == "has not answered for 1 s"
    nodes.processes[1].send_signal(signal.SIGCONT)
    run.kill()


def test_nodes_end_their_workers_when_the_command_has_gone(nodes: Nodes, job: Job) -> None:
    hub = nodes.both()
    run = hub.start(replace(job, submitter="sleep"))
    pids = [until(run, "hello").pid for _ in range(2)]
    for node in hub._nodes.values():
        node.wire.close()
    assert [process.wait(60) for process in nodes.processes] == [ORPHANED, ORPHANED]
    wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))


def test_another_version_on_a_node_is_named_and_nothing_is_started(nodes: Nodes, job: Job) -> None:
    nodes.add("n1", 0)
    nodes.add("n2", 1, "--old")
    nodes.hub.wait(90, lambda: "")
    with pytest.raises(FourminError) as caught:
        nodes.hub.start(job)
    assert caught.value.what == "node n2: another version of fourmin"
    assert caught.value.exit_code == 2
    assert not job.events_log.exists()


def test_nodes_that_do_not_come_are_named(nodes: Nodes) -> None:
    nodes.add("n1", 0)
    wait_for(lambda: len(nodes.hub._nodes) == 1)
    with pytest.raises(FourminError) as caught:
        nodes.hub.wait(0.2, lambda: "")
    assert caught.value.what == "1 of 2 nodes did not answer: n2"
    assert "answered: n1" in caught.value.why
    with pytest.raises(FourminError, match="did not answer") as caught:
        nodes.hub.wait(60, lambda: "srun ended with 1")
    assert "srun ended with 1" in caught.value.why


def test_a_place_is_given_once(nodes: Nodes) -> None:
    nodes.add("n1", 0)
    wait_for(lambda: len(nodes.hub._nodes) == 1)
    second = nodes.add("n9", 0)
    assert second.wait(10) == 2
    assert second.stderr is not None
    assert "no place 0 that is free" in second.stderr.read()


def test_strangers_learn_nothing_and_harm_nobody(nodes: Nodes, job: Job) -> None:
    address = ("127.0.0.1", nodes.hub.port)
    for said in (b"", b"GET / HTTP/1.1\r\n\r\n", os.urandom(200) + b"\n", b'{"node": 1}\n' * 3):
        with socket.create_connection(address) as stranger:
            greeting = json.loads(stranger.makefile().readline())
            assert set(greeting) == {"fourmin"}
            stranger.sendall(said)
    with pytest.raises(ConnectionError):
        connect(["127.0.0.1"], nodes.hub.port, "another token", 0.3)
    assert not nodes.hub._nodes
    run = nodes.both().start(job)
    until(run, "finished")
    run.kill()


def facts(job: Job, name: str = "node n1", offset: float = 0.0, **other: Any) -> Any:
    found = {**preflight.node_facts(job, holds_log=False), **other}
    return preflight.NodeFacts(name, found, preflight.Clock(offset, 0.5))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"configuration_digest": "x"}, "node n2: another configuration"),
        ({"data_dir": False}, "node n2: no folder"),
        ({"manifest": "x"}, "node n2: another manifest of the data"),
        (
            {"manifest": None, "dataset": None, "manifest_problem": "cut short"},
            "node n2 cannot read the manifest of the data",
        ),
        ({"dataset": {"classes": 3}}, "node n2: other images than the campaign was registered"),
        ({"busy_gpus": ["GPU 0: 1 processes"]}, "node n2 uses its GPUs for something else"),
        ({"against_fast": "no Triton"}, "node n2 cannot run the fast step"),
        ({"results_problem": "read-only"}, "node n2 cannot write the event log"),
        ({"staging_problem": "no room"}, "node n2 cannot hold a copy of the images"),
        ({"offset": 501.0}, r"node n2 has a clock that is \+0.5 s off"),
        ({"offset": -3000.0}, "node n2 has a clock that is -3.0 s off"),
    ],
)
def test_what_is_not_alike_is_refused_with_the_node_s_name(
    job: Job, wrong: dict[str, Any], message: str
) -> None:
    preflight.compare(job, [facts(job), facts(job, "node n2", offset=499)])
    with pytest.raises(FourminError, match=message):
        preflight.compare(job, [facts(job), facts(job, "node n2", **wrong)])


def test_a_node_that_cannot_stage_says_why(job: Job, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    manifest = ensure_digits() / MANIFEST_NAME

    def problem(stage: Path | None) -> str:
        return str(facts(replace(job, manifest=manifest, stage=stage)).facts["staging_problem"])

    assert problem(None) == problem(tmp_path / "new") == ""
    assert problem(tmp_path / "file" / "stage").startswith("cannot write to the staging folder ")


def test_too_few_gpus_are_refused(job: Job) -> None:
    configuration = job.configuration.with_overrides({"device": "cuda", "procs_per_node": 4})
    on_gpus = replace(job, configuration=configuration)
    good = facts(on_gpus, gpus=4)
    preflight.compare(on_gpus, [good])
    with pytest.raises(FourminError, match="node n2: fewer than 4 GPUs"):
        preflight.compare(on_gpus, [good, facts(on_gpus, "node n2", gpus=3)])


def test_a_results_folder_that_is_not_shared_is_seen_by_rank_0(job: Job) -> None:
    def problem() -> str:
        # In a process of its own, as a node is: the lock's holder would not be refused.
        program = (
            "import sys; from pathlib import Path; from fourmin.launch.job import Job; "
            "from fourmin.launch.preflight import node_facts; "
            "print(node_facts(Job.read(Path(sys.argv[1])), holds_log=True)['results_problem'])"
        )
        job.write()
        done = subprocess.run(
            [sys.executable, "-c", program, str(job.path)],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        return done.stdout.strip()

    assert problem() == ""
    plan = job.events_log.parents[1] / "campaign.json"
    plan.write_text("{ }")
    assert "is not the plan of this campaign" in problem()
    plan.unlink()
    assert "No such file" in problem()
    job.events_log.parent.rmdir()
    assert "No such file" in problem()


def test_a_lock_that_a_node_does_not_see_is_refused(job: Job) -> None:
    program = (
        "import sys; from pathlib import Path; from fourmin.launch.job import Job; "
        "from fourmin.launch.preflight import node_facts; "
        "print(node_facts(Job.read(Path(sys.argv[1])), holds_log=True)['results_problem'])"
    )
    lock = job.events_log.parents[1] / ".lock"
    os.rename(lock, lock.with_name("held"))
    lock.write_bytes(b"")
    job.write()
    done = subprocess.run(
        [sys.executable, "-c", program, str(job.path)], capture_output=True, text=True, check=True
    )
    assert "is not seen here" in done.stdout
