"""The line between command and workers: answers, failures, and what happens when one is gone."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fourmin.base.errors import FourminError
from fourmin.launch.control import ORPHANED, ControlClient, ControlServer

WORKER = """
import sys, time
from pathlib import Path
from fourmin.launch.control import ControlClient
client = ControlClient(Path(sys.argv[1]), int(sys.argv[2]))
what = sys.argv[3]
if what == "ask": client.ask_to_start(); client.finish()
if what == "fail": client.fail("out of luck", "the details", final=True)
if what == "sleep": time.sleep(60)
"""


def worker(path: Path, rank: int, what: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", WORKER, str(path), str(rank), what])


@pytest.fixture
def server(tmp_path: Path) -> ControlServer:
    return ControlServer(tmp_path / "control")


def test_rank_0_waits_until_it_is_answered(server: ControlServer, tmp_path: Path) -> None:
    process = worker(tmp_path / "control", 0, "ask")
    assert [server.messages.get(timeout=10).kind for _ in range(2)] == ["hello", "ready"]
    time.sleep(0.2)
    assert process.poll() is None
    server.go(0)
    assert server.messages.get(timeout=10).kind == "finished"
    assert process.wait(10) == 0


def test_a_failure_arrives_with_its_reason(server: ControlServer, tmp_path: Path) -> None:
    process = worker(tmp_path / "control", 3, "fail")
    server.messages.get(timeout=10)
    message = server.messages.get(timeout=10)
    assert (message.kind, message.rank) == ("failed", 3)
    assert message.data["summary"] == "out of luck"
    assert process.wait(10) == 0
    assert server.messages.empty()


def test_a_killed_worker_is_noticed_at_once(server: ControlServer, tmp_path: Path) -> None:
    process = worker(tmp_path / "control", 1, "sleep")
    hello = server.messages.get(timeout=10)
    assert hello.pid == process.pid
    process.send_signal(signal.SIGKILL)
    # The broken line tells, and no timer: the server has none.
    message = server.messages.get(timeout=60)
    assert (message.kind, message.rank, message.pid) == ("lost", 1, process.pid)
    process.wait()


def test_a_worker_ends_itself_when_the_command_has_gone(
    server: ControlServer, tmp_path: Path
) -> None:
    process = worker(tmp_path / "control", 0, "sleep")
    server.messages.get(timeout=10)
    server.close()
    assert process.wait(5) == ORPHANED


def test_a_worker_that_comes_too_late_is_told(tmp_path: Path) -> None:
    with pytest.raises(FourminError, match="has gone"):
        ControlClient(tmp_path / "nobody", 0)


def test_garbage_on_the_socket_harms_nobody(server: ControlServer, tmp_path: Path) -> None:
    import socket

    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.connect(str(tmp_path / "control"))
        stranger.sendall(b"not json\n" + os.urandom(100))
    process = worker(tmp_path / "control", 0, "ask")
    assert server.messages.get(timeout=10).kind == "hello"
    process.kill()
    process.wait()


@pytest.mark.parametrize("dead", [0, 1])
def test_who_died_comes_before_who_failed_for_it(
    server: ControlServer, tmp_path: Path, dead: int
) -> None:
    """Both are there when the command looks: whatever it reads first, the death is the reason."""
    lines = {rank: socket.socket(socket.AF_UNIX) for rank in (0, 1)}

    def say(rank: int, kind: str, **data: object) -> None:
        line = {"kind": kind, "rank": rank, "pid": 100 + rank, **data}
        lines[rank].sendall(json.dumps(line).encode() + b"\n")

    for rank, line in lines.items():
        line.connect(str(tmp_path / "control"))
        say(rank, "hello")
        assert server.messages.get(timeout=10).kind == "hello"
    with server._lock:
        lines[dead].close()
        say(1 - dead, "failed", summary="the peer has gone", details="", final=False)
        time.sleep(0.05)
    told = [server.messages.get(timeout=10) for _ in range(2)]
    assert [(one.kind, one.rank) for one in told] == [("lost", dead), ("failed", 1 - dead)]
    lines[1 - dead].close()
    time.sleep(0.05)
    assert server.messages.empty()


def test_a_line_may_come_in_pieces(server: ControlServer, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(str(tmp_path / "control"))
        said = b"".join(
            json.dumps({"kind": kind, "rank": 5, "pid": 7, "final": True}).encode() + b"\n"
            for kind in ("hello", "failed")
        )
        for at in range(0, len(said), 7):
            line.sendall(said[at : at + 7])
            time.sleep(0.002)
        assert [server.messages.get(timeout=10).kind for _ in range(2)] == ["hello", "failed"]


def test_progress_never_waits_for_a_command_that_does_not_listen(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "control"))
        listener.listen()
        client = ControlClient(tmp_path / "control", 0)
        connection, _ = listener.accept()
        for number in range(5000):
            client._quiet_until = 0.0
            client.progress(f"batch {number}", 60.0)
        connection.setblocking(False)
        received = b""
        try:
            while True:
                received += connection.recv(1 << 20)
        except BlockingIOError:
            pass
        client.progress("batch too soon", 60.0)
        client.stopped()
        lines = [json.loads(line) for line in received.splitlines()]
        assert lines[-1]["doing"] == f"batch {len(lines) - 2}"
        assert 10 < len(lines) < 5000
        assert json.loads(connection.recv(1 << 10)) == {
            "kind": "stopped", "rank": 0, "pid": os.getpid(), "within": None,
        }  # fmt: skip
        client._leaving = True
        connection.close()
