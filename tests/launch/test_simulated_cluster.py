"""A thousand nodes at the hub: the wire's protocol written anew here, everything else is real."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import resource
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from fourmin.base.errors import FourminError
from fourmin.launch import Surroundings, preflight, timeouts
from fourmin.launch.hub import Hub
from fourmin.launch.job import Job
from fourmin.launch.timeouts import Timeouts

NODES = 1024
LATE = (17, 44, 201)
"""They come when the others have waited in vain."""
MUTE = 5
"""It does not say what it has, at first."""
STALLED, LOST = (9, 700), (10, 300, 1023)
"""In the run: they fall silent, they hang up."""


def line(**message: Any) -> bytes:
    return json.dumps(message).encode() + b"\n"


@dataclass
class Simulated:
    """All nodes, in one event loop of a thread."""

    port: int
    token: str
    facts: dict[str, Any]
    late: asyncio.Event = field(default_factory=asyncio.Event)
    speak: bool = False
    faulty: bool = False
    started: dict[int, list[str]] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)

    def run(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.loop.run_until_complete(self._all())
        self.loop.close()

    async def _all(self) -> None:
        await asyncio.gather(*(self.node(index) for index in range(NODES)))

    async def node(self, index: int, name: str = "") -> None:
        if index in LATE and not name:
            await self.late.wait()
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        theirs = json.loads(await reader.readline())["fourmin"]
        ours = f"{index:032x}"
        writer.write(line(node=ours) + line(proof=self._proof("node", theirs, ours)))
        proof = json.loads(await reader.readline())["proof"]
        assert proof == self._proof("command", theirs, ours)
        writer.write(line(kind="join", name=name or f"n{index}", index=index))
        while said := await reader.readline():
            message = json.loads(said)
            if self.faulty and index in STALLED:
                continue
            if self.faulty and index in LOST:
                break
            answer = self.answer(index, message)
            if answer is None:
                break
            writer.write(answer)
        writer.close()

    def answer(self, index: int, message: dict[str, Any]) -> bytes | None:
        kind = message["kind"]
        if kind == "ping":
            return line(kind="pong", sent_ns=message["sent_ns"], now_ns=time.time_ns())
        if kind == "prepare" and (index != MUTE or self.speak):
            return line(kind="facts", facts=self.facts, port=29999)
        if kind == "start":
            self.started[index] = message["place"]
            data = {"rank": index, "pid": 1, "data": {}}
            return line(kind="worker", message={"kind": "hello", **data})
        if kind == "kill":
            return line(kind="killed", code=0, output=f"output of {index}")
        if kind == "refused":
            self.refused.append(message["summary"])
        return b"" if kind in ("prepare",) else None

    def _proof(self, role: str, command: str, node: str) -> str:
        text = f"{role} {command} {node}".encode()
        return hmac.new(self.token.encode(), text, hashlib.sha256).hexdigest()


@pytest.fixture
def _many_files() -> Iterator[None]:
    """Both ends of each connection are in this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    need = 2 * NODES + 512
    if hard != resource.RLIM_INFINITY and hard < need:
        pytest.skip(f"a process may open {hard} files here, {need} are needed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, need), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("_many_files")
@pytest.mark.slow  # beside other tests its clocks run late
def test_1024_nodes_of_which_some_are_late_mute_stalled_and_lost(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timeouts, "FIRST_WORD_SECONDS", 0.5)
    many = replace(job, configuration=job.configuration.with_overrides({"nodes": NODES}))
    facts = {**preflight.node_facts(many, holds_log=False)}
    said: list[str] = []
    names = tuple(f"n{index}" for index in range(NODES))
    around = Surroundings(timeouts=Timeouts(look=2, silence=60, end=20), say=said.append)
    hub = Hub(NODES, names, around)
    nodes = Simulated(hub.port, hub.token, facts)
    thread = threading.Thread(target=nodes.run)
    thread.start()
    try:
        deadline = time.monotonic() + 60
        while len(hub._nodes) < NODES - len(LATE):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        with pytest.raises(FourminError) as caught:
            hub.wait(1.2, lambda: "")
        assert caught.value.what == "3 of 1024 nodes did not answer: n17, n44, n201"
        assert said[-1].startswith("waiting for 3 of 1024 nodes: n17, n44, n201; ")

        nodes.loop.call_soon_threadsafe(nodes.late.set)
        hub.wait(30, lambda: "")
        with pytest.raises(FourminError, match="node n5 does not answer") as caught:
            hub.start(many)
        assert caught.value.why == "nothing within 2 s"
        assert said[-1].startswith("waiting for 1 of 1024 nodes to look at themselves: n5; ")
        assert not nodes.started

        nodes.speak = True
        hub._timeouts = Timeouts(look=60, silence=2, end=20)
        run = hub.start(many)
        told = [run.messages.get(timeout=30) for _ in range(NODES)]
        assert sorted(message.rank for message in told) == list(range(NODES))
        assert all(message.node == f"n{message.rank}" for message in told)
        assert nodes.started == {
            index: [f"--nnodes={NODES}", f"--node-rank={index}", "--master-addr=127.0.0.1",
                    "--master-port=29999"]
            for index in range(NODES)
        }  # fmt: skip

        nodes.faulty = True
        gone = [run.messages.get(timeout=60) for _ in range(len(STALLED) + len(LOST))]
        why = {message.node: message.data["summary"] for message in gone}
        assert why == {
            **{f"n{index}": "has not answered for 2 s" for index in STALLED},
            **{f"n{index}": "is gone" for index in LOST},
        }
        run.kill()
        assert {node.index for node in hub.lost()} == {*STALLED, *LOST}
        living = set(range(NODES)) - {*STALLED, *LOST}
        assert set(run._outputs) == living
        assert run.exit_code() == 1
    finally:
        nodes.loop.call_soon_threadsafe(nodes.late.set)
        hub.close()
        thread.join(60)
    assert not thread.is_alive()


def test_a_place_that_is_taken_is_refused_and_the_first_stays(job: Job) -> None:
    hub = Hub(2)
    nodes = Simulated(hub.port, hub.token, {})

    async def both() -> None:
        first = asyncio.create_task(nodes.node(0, "first"))
        while not hub._nodes:
            await asyncio.sleep(0.01)
        await asyncio.wait_for(nodes.node(0, "second"), 10)
        hub.close()
        await asyncio.wait_for(first, 10)

    asyncio.run(both())
    assert nodes.refused == ["there is no place 0 that is free"]
    assert hub._nodes[0].name == "first"


def test_a_port_that_is_taken_is_named() -> None:
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(FourminError, match=f"cannot listen on TCP port {port}") as caught:
            Hub(2, (), Surroundings(port=port))
    assert "in use" in caught.value.why
    assert caught.value.next_step.startswith("--address HOST:PORT with another port")
