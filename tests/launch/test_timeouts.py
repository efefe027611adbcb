"""How long things may take, and what is said meanwhile."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest

from fourmin.base.errors import FourminError
from fourmin.campaign.jobs import inner_options
from fourmin.campaign.request import New, Placement, Request
from fourmin.campaign.watch import Watch
from fourmin.launch import Launched, Surroundings, timeouts
from fourmin.launch.control import ControlMessage
from fourmin.launch.hub import Hub
from fourmin.launch.job import Job
from fourmin.launch.pod import pod_command
from fourmin.launch.slurm import SlurmLauncher
from fourmin.launch.timeouts import NAMES, Timeouts, Waiting
from fourmin.launch.torchrun import TorchrunLauncher
from fourmin.launch.wire import connect


def test_each_name_is_taken_and_given_on_as_it_was() -> None:
    given = [f"{name}={number + 0.5}" for number, name in enumerate(NAMES, start=1)]
    parsed, collective = Timeouts.parse([*given, "collective=7"])
    assert [getattr(parsed, name) for name in NAMES] == [n + 0.5 for n in range(1, len(NAMES) + 1)]
    assert collective == 7
    assert parsed.options() == [f"--timeout={one}" for one in given]
    assert Timeouts.parse([]) == (Timeouts(), None)
    assert Timeouts().options() == []


@pytest.mark.parametrize("given", ["join", "join=", "join=0", "join=-1", "join=inf", "join=nan",
                                   "silence=soon"])  # fmt: skip
def test_what_is_no_time_is_refused(given: str) -> None:
    with pytest.raises(FourminError, match="takes seconds above 0"):
        Timeouts.parse([given])


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(FourminError, match="no timeout 'joint'") as caught:
        Timeouts.parse(["joint=3"])
    assert all(name in caught.value.next_step for name in (*NAMES, "collective"))


def test_no_wait_of_the_launchers_is_written_elsewhere() -> None:
    folder = Path(timeouts.__file__).parent
    named = [
        f"{path.name}: {line}"
        for path in sorted(folder.glob("*.py"))
        if path.name not in ("timeouts.py", "submit.py")  # that one only looks, at what is queued
        for line in path.read_text().splitlines()
        if line.partition(" = ")[0].endswith("_SECONDS") and " = " in line
    ]
    assert named == ["control.py: REPORT_SECONDS = 1.0"]


def test_nodes_and_jobs_are_told_what_the_command_was(job: Job) -> None:
    given = Timeouts(join=90, silence=5)
    options = ["--timeout=join=90", "--timeout=silence=5"]
    around = Surroundings(timeouts=given)
    for launcher in (SlurmLauncher(around), TorchrunLauncher(around)):
        assert " ".join(options) in launcher.describe(job.configuration)
    inner = inner_options(New(Request()), Placement(timeouts=given), Path("/x"))
    assert [one for one in inner if one.startswith("--timeout")] == options
    pod = {"PET_NODE_RANK": "3", "PET_MASTER_ADDR": "x"}
    assert pod_command(["--preset=digits", *options], pod)[-2:] == options


def test_the_one_of_a_collective_is_part_of_the_configuration(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "fourmin", "run", "--dry-run", "--json", "--practice",
         "--timeout", "collective=77", "--results-dir", str(tmp_path / "results")],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert json.loads(done.stdout)["configuration"]["collective_timeout_seconds"] == 77, done.stderr


class Clock:
    """Time that passes only when it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now)


def test_who_is_waited_for_is_said_ever_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, said = Clock(monkeypatch), list[str]()
    waiting = Waiting(said.append, 256, "nodes")
    for second in range(301):
        clock.now = 1000.0 + second
        waiting.look(["n17", "n44", "n201"] if second < 300 else [])
    assert said == [
        f"waiting for 3 of 256 nodes: n17, n44, n201; {second} s"
        for second in (10, 20, 40, 80, 140, 200, 260)
    ]


