"""`fourmin run --launcher torchrun` on two hosts, which are network namespaces of this machine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import psutil
import pytest
from benchmark_scripts import load_script

RUN = ["-m", "fourmin", "run", "--launcher", "torchrun", "--nodes", "2", "--procs-per-node", "1"]
CPU = ["--set", "device=cpu"]


@pytest.fixture(scope="module")
def testbed() -> ModuleType:
    return load_script("two_hosts")


@pytest.fixture
def hosts(testbed: ModuleType) -> Iterator[tuple[str, str]]:
    try:
        with testbed.simulated_hosts(1000) as made:
            yield made
    except testbed.UnavailableError as error:
        pytest.skip(f"two hosts cannot be built here: {error}")


def on(host: str, command: list[str], folder: Path, shell: bool = False) -> subprocess.Popen[str]:
    inside = ["bash", "-c", command[0]] if shell else [sys.executable, *command]
    return subprocess.Popen(
        ["ip", "netns", "exec", host, *inside],
        env={**os.environ, "XDG_STATE_HOME": str(folder), "COLUMNS": "400"}, cwd=folder,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip


def children(pid: int) -> list[int]:
    """Children of a host's part: torchrun's agent, once it is started."""
    return [child.pid for child in psutil.Process(pid).children()]


class TwoHosts:
    """The command on the first host, and on the second what it printed for it."""

    def __init__(
        self, hosts: tuple[str, str], folder: Path, *options: str, own: Path | None = None
    ) -> None:
        results = ["--results-dir", str(folder / "results")]
        self.own = own
        self.command = on(hosts[0], [*RUN, *CPU, *options, *results], folder)
        self.folder = folder
        self.line = self.wait_for("fourmin.launch.node").strip()
        assert "10.203.74.1" in self.line
        self.join(hosts[1])

    def join(self, host: str) -> None:
        """Run the line that was printed; the folder `own` is a disk of that host's."""
        # `ip netns exec` gives each command its own mounts.
        mount = f"mount -t tmpfs none {self.own} && " if self.own else ""
        line = f"{mount}exec env {self.line} --name second-host"
        self.other = on(host, [line], self.folder, True)

    def wait_for(self, text: str) -> str:
        assert self.command.stderr is not None
        told = []
        for line in self.command.stderr:
            told.append(line)
            if text in line:
                return line
        raise AssertionError("".join(told))

    @property
    def campaign(self) -> Path:
        (found,) = (self.folder / "results").glob("*digits-*")
        return found


def test_a_lost_host_is_named_before_anything_has_started(
    hosts: tuple[str, str], tmp_path: Path
) -> None:
    run = TwoHosts(hosts, tmp_path, "--practice", "--runs", "1")
    # Its agent is there: both nodes have joined and were found fit.
    while not children(run.other.pid):
        time.sleep(0.02)
    run.other.kill()
    _, errors = run.command.communicate(timeout=60)
    assert run.command.returncode == 2, errors
    assert "second-host" in errors
    kinds = [json.loads(e)["kind"] for e in (run.campaign / "ledger.jsonl").open()]
    assert "run-start" not in kinds


@pytest.mark.slow
def test_two_hosts_converge_and_validate(hosts: tuple[str, str], tmp_path: Path) -> None:
    run = TwoHosts(hosts, tmp_path)
    output, errors = run.command.communicate(timeout=600)
    assert run.command.returncode == 0, errors
    assert "checked: valid" in output
    assert run.other.wait(20) == 0
    result = json.loads((run.campaign / "run-1" / "result.json").read_bytes())
    assert (result["status"], result["configuration"]["nodes"]) == ("converged", 2)
    assert result["clocks"]["node_offset_ms"][1] == pytest.approx(0, abs=5)


@pytest.mark.slow
def test_each_host_stages_for_itself_also_after_a_restart(
    hosts: tuple[str, str], tmp_path: Path
) -> None:
    stage = tmp_path / "stage"
    stage.mkdir()
    options = ["--practice", "--runs", "1", "--stage", str(stage)]
    run = TwoHosts(hosts, tmp_path, *options, own=stage)
    run.wait_for("epoch 2  accuracy")
    run.other.kill()
    run.wait_for("the run goes on when its line is run again")
    run.join(hosts[1])
    output, errors = run.command.communicate(timeout=300)
    assert run.command.returncode == 0, errors
    assert "checked: valid" in output
    log = (run.campaign / "run-1/events.log").read_text()
    assert log.count('"staging_start"') == log.count('"staging_stop"') == 2
    assert list(stage.iterdir()) == []


@pytest.mark.slow
def test_one_staging_folder_for_two_hosts_is_refused_before_the_clock_starts(
    hosts: tuple[str, str], tmp_path: Path
) -> None:
    stage = tmp_path / "stage"
    run = TwoHosts(hosts, tmp_path, "--practice", "--runs", "1", "--stage", str(stage))
    _, errors = run.command.communicate(timeout=120)
    assert run.command.returncode == 2, errors
    assert f"the staging folder {stage} is the same on 2 nodes" in errors
    assert "run-start" not in (run.campaign / "ledger.jsonl").read_text()
    assert list(stage.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("part", ["agent", "node"])
def test_a_host_that_dies_in_training_is_named_and_the_run_goes_on_with_it(
    hosts: tuple[str, str], tmp_path: Path, part: str
) -> None:
    run = TwoHosts(hosts, tmp_path, "--practice", "--runs", "1")
    run.wait_for("epoch 2  accuracy")
    if part == "agent":
        for child in children(run.other.pid):
            os.kill(child, signal.SIGKILL)
        run.wait_for("node second-host lost its agent (exit code -9); restart 1")
    else:
        run.other.kill()
        run.wait_for("node second-host is gone; restart 1")
        run.wait_for("the run goes on when its line is run again")
        run.join(hosts[1])
    output, errors = run.command.communicate(timeout=300)
    assert run.command.returncode == 0, errors
    assert "checked: valid" in output
    result = json.loads((run.campaign / "run-1" / "result.json").read_bytes())
    assert len(result["restarts"]) == 1
    assert result["restarts"][0]["lost_minutes"] > 0


@pytest.mark.slow
def test_a_host_that_does_not_come_back_ends_the_command_with_its_name(
    hosts: tuple[str, str], tmp_path: Path
) -> None:
    run = TwoHosts(hosts, tmp_path, "--practice", "--runs", "1")
    run.wait_for("epoch 2  accuracy")
    began = time.monotonic()
    run.other.kill()
    _, errors = run.command.communicate(timeout=120)
    assert time.monotonic() - began < 60 + 20  # seconds for it to come back, and for the rest
    assert run.command.returncode == 2, errors
    assert "1 of 2 nodes did not answer: second-host" in errors
    kinds = [json.loads(e)["kind"] for e in (run.campaign / "ledger.jsonl").open()]
    assert "run-start" in kinds
