"""Processors, memory, GPUs, clock, and the folder that results are written to."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from fourmin.base.errors import FourminError
from fourmin.base.files import require_writable, user_folder
from fourmin.base.processes import Scratch
from fourmin.doctor.check import MISSING, OK, WARNING, Check
from fourmin.ledger.known import against_memory
from fourmin.ledger.lock import UNSUPPORTED
from fourmin.system.fitness import few_descriptors, small_shared_memory, unresolved
from fourmin.system.hardware import (
    accelerators,
    busy_gpus,
    memory_gib,
    memory_of,
    processor,
    usable_gpus,
)

WORKER_GIB = 1.0
"""Memory of one worker of `digits` (0.77 GiB measured), rounded up; ResNet-50 takes more."""
LEAST_DISK_GIB = 1.0
BUSY_SHARE = 0.5
"""Share of the processors that others may keep busy before a time to train is not worth much."""
_FIRST_YEAR_SECONDS = 1_704_067_200.0  # 2024 began; a clock before it was never set
_CLOCK_NOT_SYNCHRONIZED = 5  # TIME_ERROR of adjtimex(2)
_TIMEX_BYTES = 512  # more than any struct timex

_LOCKS = """
import fcntl, sys
with open(sys.argv[1], "r+b") as file:
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        sys.exit(0)
sys.exit(1)
"""


def processors() -> Iterator[Check]:
    """How many there are for this process, and whether others use them."""
    found = processor()
    cpus = found["cpus"]
    message = f"{cpus} of {found['model']}"
    load = os.getloadavg()[0]
    if load > BUSY_SHARE * (os.cpu_count() or cpus):
        yield Check(
            "processors",
            WARNING,
            f"{message}; {load:.1f} processes were running in the last minute",
            "a time to train is measured on an idle machine: end what else runs",
        )
    else:
        yield Check("processors", OK, message)


def memory(workers: int) -> Iterator[Check]:
    """Main memory for the workers of the main job, and shared memory for several GPUs."""
    available = memory_of("MemAvailable")
    message = f"{memory_gib()} GiB"
    if available is not None:
        message += f", {available:.1f} GiB available"
        if available < workers * WORKER_GIB:
            message += f"; {workers} workers of digits need {workers * WORKER_GIB:g} GiB"
            yield Check("memory", WARNING, message, "--procs-per-node 1, or end what else runs")
            return
    yield Check("memory", OK, message)
    if problem := small_shared_memory(usable_gpus()):
        yield Check("shared memory", WARNING, problem, "a container with --shm-size=8g")


def limits(workers: int) -> Iterator[Check]:
    """How many files a process may open, and whether this host knows itself."""
    if problem := few_descriptors(workers):
        yield Check("open files", WARNING, problem, "ulimit -n 65536, or the site's limits.conf")
    for name in unresolved([socket.gethostname()]):
        message = f"{name}, this host's own, has no address: enough for one node, not for several"
        yield Check("host name", WARNING, message, "a line in /etc/hosts, or GLOO_SOCKET_IFNAME")


def gpus() -> Iterator[Check]:
    """The GPUs, and whether somebody computes on them."""
    found = accelerators()
    if not found:
        yield Check("gpus", OK, "none: presets for the CPU can run")
        return
    message = ", ".join(
        f"{one['count']} x {one['model']}, {one['memory_gib']} GiB" for one in found
    )
    usable = usable_gpus()
    if usable < sum(one["count"] for one in found):
        message += f"; CUDA_VISIBLE_DEVICES leaves {usable} of them"
    busy = busy_gpus()
    if busy:
        next_step = "a time to train is measured on idle GPUs: end what runs there"
        yield Check("gpus", WARNING, f"{message}; in use: {'; '.join(busy)}", next_step)
    else:
        yield Check("gpus", OK, f"{message}, idle")


def clock() -> Iterator[Check]:
    """Whether the clock was ever set, and whether something keeps it right."""
    if time.time() < _FIRST_YEAR_SECONDS:
        yield Check("clock", WARNING, f"it says {time.ctime()}", "set it, and run chrony or ntpd")
        return
    if _synchronized() is False:
        yield Check(
            "clock",
            WARNING,
            "nothing synchronizes it: enough for one node, not for several",
            "run chrony or ntpd on every node (in a container: on its host)",
        )
    else:
        yield Check("clock", OK, "set, and it runs with its kernel's agreement")


def results_folder(folder: Path) -> Iterator[Check]:
    """Whether results can be written and locked there, and the caches beside it."""
    try:
        nearest = require_writable(folder, "results folder")
    except FourminError as error:
        yield _refused("results folder", MISSING, error, "--results-dir, or its permissions")
        return
    yield _locking(nearest)
    free = shutil.disk_usage(nearest).free / 2**30
    if free < LEAST_DISK_GIB:
        message = f"{free:.2f} GiB are free in {folder}"
        yield Check("disk", WARNING, message, "make room, or name another folder")


def caches() -> Iterator[Check]:
    """Whether the folder can be written in which fourmin keeps datasets that it makes."""
    try:
        folder = user_folder("XDG_CACHE_HOME", ".cache")
        require_writable(folder, "cache")
    except FourminError as error:
        step = "set XDG_CACHE_HOME to a folder you can write to"
        yield _refused("cache", MISSING, error, step)
        return
    yield Check("cache", OK, f"datasets that fourmin makes are kept in {folder}")


def keeping() -> Iterator[Check]:
    """Whether campaigns will be remembered, and a run has a place for what it needs meanwhile."""
    if forgetful := against_memory():
        yield _refused("earlier campaigns", WARNING, forgetful)
    else:
        yield Check("earlier campaigns", OK, "those that are run here are remembered")
    try:
        Scratch().remove()
    except FourminError as error:
        yield _refused("temporary folder", MISSING, error)


def _refused(topic: str, status: str, error: FourminError, step: str = "") -> Check:
    message = ": ".join(filter(None, (error.what, error.why)))
    return Check(topic, status, message, step or error.next_step)


def _locking(folder: Path) -> Check:
    """Whether a lock that this process holds is refused to another, as the ledger needs."""
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".fourmin-probe-") as probe:
            fcntl.lockf(probe, fcntl.LOCK_EX | fcntl.LOCK_NB)
            other = subprocess.run(
                [sys.executable, "-S", "-c", _LOCKS, probe.name], check=False, timeout=30
            )
    except OSError as error:
        if error.errno in UNSUPPORTED:
            message = f"{folder} refuses locks: campaigns use a lease file there"
            return Check("results folder", WARNING, message, "a file system with POSIX locks")
        reason = os.strerror(error.errno or errno.EIO)
        return Check("results folder", MISSING, f"{folder}: {reason}", "name another folder")
    if other.returncode:
        return Check(
            "results folder",
            WARNING,
            f"{folder} gives one lock to two processes: two writers would not notice each other",
            "a local folder, or NFS and Lustre mounted with locks",
        )
    return Check("results folder", OK, f"{folder} can be written and locked")


def _synchronized() -> bool | None:
    """What the kernel knows of its clock; None where it does not say."""
    buffer = ctypes.create_string_buffer(_TIMEX_BYTES)  # modes 0: only ask
    try:
        state = int(ctypes.CDLL(None, use_errno=True).adjtimex(buffer))
    except (AttributeError, OSError):
        return None
    return None if state < 0 else state != _CLOCK_NOT_SYNCHRONIZED
