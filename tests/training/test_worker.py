"""What a worker tells the command when it cannot go on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from fourmin.launch.control import ControlServer

WORKER = """
import json, socket, sys, threading
from pathlib import Path
from types import SimpleNamespace
from fourmin.launch.job import JOB_VARIABLE, Job
from fourmin.training import worker
from fourmin.training.comm.base import CommunicationError

path = Path(sys.argv[1])
alone = SimpleNamespace(algorithm="synchronous")
Job.read = lambda _: SimpleNamespace(control_socket=path, configuration=alone)
peer = socket.socket(socket.AF_UNIX)
peer.connect(str(path))
peer.sendall(json.dumps({"kind": "hello", "rank": 1, "pid": 1}).encode() + b"\\n")

def take_part(job, control, child):
    threading.Timer(0.02, peer.close).start()
    raise CommunicationError("the all-reduce failed")

sys.modules["fourmin.training.session"] = SimpleNamespace(take_part=take_part)
worker.main()
"""


def test_a_peer_that_dies_a_moment_after_its_connections_is_told_of_first(tmp_path: Path) -> None:
    server = ControlServer(tmp_path / "control")
    process = subprocess.run(
        [sys.executable, "-c", WORKER, str(tmp_path / "control")],
        env={**os.environ, "RANK": "0", "FOURMIN_JOB": ""},
        timeout=60,
        check=False,
    )
    assert process.returncode == 1
    told = [server.messages.get(timeout=10) for _ in range(5)]
    assert [(one.kind, one.rank) for one in told if one.kind not in ("hello", "imported")] == [
        ("lost", 1),
        ("failed", 0),
    ]
    server.close()
