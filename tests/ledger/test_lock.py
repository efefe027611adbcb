"""One writer a campaign: between processes, after a kill, and on file systems without locks."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fourmin.base.errors import FourminError
from fourmin.ledger import lock as module
from fourmin.ledger.lock import CampaignLock

HOLD = """
import sys
from pathlib import Path
from fourmin.ledger.lock import CampaignLock
with CampaignLock(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture
def holder(tmp_path: Path) -> Any:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.communicate()


def test_a_second_process_is_refused_and_told_who_holds_it(holder: Any, tmp_path: Path) -> None:
    with pytest.raises(FourminError, match="another process") as raised, CampaignLock(tmp_path):
        pass
    assert raised.value.exit_code == 2
    assert f"process {holder.pid} on" in raised.value.why


def test_a_kill_leaves_nothing_behind(holder: Any, tmp_path: Path) -> None:
    holder.kill()
    holder.wait()
    with CampaignLock(tmp_path):
        assert f"process {os.getpid()} " in (tmp_path / ".lock").read_text()


def test_the_lock_is_given_back_and_leaves_nothing(tmp_path: Path) -> None:
    for _ in range(3):
        with CampaignLock(tmp_path):
            pass
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_its_holder_removed_meanwhile_is_no_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = []

    def open_too_early(path: Path, *rest: Any) -> int:
        descriptor = open_file(path, *rest)
        if not opened:
            path.unlink()  # as the process that held it does
        opened.append(descriptor)
        return descriptor

    open_file = os.open
    monkeypatch.setattr(module.os, "open", open_too_early)
    with CampaignLock(tmp_path):
        assert len(opened) == 2
        assert f"process {os.getpid()} " in (tmp_path / ".lock").read_text()


def test_other_errors_are_not_hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EIO, "broken disk")

    monkeypatch.setattr(fcntl, "lockf", refuse)
    with pytest.raises(OSError, match="broken disk"), CampaignLock(tmp_path):
        pass


@pytest.fixture
def no_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "no locks available")

    monkeypatch.setattr(fcntl, "lockf", refuse)


@pytest.mark.usefixtures("no_locks")
def test_a_lease_takes_the_place_of_a_lock(tmp_path: Path) -> None:
    with CampaignLock(tmp_path):
        assert (tmp_path / ".lock-lease").read_text() == f"{module._identity()}\n"
        with pytest.raises(FourminError, match="another process") as raised:
            CampaignLock(tmp_path).__enter__()
        assert str(os.getpid()) in raised.value.why
    assert list(tmp_path.iterdir()) == []
    with CampaignLock(tmp_path):
        pass


@pytest.mark.usefixtures("no_locks")
def test_the_lease_of_a_dead_process_is_taken_over(tmp_path: Path) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    host = module._identity().split()[-1]
    (tmp_path / ".lock-lease").write_text(f"process {dead.pid} on {host}\n")
    with CampaignLock(tmp_path):
        assert str(os.getpid()) in (tmp_path / ".lock-lease").read_text()


@pytest.mark.usefixtures("no_locks")
@pytest.mark.parametrize(
    "holder", ["process 4194999 on another-host", "somebody", "process x on here"]
)
def test_a_lease_of_another_host_is_respected(tmp_path: Path, holder: str) -> None:
    (tmp_path / ".lock-lease").write_text(f"{holder}\n")
    with pytest.raises(FourminError, match="another process"), CampaignLock(tmp_path):
        pass
    assert (tmp_path / ".lock-lease").read_text() == f"{holder}\n"
