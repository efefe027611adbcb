"""What makes a node unfit for a run over several, as far as it can be told without torch."""

from __future__ import annotations

import multiprocessing
import resource
import shutil
import socket
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

SHARED_MEMORY_GIB = 1.0
"""NCCL and the loaders of several GPUs exchange data by /dev/shm."""
SEMAPHORES = 32
"""More than an agent of a few workers makes; each takes a page."""
OWN_DESCRIPTORS = 512
"""What a worker opens by itself: files, devices, pipes."""
DESCRIPTORS_A_WORKER = 2
"""Sockets to each other worker: gloo connects all with all, and the store each with the first."""

_TWO_PORTS = "crashes with NVLS and two-port NICs (NVIDIA/nccl#1043): NCCL_NVLS_ENABLE=0, 2.20"
_BAD_NCCL: tuple[tuple[str, str, str, str], ...] = (
    # From this version on, below that one, on this machine ('': on any), what happens and helps.
    ("2.10.3", "2.11.4", "", "corrupts data where an NVLink is down (NVIDIA/nccl#596): 2.11.4"),
    ("2.18.5", "2.18.6", "", _TWO_PORTS),
    ("2.19.3", "2.19.4", "", _TWO_PORTS),
    ("2.29.2", "2.29.3", "", "hangs (pytorch/pytorch#174338): 2.29.3"),
    ("0", "2.29.3", "aarch64", "may hang on Arm (release notes of 2.29.3): 2.29.3"),
)


def bad_nccl(version: str, machine: str) -> str:
    """What an NCCL version is known for on such a machine (`platform.machine()`), or ''."""
    for first, fixed, where, what in _BAD_NCCL:
        known = _numbers(first) <= _numbers(version) < _numbers(fixed)
        if known and where in ("", machine):
            return f"NCCL {version} {what} or newer helps"
    return ""


def unresolved(names: Iterable[str]) -> list[str]:
    """Those of `names` that stand for no address on this host."""
    found = []
    for name in names:
        try:
            socket.getaddrinfo(name, None)
        except OSError:
            found.append(name)
    return found


def small_shared_memory(workers: int, folder: Path = Path("/dev/shm")) -> str:
    """Whether several workers on GPUs of a node may run out of shared memory, or ''."""
    free = shutil.disk_usage(folder).free / 2**30 if folder.is_dir() else 0.0
    if workers < 2 or free >= SHARED_MEMORY_GIB:
        return ""
    return f"{folder} has {free:.2f} GiB: NCCL may fail on several GPUs"


def no_semaphores() -> str:
    """Why the semaphores of torchrun's agent, which lie in /dev/shm, cannot be made, or ''."""
    try:
        # Of fork: the others start a process that watches them.
        _ = [multiprocessing.get_context("fork").Lock() for _ in range(SEMAPHORES)]
    except OSError as error:
        return f"locks between processes cannot be made in /dev/shm: {error.strerror}"
    return ""


def no_loopback() -> str:
    """Why nothing can listen at `localhost`, where the workers of one node meet, or ''."""
    try:
        places = socket.getaddrinfo("localhost", 0, type=socket.SOCK_STREAM)
        for family, _, _, _, address in places:
            with suppress(OSError), socket.socket(family) as listening:
                listening.bind(address)
                return ""
    except OSError as error:
        return f"the name localhost does not resolve: {error.strerror}"
    return f"localhost is {places[0][4][0]}, which this host does not have"


def few_descriptors(workers: int) -> str:
    """Whether a process may open too few files for a run of so many workers in all, or ''."""
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    need = OWN_DESCRIPTORS + DESCRIPTORS_A_WORKER * workers
    if most in (resource.RLIM_INFINITY, -1) or most >= need:
        return ""
    return f"a process may open {most} files, and {workers} workers need {need} (ulimit -n)"


def node_problems(names: Iterable[str], workers: int, gpus: int) -> Iterator[str]:
    """What is wrong with this node for `workers` in all, `gpus` of them on GPUs here.

    `names` are hosts that it has to reach; its own is one of them for gloo.
    """
    for name in unresolved([*names, socket.gethostname()]):
        yield f"the host name {name} does not resolve"
    yield from filter(None, (small_shared_memory(gpus), few_descriptors(workers)))


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())
