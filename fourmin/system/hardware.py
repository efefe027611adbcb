"""Hardware as the operating system and NVML tell it, one function a topic.

Host names, addresses, serial numbers and clock rates are never read: a scheduler gives other
nodes to the next run, and the system must stay the same.
"""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path
from typing import Any


def processor() -> dict[str, Any]:
    """CPU model, number of sockets and of logical CPUs that this process may use."""
    model, sockets = platform.machine(), set()
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            name, _, value = line.partition(":")
            if name.strip() in ("model name", "Model"):
                model = value.strip()
            elif name.strip() == "physical id":
                sockets.add(value.strip())
    except OSError:
        pass
    return {
        "model": model,
        "architecture": platform.machine(),
        "sockets": max(1, len(sockets)),
        "cpus": len(os.sched_getaffinity(0)),
    }


def memory_gib() -> int | None:
    """Main memory in GiB, rounded, so that what a kernel reserves makes no other system."""
    try:
        match = re.search(r"^MemTotal:\s+(\d+) kB", Path("/proc/meminfo").read_text(), re.M)
    except OSError:
        return None
    return round(int(match.group(1)) / 2**20) if match else None


def network_types() -> list[str]:
    """Kinds of network links that are up and their rate, such as `ethernet 100 Gbit/s`."""
    kinds = set()
    for device in sorted(Path("/sys/class/net").glob("*")):
        try:
            if not (device / "device").exists() or (device / "operstate").read_text() != "up\n":
                continue
            infiniband = (device / "type").read_text().strip() == "32"
            kind = "infiniband" if infiniband else "ethernet"
            megabits = int((device / "speed").read_text())
            kinds.add(f"{kind} {megabits / 1000:g} Gbit/s" if megabits > 0 else kind)
        except (OSError, ValueError):
            continue
    return sorted(kinds)


def accelerators() -> list[dict[str, Any]]:
    """The visible NVIDIA GPUs: model, memory in GiB and how many there are of each."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return []
    try:
        found: dict[tuple[str, int], int] = {}
        for index in range(pynvml.nvmlDeviceGetCount()):
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            name = pynvml.nvmlDeviceGetName(handle)
            memory = round(pynvml.nvmlDeviceGetMemoryInfo(handle).total / 2**30)
            key = (name if isinstance(name, str) else name.decode(), memory)
            found[key] = found.get(key, 0) + 1
        return [
            {"model": model, "memory_gib": memory, "count": count}
            for (model, memory), count in sorted(found.items())
        ]
    except pynvml.NVMLError:
        return []
    finally:
        pynvml.nvmlShutdown()


def usable_gpus() -> int:
    """How many NVIDIA GPUs a process here may use: those there are, less what
    CUDA_VISIBLE_DEVICES hides.
    """
    present: int = sum(kind["count"] for kind in accelerators())
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return present
    named = [part for part in visible.split(",") if part.strip() not in ("", "-1")]
    return min(present, len(named))


def busy_gpus() -> list[str]:
    """The visible GPUs on which other processes compute now, each with what it is used for."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return []
    try:
        found = []
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        indices = [part.strip() for part in visible.split(",")] if visible is not None else None
        for index in range(pynvml.nvmlDeviceGetCount()):
            # Devices may be named by UUID as well; then all are looked at.
            if indices and all(i.isdigit() for i in indices) and str(index) not in indices:
                continue
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            processes = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
            if processes:
                used = pynvml.nvmlDeviceGetMemoryInfo(handle).used / 2**30
                found.append(f"GPU {index}: {len(processes)} processes, {used:.1f} GiB in use")
        return found
    except pynvml.NVMLError:
        return []
    finally:
        pynvml.nvmlShutdown()


def driver_version() -> str | None:
    import pynvml

    try:
        pynvml.nvmlInit()
        version = pynvml.nvmlSystemGetDriverVersion()
        pynvml.nvmlShutdown()
    except pynvml.NVMLError:
        return None
    return version if isinstance(version, str) else str(version.decode())


def boot_digest() -> str | None:
    """A digest of this boot's identity: monotonic clocks compare only within one boot."""
    from fourmin.base.canonical import sha256_hex

    try:
        identity = Path("/proc/sys/kernel/random/boot_id").read_bytes().strip()
    except OSError:
        return None
    return sha256_hex(b"fourmin-boot" + identity)[:16]