def test_many_names_are_cut_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, said = Clock(monkeypatch), list[str]()
    waiting = Waiting(said.append, 256, "nodes")
    clock.now += 11
    waiting.look([f"n{i}" for i in range(200)])
    assert said == ["waiting for 200 of 256 nodes: " + ", ".join(f"n{i}" for i in range(12))
                    + " and 188 more; 11 s"]  # fmt: skip


def test_a_hub_says_which_nodes_it_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeouts, "FIRST_WORD_SECONDS", 0.1)
    said: list[str] = []
    hub = Hub(3, ("n1", "n2", "n3"), Surroundings(say=said.append))
    try:
        wire = connect(["127.0.0.1"], hub.port, hub.token, 5)
        wire.send("join", name="n2", index=1)
        with pytest.raises(FourminError, match="2 of 3 nodes did not answer: n1, n3"):
            hub.wait(0.8, lambda: "")
        assert "waiting for 2 of 3 nodes: n1, n3; 0 s" in said
    finally:
        hub.close()
    nameless = Hub(2)
    try:
        with pytest.raises(FourminError, match="2 of 2 nodes did not answer: place 0, place 1"):
            nameless.wait(0.1, lambda: "")
    finally:
        nameless.close()


def test_a_command_that_vanishes_without_a_word_is_noticed_by_its_nodes() -> None:
    """Nothing closes the connection: the host that was the command's is gone."""
    with mock.patch.object(Hub, "_ping", return_value=None):
        hub = Hub(1)
    try:
        wire = connect(["127.0.0.1"], hub.port, hub.token, 5, silence=0.3)
        wire.send("join", name="n1", index=0)
        began = time.monotonic()
        assert wire.receive() is None
        assert 0.2 < time.monotonic() - began < 10
        assert not hub.lost()
    finally:
        hub.close()


def test_a_node_waits_for_a_command_and_a_name_that_come_late(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As in Kubernetes, where the first pod's name is in the DNS only when it is ready."""
    resolves, asked = threading.Event(), list[str]()
    real = socket.getaddrinfo

    def lookup(host: str, *rest: object, **more: object) -> object:
        if host != "x-node-0-0.x":
            return real(host, *rest, **more)  # type: ignore[arg-type]
        asked.append(host)
        if not resolves.is_set():
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return real("127.0.0.1", *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    with pytest.raises(ConnectionError, match="Name or service not known"):
        connect(["x-node-0-0.x"], 1, "token", 0.3)
    threading.Timer(0.7, resolves.set).start()
    hub = Hub(1)
    try:
        connect(["x-node-0-0.x"], hub.port, hub.token, 20).close()
    finally:
        hub.close()
    assert len(asked) > 3


class Actors(Launched):
    """Workers of which one imports for ever."""

    def __init__(self, said: list[ControlMessage]) -> None:
        import queue

        self.messages = queue.Queue()
        for message in said:
            self.messages.put(message)
        self.ends = time.monotonic() + 0.6

    def go(self, rank: int) -> None: ...

    def exit_code(self) -> int | None:
        return 1 if time.monotonic() > self.ends else None

    def kill(self) -> None: ...

    def output(self) -> str:
        return ""


@pytest.mark.parametrize("failed", [False, True])
def test_workers_that_still_import_are_named(
    job: Job, monkeypatch: pytest.MonkeyPatch, failed: bool
) -> None:
    monkeypatch.setattr(timeouts, "FIRST_WORD_SECONDS", 0.2)
    said: list[str] = []
    messages = [
        ControlMessage("hello", 1, 11, {}, "n2"),
        ControlMessage("imported", 0, 10, {}, "n1"),
    ]
    if failed:
        data = {"summary": "s", "details": "", "final": False}
        messages.append(ControlMessage("failed", 0, 10, data, "n1"))

    class Starts:
        def start(self, job: Job) -> Actors:
            return Actors(messages)

    watch = Watch(replace(job), lambda: None, lambda record: None, said.append)
    watch.until_the_end(Starts())  # type: ignore[arg-type]
    wanted = ["waiting for 1 of 2 workers to import the training stack: worker 1 on n2; 0 s"]
    assert said[:1] == ([] if failed else wanted)
