"""The command's end of the nodes: they join, are looked at, start a run and report.

The command listens on TCP; on every node a `fourmin.launch.node` process connects, proves that
it knows the token and stays for as many runs as come. It is pinged all the time, which notices
a host that has gone without a word and measures its clock.
"""

from __future__ import annotations

import os
import queue
import secrets
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import IO, Any

from fourmin.base.errors import FourminError
from fourmin.launch import Surroundings, network, preflight
from fourmin.launch.control import accept_all
from fourmin.launch.job import Job
from fourmin.launch.nodes import Node, NodesRun
from fourmin.launch.timeouts import PING_SECONDS, Timeouts, Waiting, shortened
from fourmin.launch.trial import Trial
from fourmin.launch.wire import TOKEN_VARIABLE, RefusedError, Wire, welcome
from fourmin.recipe.configuration import Configuration


class Hub:
    """Where the nodes of a command meet. `names`: those that are expected, where known."""

    def __init__(
        self,
        nodes: int,
        names: tuple[str, ...] = (),
        around: Surroundings | None = None,
        token: str = "",
    ) -> None:
        self.token = token or secrets.token_hex(16)
        around = around or Surroundings()
        self._timeouts, self._say = around.timeouts, around.say
        self._wanted = nodes
        self._names = names
        self._nodes: dict[int, Node] = {}
        self._changed = threading.Condition()
        self._closed = False
        self._run: NodesRun | None = None
        self._socket = network.listen(around.port)
        self.port = int(self._socket.getsockname()[1])
        for work in (partial(accept_all, self._socket, self._serve), self._ping):
            threading.Thread(target=work, name="fourmin-hub", daemon=True).start()

    def wait(self, seconds: float, ended_early: Callable[[], str]) -> None:
        """Return when all nodes are there.

        Raises FourminError that says which are not, after `seconds` or as soon as `ended_early`
        gives a reason.
        """
        deadline = time.monotonic() + seconds
        waiting = Waiting(self._say, self._wanted, "nodes")
        with self._changed:
            while len(self._present()) < self._wanted:
                reason = ended_early()
                if reason or time.monotonic() > deadline:
                    raise self._missing(reason or f"no answer within {seconds:.0f} s")
                waiting.look(self._absent())
                self._changed.wait(0.2)

    def start(self, job: Job) -> NodesRun:
        """Look at every node and start the workers of `job` on all of them.

        Raises FourminError that names the node which is not fit.
        """
        facts = self._ask(
            "prepare", "facts", "look at themselves", self._timeouts.look, job=job.to_json()
        )
        nodes = [node for node, _ in facts]
        preflight.compare(
            job,
            [
                preflight.NodeFacts(f"node {node.name}", said["facts"], node.clock)
                for node, said in facts
            ],
        )
        run = NodesRun(nodes, job, self._timeouts.end)
        clocks = {
            "offset_ms": [round(node.clock.offset_ms, 3) for node in nodes],
            "uncertainty_ms": [round(node.clock.uncertainty_ms, 3) for node in nodes],
        }
        master = _meeting_address(nodes)
        for node in nodes:
            node.run = run
            place = [
                f"--nnodes={len(nodes)}",
                f"--node-rank={node.index}",
                f"--master-addr={master}",
                f"--master-port={facts[0][1]['port']}",
            ]
            try:
                node.wire.send("start", clocks=clocks, place=place)
            except OSError:
                node.lost = node.lost or "is gone"
            if node.lost:  # perhaps before the run was known to its reader
                run.node_lost(node)
        return run

    def try_nodes(self, configuration: Configuration) -> list[Trial]:
        """Have every node look at itself and measure itself.

        Raises FourminError that names the first that cannot.
        """
        patience = self._timeouts.look + self._timeouts.imports
        asked = {"configuration": configuration.to_json(), "names": [socket.gethostname()]}
        said = self._ask("try", "tried", "measure themselves", patience, **asked)
        return [Trial.of(node.name, answer, node.clock) for node, answer in said]

    def close(self) -> None:
        """Tell all nodes that no run follows, and hang up."""
        self._closed = True
        self._socket.close()
        for node in self._nodes.values():
            with suppress(OSError):
                node.wire.send("bye")
            node.wire.close()

    def lost(self) -> list[Node]:
        """Nodes that were here and are gone; another may take the place of each."""
        return [node for node in self._nodes.values() if node.lost]

    def _present(self) -> list[Node]:
        return [self._nodes[index] for index in sorted(self._nodes) if not self._nodes[index].lost]

    def _ask(
        self, question: str, answer: str, doing: str, seconds: float, **data: Any
    ) -> list[tuple[Node, Mapping[str, Any]]]:
        """What each node answers; their clocks are then known as well as they can be.

        Raises FourminError for the first that cannot or does not answer.
        """
        nodes = self._present()
        for node in nodes:
            while not node.replies.empty():  # to a question that was given up
                node.replies.get_nowait()
            try:
                node.wire.send(question, **data)
            except OSError:
                raise _gone(node, 0) from None
        said: dict[int, Mapping[str, Any]] = {}
        deadline = time.monotonic() + seconds
        waiting = Waiting(self._say, len(nodes), f"nodes to {doing}")
        while late := [node for node in nodes if node.index not in said]:
            waiting.look([node.name for node in late])
            for node in late:
                try:
                    # One moment for all of them, so that the first that is unfit is told.
                    message = node.replies.get(timeout=0.2 / len(late))
                except queue.Empty:
                    if node.lost or time.monotonic() > deadline:
                        raise _gone(node, seconds) from None
                    continue
                if message is None:
                    raise _gone(node, seconds)
                if message["kind"] != answer:
                    raise FourminError(
                        f"node {node.name} is not fit for the run", str(message.get("summary", ""))
                    )
                said[node.index] = message
        while not all(node.clock_is_known() or node.lost for node in nodes):
            for node in nodes:
                node.ping()
            time.sleep(0.02)
        return [(node, said[node.index]) for node in nodes]

    def _serve(self, connection: socket.socket) -> None:
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            wire = welcome(connection, self.token)
        except (OSError, RefusedError):
            connection.close()
            return
        joined = wire.receive()
        node = self._join(wire, joined) if joined and joined["kind"] == "join" else None
        if node is None:
            wire.close()
            return
        while (message := wire.receive()) is not None:
            node.heard = time.monotonic()
            self._take(node, message)
        node.lost = node.lost or "is gone"
        node.replies.put(None)
        if node.run is not None:
            node.run.node_lost(node)

    def _join(self, wire: Wire, message: Mapping[str, Any]) -> Node | None:
        with self._changed:
            index = message.get("index")
            taken = {node.index for node in self._present()}
            if index is None:
                index = next(i for i in range(self._wanted + 1) if i not in taken)
            if not 0 <= index < self._wanted or index in taken:
                with suppress(OSError):
                    wire.send("refused", summary=f"there is no place {index} that is free")
                return None
            node = Node(index, str(message["name"]), wire)
            self._nodes[index] = node
            self._changed.notify_all()
        return node

    @staticmethod
    def _take(node: Node, message: Mapping[str, Any]) -> None:
        if message["kind"] == "pong":
            node.take_pong(message)
        elif message["kind"] in ("facts", "tried", "unfit"):
            node.replies.put(message)
        elif node.run is not None:
            node.run.take(node, message)

    def _ping(self) -> None:
        while not self._closed:
            for node in list(self._nodes.values()):
                if node.lost:
                    continue
                if time.monotonic() - node.heard > self._timeouts.silence:
                    node.lost = f"has not answered for {self._timeouts.silence:.0f} s"
                    node.wire.close()
                else:
                    node.ping()
            time.sleep(PING_SECONDS)

    def _missing(self, reason: str) -> FourminError:
        here, absent = sorted(node.name for node in self._present()), self._absent()
        return FourminError(
            f"{len(absent)} of {self._wanted} nodes did not answer: {shortened(absent)}",
            f"answered: {shortened(here) or 'none'}; {reason}",
            f"every node must reach this host on TCP port {self.port}, and have this fourmin",
        )

    def _absent(self) -> list[str]:
        """What the nodes are called that are not here: by name, or by their place."""
        here = {node.index: node.name for node in self._present()}
        if self._names:
            return [name for name in self._names if name not in here.values()]
        gone = {node.index: node.name for node in self.lost()}
        return [gone.get(i, f"place {i}") for i in range(self._wanted) if i not in here]


