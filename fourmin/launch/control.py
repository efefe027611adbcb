"""The line between the command and its workers on one node: a Unix socket with JSON lines.

It carries what nothing else can: rank 0 asks whether the clock may start and is answered when the
ledger has it on disk; it says that the clock has stopped; it says what it is at, so that its
silence is noticed, and what the user is to know; a worker that fails says why before it is ended;
and when either side is gone the other notices at once, because the kernel closes the socket. So no
worker outlives a command that was killed, whatever became of the launcher between them.
"""

from __future__ import annotations

import json
import os
import queue
import select
import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fourmin.base.mishaps import told

REPORT_SECONDS = 1.0
"""How often a worker says at most what it is at."""
ORPHANED = 75
"""Exit code of a worker whose command has gone."""


@dataclass(frozen=True)
class ControlMessage:
    """What a worker said. `kind`: hello, imported, ready, progress, note, stopped, failed,
    finished, or lost when it hung up. `received_ms` is when the command heard it, by its own clock.

    `node` names the worker's node where there are several; with the kind `node-lost` it is the
    node itself that has gone, and the rank is -1.
    """

    kind: str
    rank: int
    pid: int
    data: Mapping[str, Any]
    node: str = ""
    received_ms: int = field(default_factory=lambda: time.time_ns() // 1_000_000)


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
        self.messages: queue.Queue[ControlMessage] = queue.Queue()
        self._workers: dict[int, _Worker] = {}
        self._lock = threading.Lock()
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
        self._workers[rank].connection.sendall(b"go\n")

    def close(self) -> None:
        """Hang up on all workers; those that still run end themselves."""
        self._socket.close()
        with self._lock:
            for worker in self._workers.values():
                with suppress(OSError):
                    worker.connection.shutdown(socket.SHUT_RDWR)
                worker.connection.close()

    def _listen(self, connection: socket.socket) -> None:
        worker = _Worker(connection)
        readable = select.poll()
        readable.register(connection, select.POLLIN)
        try:
            while not worker.gone:
                readable.poll()
                with self._lock:
                    self._hear(worker)
        except (OSError, ValueError, KeyError):
            with self._lock:
                self._lose(worker)

    def _hear(self, worker: _Worker) -> None:
        """Take what a worker has said. The caller holds the lock, so that all that was received
        is in `messages` when somebody else looks. Raises OSError, ValueError or KeyError.
        """
        try:
            received = worker.connection.recv(1 << 16, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        if not received:
            self._lose(worker)
            return
        *lines, worker.unread = (worker.unread + received).split(b"\n")
        for line in lines:
            data = json.loads(line)
            kind, worker.rank, worker.pid = str(data["kind"]), int(data["rank"]), int(data["pid"])
            self._workers[worker.rank] = worker
            worker.ended = worker.ended or kind in ("finished", "failed")
            if kind == "failed" and not data["final"]:
                # One that has died is why others fail, though their words may be read before its
                # silence is noticed.
                for other in self._workers.values():
                    if other.has_hung_up():
                        self._lose(other)
            self.messages.put(ControlMessage(kind, worker.rank, worker.pid, data))

    def _lose(self, worker: _Worker) -> None:
        worker.gone = True
        if worker.rank >= 0 and not worker.ended:
            worker.ended = True
            self.messages.put(ControlMessage("lost", worker.rank, worker.pid, {}))


@dataclass
class _Worker:
    """A worker as the command knows it."""

    connection: socket.socket
    rank: int = -1
    pid: int = 0
    unread: bytes = b""
    """The beginning of a line."""
    ended: bool = False
    """Whether it has said how it ended, or its silence was told."""
    gone: bool = False

    def has_hung_up(self) -> bool:
        """Whether nothing more will come: all that it said was received, and it closed the line."""
        try:
            return not self.connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True


class ControlClient:
    """A worker's end. The process ends itself when the command has gone."""

    def __init__(self, path: Path, rank: int) -> None:
        """Connect and say hello. Raises FourminError when the command has gone already."""
        self._rank = rank
        self._go = threading.Event()
        self._leaving = False
        self._quiet_until = 0.0
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with told("the command that started this worker has gone"):
            self._socket.connect(str(path))
        self._send("hello")
        threading.Thread(target=self._watch, name="fourmin-watch", daemon=True).start()

    def imported(self) -> None:
        """Say that all is imported, and the others are joined next."""
        self._send("imported")

    def ask_to_start(self) -> None:
        """Say that this worker is ready, and wait until the run's start is in the ledger."""
        self._send("ready")
        self._go.wait()

    def progress(self, doing: str, within: float) -> None:
        """Say what this worker is at; it hangs if nothing follows `within` seconds.

        Sent at most once a second, and not at all while the command does not listen: training
        never waits for it.
        """
        now = time.monotonic()
        if now >= self._quiet_until:
            self._quiet_until = now + REPORT_SECONDS
            self._send("progress", wait=False, doing=doing, within=within + REPORT_SECONDS)

    def note(self, text: str) -> None:
        """Say something to the user."""
        self._send("note", text=text)

    def stopped(self) -> None:
        """Say that the run's clock has just stopped; the silence that follows means nothing."""
        self._send("stopped", within=None)

    def fail(self, summary: str, details: str, *, final: bool, lasting: bool = False) -> None:
        """Say why this worker ends early; `final` where trying again cannot help, `lasting` until
        what is around it is put right.
        """
        self._leaving = True
        details = details[-20_000:]
        self._send("failed", summary=summary, details=details, final=final, lasting=lasting)

    def finish(self) -> None:
        self._leaving = True
        self._send("finished")

    def _send(self, kind: str, *, wait: bool = True, **data: str | bool | float | None) -> None:
        message = {"kind": kind, "rank": self._rank, "pid": os.getpid(), **data}
        line = json.dumps(message).encode() + b"\n"
        try:
            sent = self._socket.send(line, 0 if wait else socket.MSG_DONTWAIT)
            if sent < len(line):
                self._socket.sendall(line[sent:])
        except BlockingIOError:
            return
        except OSError:
            os._exit(ORPHANED)

    def _watch(self) -> None:
        with suppress(OSError):
            while self._socket.recv(64):
                self._go.set()
        if not self._leaving:
            os._exit(ORPHANED)
