"""A node that has joined the command, and the workers of a run on all of them."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Mapping
from typing import Any

from fourmin.launch.control import ControlMessage
from fourmin.launch.job import Job
from fourmin.launch.preflight import Clock
from fourmin.launch.wire import Wire

CLOCK_SAMPLES = 8


class Node:
    """One node that has joined."""

    def __init__(self, index: int, name: str, wire: Wire) -> None:
        self.index = index
        self.name = name
        self.wire = wire
        self.replies: queue.Queue[Mapping[str, Any] | None] = queue.Queue()
        self.run: NodesRun | None = None
        self.heard = time.monotonic()
        self.lost = ""
        self._clocks: list[Clock] = []

    @property
    def clock(self) -> Clock:
        return min(self._clocks, key=lambda c: c.uncertainty_ms, default=Clock())

    def ping(self) -> None:
        """Ask for an answer; the reader takes it."""
        try:
            self.wire.send("ping", sent_ns=time.time_ns())
        except OSError:
            pass  # the reader notices

    def take_pong(self, message: Mapping[str, Any]) -> None:
        """The answer to a ping: both clocks, read at nearly the same time."""
        now, sent = time.time_ns(), int(message["sent_ns"])
        middle = (now + sent) / 2
        self._clocks.append(Clock((message["now_ns"] - middle) / 1e6, (now - sent) / 2e6))
        del self._clocks[:-CLOCK_SAMPLES]

    def clock_is_known(self) -> bool:
        """Whether there are as many answers as are kept."""
        return len(self._clocks) == CLOCK_SAMPLES


class NodesRun:
    """The workers of one run on all nodes."""

    def __init__(self, nodes: list[Node], job: Job, end_seconds: float) -> None:
        self.messages: queue.Queue[ControlMessage] = queue.Queue()
        self._nodes = nodes
        self._end_seconds = end_seconds
        self._per_node = job.configuration.procs_per_node
        self._codes: dict[int, int] = {}
        self._outputs: dict[int, str] = {}
        self._changed = threading.Condition()

    def go(self, rank: int) -> None:
        self._nodes[rank // self._per_node].wire.send("go", rank=rank)

    def exit_code(self) -> int | None:
        """None while an agent runs, else the first exit code that is not 0."""
        if len(self._codes) < len(self._nodes):
            return None
        return next((code for code in self._codes.values() if code), 0)

    def kill(self) -> None:
        """End every worker of the run on every node, and wait until it is so."""
        for node in self._nodes:
            try:
                node.wire.send("kill")
            except OSError:
                continue  # it has gone, and its reader says so
        with self._changed:
            self._changed.wait_for(
                lambda: all(n.lost or n.index in self._outputs for n in self._nodes),
                self._end_seconds,
            )
        for node in self._nodes:
            node.run = None

    def output(self) -> str:
        """What the nodes printed, each line with the node's name; the failed ones last."""
        order = sorted(self._outputs, key=lambda index: self._codes.get(index) not in (0, None))
        return "\n".join(
            f"[{self._nodes[index].name}] {line}"
            for index in order
            for line in self._outputs[index].splitlines()
        )

    def take(self, node: Node, message: Mapping[str, Any]) -> None:
        kind = message["kind"]
        if kind == "worker":
            said = message["message"]
            self.messages.put(
                ControlMessage(
                    str(said["kind"]), int(said["rank"]), int(said["pid"]), said["data"], node.name
                )
            )
        elif kind == "ended":
            self._codes[node.index] = int(message["code"])
            if message["code"] and not message["told"]:
                self._lose(node, f"lost its agent (exit code {message['code']})")
        elif kind == "killed":
            self._codes.setdefault(node.index, int(message["code"]))
            with self._changed:
                self._outputs[node.index] = str(message["output"])
                self._changed.notify_all()

    def node_lost(self, node: Node) -> None:
        self._codes.setdefault(node.index, 1)
        self._lose(node, node.lost)
        with self._changed:
            self._changed.notify_all()

    def _lose(self, node: Node, summary: str) -> None:
        details = "it was ended, crashed or cannot be reached any more"
        data = {"summary": summary, "details": details}
        self.messages.put(ControlMessage("node-lost", -1, 0, data, node.name))
