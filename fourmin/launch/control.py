"""The line between the command and its workers on one node: a Unix socket with JSON lines.

It carries three things that nothing else can: rank 0 asks whether the clock may start and is
answered when the ledger has it on disk; a worker that fails says why before it is ended; and
when either side is gone the other notices at once, because the kernel closes the socket. So no
worker outlives a command that was killed, whatever became of the launcher between them.
"""

from __future__ import annotations

import json
import os
import queue
import socket
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fourmin.errors import FourminError

ORPHANED = 75
"""Exit code of a worker whose command has gone."""


@dataclass(frozen=True)
class Message:
    """What a worker said. `kind`: hello, ready, failed, finished, or lost when it hung up.

    `node` names the worker's node where there are several; with the kind `node-lost` it is the
    node itself that has gone, and the rank is -1.
    """

    kind: str
    rank: int
    pid: int
    data: Mapping[str, Any]
    node: str = ""


def accept_all(listener: socket.socket, serve: Callable[[socket.socket], None]) -> None:
    """Serve every connection in a thread of its own, until the listener is closed."""
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        threading.Thread(target=serve, args=(connection,), daemon=True).start()


class ControlServer:
    """The command's end. Messages of all workers arrive in `messages`."""

    def __init__(self, path: Path) -> None:
        self.messages: queue.Queue[Message] = queue.Queue()
        self._connections: dict[int, socket.socket] = {}
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.bind(str(path))
        self._socket.listen(128)
        threading.Thread(
            target=accept_all,
            args=(self._socket, self._listen),
            name="fourmin-control",
            daemon=True,
        ).start()

    def go(self, rank: int) -> None:
        """Answer a worker's `ready`."""
        self._connections[rank].sendall(b"go\n")

    def close(self) -> None:
        """Hang up on all workers; those that still run end themselves."""
        self._socket.close()
        for connection in self._connections.values():
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            connection.close()

    def _listen(self, connection: socket.socket) -> None:
        rank, pid, finished = -1, 0, False
        try:
            with connection.makefile("rb") as lines:
                for line in lines:
                    data = json.loads(line)
                    kind, rank, pid = str(data["kind"]), int(data["rank"]), int(data["pid"])
                    finished = finished or kind in ("finished", "failed")
                    self._connections[rank] = connection
                    self.messages.put(Message(kind, rank, pid, data))
        except (OSError, ValueError, KeyError):
            pass
        if rank >= 0 and not finished:
            self.messages.put(Message("lost", rank, pid, {}))


class ControlClient:
    """A worker's end. The process ends itself when the command has gone."""

    def __init__(self, path: Path, rank: int) -> None:
        """Connect and say hello. Raises FourminError when the command has gone already."""
        self._rank = rank
        self._go = threading.Event()
        self._leaving = False
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.connect(str(path))
        except OSError as error:
            raise FourminError(
                "the command that started this worker has gone", str(error)
            ) from None
        self._send("hello")
        threading.Thread(target=self._watch, name="fourmin-watch", daemon=True).start()

    def ask_to_start(self) -> None:
        """Say that this worker is ready, and wait until the run's start is in the ledger."""
        self._send("ready")
        self._go.wait()

    def fail(self, summary: str, details: str, *, final: bool) -> None:
        """Say why this worker ends early; `final` where trying again cannot help."""
        self._leaving = True
        self._send("failed", summary=summary, details=details[-20_000:], final=final)

    def finish(self) -> None:
        """Say that this worker has done its work."""
        self._leaving = True
        self._send("finished")

    def _send(self, kind: str, **data: str | bool) -> None:
        message = {"kind": kind, "rank": self._rank, "pid": os.getpid(), **data}
        try:
            self._socket.sendall(json.dumps(message).encode() + b"\n")
        except OSError:
            os._exit(ORPHANED)

    def _watch(self) -> None:
        try:
            while self._socket.recv(64):
                self._go.set()
        except OSError:
            pass
        if not self._leaving:
            os._exit(ORPHANED)
