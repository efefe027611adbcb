"""The testbed measures, removes what it made, also after a failure, and says what is missing."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from benchmark_scripts import BENCHMARKS, load_script

from fourmin.recipe.allreduces import NAMES

LISTEN = """
import socket
server = socket.create_server(("10.203.74.3", 5000))
print("ready", flush=True)
for _ in range(2):
    peer, count = server.accept()[0], 0
    while data := peer.recv(1 << 16):
        count += len(data)
    print(count)
"""
SEND = """
import socket
socket.create_connection(("10.203.74.3", 5000)).sendall(bytes(4 << 20))
"""


@pytest.fixture(scope="module")
def testbed() -> ModuleType:
    return load_script("two_hosts")


@pytest.fixture
def permitted(testbed: ModuleType) -> None:
    try:
        with testbed.simulated_hosts(400):
            pass
    except testbed.UnavailableError as error:
        pytest.skip(f"two hosts cannot be built here: {error}")


def namespaces() -> set[str]:
    done = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True)
    return {line.split()[0] for line in done.stdout.splitlines() if line.startswith("fm")}


def pids(host: str) -> list[str]:
    done = subprocess.run(["ip", "netns", "pids", host], capture_output=True, text=True, check=True)
    return done.stdout.split()


def fail_with_a_process(testbed: ModuleType, seen: list[Any]) -> None:
    with testbed.simulated_hosts(400) as hosts:
        assert set(hosts) <= namespaces()
        process = subprocess.Popen(["ip", "netns", "exec", hosts[0], "sleep", "60"])
        while str(process.pid) not in pids(hosts[0]):
            assert process.poll() is None
        seen += [*hosts, process]
        raise ZeroDivisionError


@pytest.mark.usefixtures("permitted")
def test_a_failure_leaves_no_namespace_and_no_process(testbed: ModuleType) -> None:
    seen: list[Any] = []
    with pytest.raises(ZeroDivisionError):
        fail_with_a_process(testbed, seen)
    *hosts, process = seen
    assert not set(hosts) & namespaces()
    assert process.wait(5) == -signal.SIGKILL


@pytest.mark.usefixtures("permitted")
def test_every_host_reaches_every_other_and_the_link_lets_segments_pass_whole(
    testbed: ModuleType,
) -> None:
    with testbed.simulated_hosts(400, 3) as hosts:
        listen = ["ip", "netns", "exec", hosts[2], sys.executable, "-c", LISTEN]
        listener = subprocess.Popen(listen, stdout=subprocess.PIPE, text=True)
        assert listener.stdout is not None
        listener.stdout.readline()
        for host in hosts[:2]:
            subprocess.run(["ip", "netns", "exec", host, sys.executable, "-c", SEND], check=True)
        assert listener.communicate(timeout=30)[0].split() == ["4194304", "4194304"]
        shown = ["tc", "-n", hosts[0], "-s", "-j", "qdisc", "show", "dev", "link0"]
        (bucket,) = json.loads(subprocess.run(shown, capture_output=True, check=True).stdout)
        assert bucket["bytes"] > 4 << 20
        # Each waits for the bucket once or twice; packets of 1,500 bytes would 3,000 times.
        assert bucket["overlimits"] < 1000


@pytest.mark.usefixtures("permitted")
def test_a_program_that_fails_is_an_error_with_its_output(
    testbed: ModuleType, tmp_path: Path
) -> None:
    script = tmp_path / "fails.py"
    script.write_text("raise SystemExit('no such thing')")
    with (
        testbed.simulated_hosts(400) as hosts,
        pytest.raises(RuntimeError, match="no such thing"),
    ):
        testbed.torchrun(hosts, 1, [str(script)], 60)


def test_missing_tools_are_named(testbed: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with (
        pytest.raises(testbed.UnavailableError, match="ip is missing"),
        testbed.simulated_hosts(1),
    ):
        pass


@pytest.mark.slow
@pytest.mark.usefixtures("permitted")
def test_the_last_line_is_json_with_every_algorithm_and_both_steps() -> None:
    process = subprocess.Popen(
        [sys.executable, str(BENCHMARKS / "two_hosts.py"), "--ranks", "2", "--sizes", "4096,262144",
         "--iterations", "3", "--seconds", "2", "--blocks", "2"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(BENCHMARKS.parent)},
    )  # fmt: skip
    output, errors = process.communicate(timeout=240)
    assert process.returncode == 0, errors
    result = json.loads(output.splitlines()[-1])
    assert (result["hosts"], result["ranks"], result["rate_mbit"]) == (2, 2, 400)
    assert set(result["milliseconds"]) == {"4096", "262144"}
    for times in result["milliseconds"].values():
        assert set(times) == set(NAMES)
        assert all(time > 0 for time in times.values())
    # 262,144 bytes cross a link of 400 Mbit/s in 5.2 ms, less what the bucket lets pass at once.
    assert min(result["milliseconds"]["262144"].values()) > 3.0
    assert set(result["step"]) == {"tuned", "ddp"}
    assert all(rate > 0 for rate in result["step"].values())
    assert set(result["exposed_ms"]) == {"overlapped", "after_backward"}
    assert not {f"fm{process.pid}a", f"fm{process.pid}b"} & namespaces()
