"""A connection between the command and one node: TCP that carries JSON lines both ways.

Both ends prove that they know the token, and neither sends it: whoever finds the port can
neither take part in a run nor tell a node what to start. What follows is not encrypted; it
crosses the network that the gradients cross.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import socket
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from fourmin.launch.timeouts import CONNECT_SECONDS, HANDSHAKE_SECONDS

TOKEN_VARIABLE = "FOURMIN_TOKEN"
_LONGEST_GREETING = 4096


class RefusedError(Exception):
    """The other end does not know the token, or is something else altogether."""


class Wire:
    """A connection, which `welcome` or `connect` has established: nothing else of it is believed.

    Sending is safe from any thread; one thread receives.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._lines = connection.makefile("rb")
        self._lock = threading.Lock()

    @property
    def local_address(self) -> str:
        return _plain(self._socket.getsockname()[0])

    @property
    def peer_address(self) -> str:
        return _plain(self._socket.getpeername()[0])

    def send(self, kind: str, **data: Any) -> None:
        """Send one message. Raises OSError when the other end has gone."""
        self.greet(kind=kind, **data)

    def greet(self, **data: Any) -> None:
        """Send a line; the first ones are no messages yet. Raises OSError as `send` does."""
        line = json.dumps(data).encode() + b"\n"
        with self._lock:
            self._socket.sendall(line)

    def greeting(self, name: str) -> str:
        """What the first line says of `name`. Raises RefusedError for anything else, or OSError."""
        line = self._lines.readline(_LONGEST_GREETING)
        try:
            return str(json.loads(line)[name])
        except (ValueError, KeyError, TypeError):
            raise RefusedError("no greeting of fourmin's") from None

    def receive(self) -> dict[str, Any] | None:
        """The next message; None when the other end has gone or talks nonsense."""
        try:
            line = self._lines.readline()
            message = json.loads(line) if line.endswith(b"\n") else None
        except (OSError, ValueError):
            return None
        return message if isinstance(message, dict) and "kind" in message else None

    def close(self) -> None:
        """Hang up; a thread that waits in `receive` gets None."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


def welcome(connection: socket.socket, token: str) -> Wire:
    """The command's side of the greeting. Raises RefusedError or OSError."""
    connection.settimeout(HANDSHAKE_SECONDS)
    wire, ours = Wire(connection), secrets.token_hex(16)
    wire.greet(fourmin=ours)
    theirs = wire.greeting("node")
    if not hmac.compare_digest(wire.greeting("proof"), _proof(token, "node", ours, theirs)):
        raise RefusedError("another token")
    wire.greet(proof=_proof(token, "command", ours, theirs))
    connection.settimeout(None)
    return wire


def connect(
    addresses: Sequence[str],
    port: int,
    token: str,
    seconds: float,
    silence: float | None = None,
) -> Wire:
    """Reach the command at the first of `addresses` that answers, within `seconds`.

    Names are resolved anew each time: they may come later than the host that asks. The other end
    counts as gone when nothing was heard from it for `silence` seconds.
    Raises ConnectionError that says what each address answered last.
    """
    deadline = time.monotonic() + seconds
    while True:
        answers = []
        for address in addresses:
            try:
                return _greet(address, port, token, silence)
            except (OSError, RefusedError) as error:
                answers.append(f"{address} port {port}: {error}")
        if time.monotonic() > deadline:
            raise ConnectionError("; ".join(answers))
        time.sleep(0.2)


def _greet(address: str, port: int, token: str, silence: float | None) -> Wire:
    connection = socket.create_connection((address, port), timeout=CONNECT_SECONDS)
    try:
        connection.settimeout(HANDSHAKE_SECONDS)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        wire, ours = Wire(connection), secrets.token_hex(16)
        theirs = wire.greeting("fourmin")
        wire.greet(node=ours)
        wire.greet(proof=_proof(token, "node", theirs, ours))
        if not hmac.compare_digest(wire.greeting("proof"), _proof(token, "command", theirs, ours)):
            raise RefusedError("another token")
        connection.settimeout(silence)
    except BaseException:
        connection.close()
        raise
    return wire


def _proof(token: str, role: str, command: str, node: str) -> str:
    return hmac.new(token.encode(), f"{role} {command} {node}".encode(), hashlib.sha256).hexdigest()


def _plain(address: str) -> str:
    """An IPv4 address as such, where a socket for both families gives it as IPv6."""
    return address.removeprefix("::ffff:")