def _meeting_address(nodes: list[Node]) -> str:
    """Where all nodes reach the first one: as it is seen on the way to the command.

    A first node on the command's own host may be connected through loopback; then it is where
    the others reach the command.
    """
    first = nodes[0].wire
    if not network.is_loopback(first.peer_address):
        return first.peer_address
    for other in nodes[1:]:
        if not network.is_loopback(other.wire.local_address):
            return other.wire.local_address
    return first.peer_address


def _gone(node: Node, seconds: float) -> FourminError:
    return FourminError(
        f"node {node.name} does not answer",
        node.lost or f"nothing within {seconds:.0f} s",
        "see that it is up, or leave it out",
    )


class Step:
    """A hub, and the process here by which its nodes come: all of them, or the first one."""

    def __init__(
        self,
        hub: Hub,
        command: Sequence[str],
        name: str,
        timeouts: Timeouts,
        output: IO[bytes] | None = None,
    ) -> None:
        """Start `command`, which messages call `name`, and wait for all nodes.

        It prints to `output`, where that is given. Raises FourminError where a node does not come.
        """
        self.hub = hub
        self._name, self._timeouts, self._output = name, timeouts, output
        try:
            self.process = subprocess.Popen(
                command,
                env={**os.environ, TOKEN_VARIABLE: hub.token},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output and subprocess.STDOUT,
                # Ctrl-C goes to the command alone, which then ends the workers in order.
                start_new_session=True,
            )
        except BaseException:
            hub.close()
            raise
        try:
            self.wait(timeouts.join)
        except BaseException:
            self.give_up()
            raise

    def wait(self, seconds: float) -> None:
        """Wait for all nodes, as `Hub.wait` does; also those that come again."""
        self.hub.wait(seconds, self._ended_early)

    def printed(self) -> str:
        """What the process has printed."""
        if self._output is None:
            return ""
        self._output.seek(0)
        return self._output.read().decode(errors="replace").strip()

    def give_up(self) -> None:
        """End it though not all of the nodes may have come."""
        # srun passes it on; a process that waits for the hub would wait long.
        self.process.terminate()
        self.end()

    def end(self) -> None:
        """Send the nodes home and wait for the process; end it if it does not end."""
        self.hub.close()
        try:
            self.process.wait(self._timeouts.end)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def _ended_early(self) -> str:
        """Why no more nodes will come, or ''."""
        code = self.process.poll()
        if code is None:
            return ""
        return "; ".join([f"{self._name} ended with {code}", *self.printed().splitlines()[-4:]])
