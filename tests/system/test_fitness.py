"""What makes a node unfit, from real limits and invented versions."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections import namedtuple
from pathlib import Path

import pytest

from fourmin.system.fitness import (
    bad_nccl,
    no_loopback,
    no_semaphores,
    node_problems,
    small_shared_memory,
    unresolved,
)


@pytest.mark.parametrize(
    ("version", "machine", "word"),
    [
        ("2.10.3", "x86_64", "corrupts data"),
        ("2.11.3", "x86_64", "corrupts data"),
        ("2.11.4", "x86_64", ""),
        ("2.9.9", "x86_64", ""),  # 9 is less than 10
        ("2.18.5", "x86_64", "NVLS"),
        ("2.18.6", "x86_64", ""),
        ("2.19.3", "x86_64", "NVLS"),
        ("2.28.9", "x86_64", ""),
        ("2.28.9", "aarch64", "Arm"),
        ("2.29.2", "x86_64", "hangs"),
        ("2.29.3", "aarch64", ""),
        ("2.30.7", "x86_64", ""),
    ],
)
def test_versions_of_nccl_that_are_known_as_bad(version: str, machine: str, word: str) -> None:
    said = bad_nccl(version, machine)
    assert bool(said) == bool(word)
    assert word in said
    assert not said or said.startswith(f"NCCL {version} ")


def test_names_that_do_not_resolve() -> None:
    assert unresolved(["localhost", "nowhere.invalid", "127.0.0.1"]) == ["nowhere.invalid"]
    assert "the host name nowhere.invalid does not resolve" in [
        *node_problems(["nowhere.invalid"], 2, 0)
    ]


@pytest.mark.parametrize(
    ("limit", "workers", "told"),
    [(1024, 256, False), (1024, 257, True), (4607, 2048, True), (4608, 2048, False)],
)
def test_too_few_open_files(limit: int, workers: int, told: bool) -> None:
    """512 of its own and two for each worker; the shell's limit, as a job has it."""
    program = f"from fourmin.system.fitness import few_descriptors as f; print(f({workers}))"
    done = subprocess.run(
        ["bash", "-c", f'ulimit -n {limit} && exec "$0" "$@"', sys.executable, "-c", program],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert (f"may open {limit} files, and {workers} workers" in done.stdout) == told
    assert bool(done.stdout.strip()) == told


def test_shared_memory_that_is_too_small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(2**26, 0, 2**26))
    assert "has 0.06 GiB" in small_shared_memory(8, tmp_path)
    assert small_shared_memory(1, tmp_path) == ""
    assert "has 0.00 GiB" in small_shared_memory(8, tmp_path / "none")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(2**40, 0, 2**30))
    assert small_shared_memory(8, tmp_path) == ""


def said_apart(setup: str, function: str) -> str:
    """What a check says in a process with file systems and a network of its own."""
    program = f"from fourmin.system.fitness import {function} as f; print(f())"
    command = ["unshare", "--net", "--mount", "sh", "-c", f'{setup} && exec "$@"', "sh"]
    if subprocess.run([*command, "true"], capture_output=True, check=False).returncode:
        pytest.skip("namespaces, mounts and links take root")
    return subprocess.check_output([*command, sys.executable, "-c", program], text=True).strip()


@pytest.mark.parametrize(("kibibytes", "words"), [(64, "No space left on device"), (1024, "")])
def test_semaphores_that_find_no_room(kibibytes: int, words: str) -> None:
    setup = f"mount -t tmpfs -o size={kibibytes}k tmpfs /dev/shm"
    said = said_apart(setup, "no_semaphores")
    assert said.endswith(words)
    assert bool(said) == bool(words)


@pytest.mark.parametrize(
    ("hosts", "words"),
    [
        ("::1 localhost", ""),
        ("127.0.0.1 localhost", "localhost is 127.0.0.1, which this host does not have"),
    ],
)
def test_a_host_that_has_ipv6_alone(hosts: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text(f"{hosts}\n")
    mount = f"mount --bind {tmp_path}/hosts /etc/hosts"
    setup = f"{mount} && ip link set lo up && ip addr del 127.0.0.1/8 dev lo"
    assert said_apart(setup, "no_loopback") == words


def test_this_host_has_what_a_run_needs() -> None:
    assert (no_semaphores(), no_loopback()) == ("", "")
