"""How torch, cuDNN and the C library are set in every process that trains or measures training."""

from __future__ import annotations

import ctypes
import os
import resource
from pathlib import Path
from typing import Any

import torch

from fourmin.system.hardware import memory_gib

_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4  # malloc.h
_CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")


_ONE_ORDER = {
    # A cuBLAS that shares a workspace among streams adds in another order from time to time.
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
    # Rings add in the order of ranks; what switches and network cards add, they add as it comes.
    "NCCL_ALGO": "Ring",
    "NCCL_NVLS_ENABLE": "0",
    "NCCL_COLLNET_ENABLE": "0",
}
"""Read by CUDA's libraries when they are first used."""


def set_backends(threads: int, deterministic: bool = False) -> None:
    """Compute in `threads` threads; convolutions are chosen by measurement.

    With `deterministic` by cuDNN's own rules, which choose the same again, and every sum has an
    order; to be called before the first use of a GPU. torch raises RuntimeError where it has no
    such kernel.
    """
    torch.set_num_threads(threads)
    torch.backends.cudnn.benchmark = not deterministic
    torch.backends.cudnn.deterministic = deterministic
    torch.use_deterministic_algorithms(deterministic)
    if deterministic:
        os.environ.update(_ONE_ORDER)
        # It would fill all memory that nobody reads before it is written.
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    # torch lets cuDNN round FP32 convolutions to TF32 by itself; fp32 here means FP32.
    torch.backends.cudnn.allow_tf32 = False


def numerics() -> dict[str, Any]:
    """What decides bits beside devices and versions, for the log of a deterministic run."""
    return {"cpu_capability": torch.backends.cpu.get_cpu_capability(), "variables": _ONE_ORDER}


def keep_freed_memory(device: str, processes: int) -> bool:
    """Let freed memory stay with this process, for the next step to use; whether it does.

    Only for training on a CPU, after a step to warm up. glibc gives large blocks back to the
    kernel, which clears each page anew when it is touched; a step allocates what the step before
    freed.
    Without that a large step is about a third faster (benchmarks/README.md), but the heap can
    grow by as much, so it is done only if `processes` such as this one would fit twice. Who has
    set MALLOC_* or GLIBC_TUNABLES has decided already; other C libraries are left alone.
    """
    if device != "cpu":
        return False
    decided = any(name.startswith(("MALLOC_", "GLIBC_")) for name in os.environ)
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    if decided or mallopt is None or 2 * peak * processes > _memory_limit():
        return False
    return bool(mallopt(_M_MMAP_MAX, 0) and mallopt(_M_TRIM_THRESHOLD, -1))


def _memory_limit() -> int:
    """Bytes that the processes of this machine, or of this container, may use together."""
    machine = (memory_gib() or 0) << 30
    try:
        container = _CGROUP_LIMIT.read_text().strip()
    except OSError:
        return machine
    return min(machine, int(container)) if container.isdigit() else machine
