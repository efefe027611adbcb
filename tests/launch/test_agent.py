"""The process that forks agents, and what it has below it; real ones of torchrun."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from fourmin.launch.agent import Agent, Forge, agent_arguments, descendants

SUPPORT = str(Path(__file__).parents[1] / "support")


@pytest.fixture(scope="module")
def forge() -> Iterator[Forge]:
    """One for all tests, as one serves all runs of a campaign."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", SUPPORT)
        patch.delenv("CUDA_DEVICE_MAX_CONNECTIONS", raising=False)
        made = Forge()
        made.prepare(3)
        yield made
        made.close()


def start(forge: Forge, folder: Path, code: int = -1) -> Agent:
    """An agent of two workers, which end with `code`, or sleep where that is below 0."""
    arguments = agent_arguments(2, ["--standalone"], "sleeping_worker")
    return forge.spawn([*arguments, str(folder), str(code)], 3, folder, {"TOLD": "yes"})


def workers(folder: Path) -> list[dict[str, Any]]:
    """What both have said."""
    deadline = time.monotonic() + 60
    paths = [folder / f"worker-{rank}" for rank in range(2)]
    while not all(path.exists() for path in paths):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return [json.loads(path.read_text()) for path in paths]


def test_workers_share_what_was_imported_and_have_an_environment_of_their_own(
    forge: Forge, tmp_path: Path
) -> None:
    agent = start(forge, tmp_path, 0)
    assert agent.wait() == 0
    first, second = workers(tmp_path)
    assert (first["RANK"], second["RANK"], first["WORLD_SIZE"]) == ("0", "1", "2")
    for said in (first, second):
        assert said["forged"]
        assert (said["TOLD"], said["OMP_NUM_THREADS"]) == ("yes", "3")
        assert said["MASTER_ADDR"] == "localhost"  # whatever this host is called
        assert said["CUDA_DEVICE_MAX_CONNECTIONS"] == "32"
    assert agent.output() == 2 * "a line of a worker\n"
    agent.kill()
    assert forge._process is not None
    assert descendants(forge._process.pid) == []


def test_a_worker_s_failure_is_the_agent_s_and_the_forge_goes_on(
    forge: Forge, tmp_path: Path
) -> None:
    for name, code in (("a", 7), ("b", 0)):
        folder = tmp_path / name
        folder.mkdir()
        before = forge._process
        assert start(forge, folder, code).wait() == (1 if code else 0)
        assert forge._process is before


def test_workers_that_a_dead_agent_left_are_killed_with_it(forge: Forge, tmp_path: Path) -> None:
    agent = start(forge, tmp_path)
    pids = [said["pid"] for said in workers(tmp_path)]
    assert forge._process is not None
    (own,) = psutil.Process(forge._process.pid).children()
    assert own.name() == "fourmin-agent"
    own.kill()
    assert agent.wait() == -signal.SIGKILL
    assert all(psutil.pid_exists(pid) for pid in pids)
    agent.kill()
    assert not any(alive(pid) for pid in pids)


def test_nothing_is_forked_after_a_kill_that_comes_too_early(tmp_path: Path) -> None:
    forge = Forge()
    agent = start(forge, tmp_path)
    agent.kill()  # it still imports
    assert agent.exit_code() == -signal.SIGKILL
    time.sleep(0.5)
    assert [*tmp_path.glob("worker-*")] == []


def test_what_is_below_ends_with_a_command_that_was_killed(tmp_path: Path) -> None:
    """The input of the forge closes, as it does when the kernel ends the command."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", SUPPORT)
        forge = Forge()
        start(forge, tmp_path)
        pids = [said["pid"] for said in workers(tmp_path)]
        process = forge._process
        assert process is not None
        agents = descendants(process.pid)
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(30) == 75
    assert not any(alive(pid) for pid in agents if pid not in pids)
    for pid in pids:  # these hear it on their line to the command, which this test has not
        os.kill(pid, signal.SIGKILL)


def test_workers_import_anew_where_cuda_was_asked_before(tmp_path: Path) -> None:
    code = (
        "import sys, torch\n"
        "torch.cuda._is_in_bad_fork = lambda: True\n"
        "from fourmin.training.agent import run_agent\n"
        f"sys.exit(run_agent({agent_arguments(2, ['--standalone'], 'sleeping_worker')!r}\n"
        f"                   + [{str(tmp_path)!r}, '0']))\n"
    )
    script = tmp_path / "script.py"
    script.write_text(f"if __name__ == '__main__':\n    {code.replace(chr(10), chr(10) + '    ')}")
    variables = {**os.environ, "PYTHONPATH": SUPPORT}
    subprocess.run([sys.executable, str(script)], env=variables, check=True, timeout=120)
    assert not any(said["forged"] for said in workers(tmp_path))


def alive(pid: int) -> bool:
    """Whether it still runs, soon after it was killed."""
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return False
        except psutil.NoSuchProcess:
            return False
        time.sleep(0.02)
    return True
