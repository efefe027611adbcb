"""Hardware as the operating system and NVML tell it, one function a topic.

Host names, addresses and serial numbers are never read, and clock rates are kept apart (`limits`):
a scheduler gives other nodes to the next run, and the system must stay the same.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")

_VECTOR_FLAGS = ("amx_tile", "asimd", "avx", "avx2", "avx512f", "sme", "sve")
"""Instruction sets that decide how many operations a core does in a cycle."""


def processor() -> dict[str, Any]:
    """CPU model, number of sockets and of logical CPUs that this process may use."""
    model, sockets = platform.machine(), set()
    for line in _text_of("/proc/cpuinfo").splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("model name", "Model"):
            model = value.strip()
        elif name.strip() == "physical id":
            sockets.add(value.strip())
    return {
        "model": model,
        "architecture": platform.machine(),
        "sockets": max(1, len(sockets)),
        "cpus": len(os.sched_getaffinity(0)),
    }


def memory_gib() -> int | None:
    """Main memory in GiB, rounded, so that what a kernel reserves makes no other system."""
    total = memory_of("MemTotal")
    return None if total is None else round(total)


def memory_of(name: str) -> float | None:
    """A number of /proc/meminfo in GiB; None where it is not told."""
    text = _text_of("/proc/meminfo")
    found = re.search(rf"^{name}:\s+(\d+) kB", text, re.M)
    return int(found[1]) / 2**20 if found else None


def _text_of(path: str) -> str:
    """A file of the kernel, empty where it cannot be read."""
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def network_types() -> list[str]:
    """Kinds of network links that are up and their rate, such as `ethernet 100 Gbit/s`."""
    kinds = set()
    for device in sorted(Path("/sys/class/net").glob("*")):
        with suppress(OSError, ValueError):
            if not (device / "device").exists() or (device / "operstate").read_text() != "up\n":
                continue
            infiniband = (device / "type").read_text().strip() == "32"
            kind = "infiniband" if infiniband else "ethernet"
            megabits = int((device / "speed").read_text())
            kinds.add(f"{kind} {megabits / 1000:g} Gbit/s" if megabits > 0 else kind)
    return sorted(kinds)


def accelerators() -> list[dict[str, Any]]:
    """The visible NVIDIA GPUs: model, memory in GiB and how many there are of each."""

    def kinds(nvml: Any) -> list[dict[str, Any]]:
        found: dict[tuple[str, int], int] = {}
        for handle in _handles(nvml):
            memory = round(nvml.nvmlDeviceGetMemoryInfo(handle).total / 2**30)
            key = (_text(nvml.nvmlDeviceGetName(handle)), memory)
            found[key] = found.get(key, 0) + 1
        return [
            {"model": model, "memory_gib": memory, "count": count}
            for (model, memory), count in sorted(found.items())
        ]

    return _ask_nvml(kinds) or []


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

    def busy(nvml: Any) -> list[str]:
        found = []
        for index, handle in _visible(nvml):
            processes = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
            if processes:
                used = nvml.nvmlDeviceGetMemoryInfo(handle).used / 2**30
                found.append(f"GPU {index}: {len(processes)} processes, {used:.1f} GiB in use")
        return found

    return _ask_nvml(busy) or []


def compute_capabilities() -> list[str] | None:
    """CUDA compute capabilities of the visible GPUs, such as `9.0`, each once.

    None where there are GPUs and the driver does not say.
    """

    def capabilities(nvml: Any) -> list[str]:
        found = {nvml.nvmlDeviceGetCudaComputeCapability(one) for _, one in _visible(nvml)}
        return [".".join(map(str, one)) for one in sorted(found)]

    return _ask_nvml(capabilities) if usable_gpus() else []


def driver_version() -> str | None:
    return _ask_nvml(lambda nvml: _text(nvml.nvmlSystemGetDriverVersion()))


def cuda_of_driver() -> str | None:
    """The newest CUDA version that the driver can run, such as 12.8; None without a driver."""
    found = _ask_nvml(lambda nvml: nvml.nvmlSystemGetCudaDriverVersion_v2())
    return f"{found // 1000}.{found % 1000 // 10}" if found else None


def limits() -> dict[str, Any]:
    """What bounds the speed and the power of processor and GPUs; null where it is not told.

    Clocks are the highest that a chip may rise to, never the present ones. Of several GPUs of
    one model the last is asked.
    """
    return {
        "processor": {"max_mhz": _processor_max_mhz(), "flags": _processor_flags()},
        "accelerators": _ask_nvml(_gpu_limits) or [],
    }


def _processor_max_mhz() -> int | None:
    found = []
    for path in Path("/sys/devices/system/cpu").glob("cpu[0-9]*/cpufreq/cpuinfo_max_freq"):
        with suppress(OSError, ValueError):
            found.append(int(path.read_text()) // 1000)
    return max(found, default=None)


def _processor_flags(known: Iterable[str] = _VECTOR_FLAGS) -> list[str]:
    """Those of `known` that the kernel lists."""
    listed = re.search(r"^(?:flags|Features)\s*:(.*)$", _text_of("/proc/cpuinfo"), re.M)
    words = set(listed.group(1).split()) if listed else set()
    return [flag for flag in known if flag in words]


def computes_bf16() -> bool:
    """Whether the processor has instructions for BF16: AVX-512, AMX or Arm's."""
    return bool(_processor_flags(("avx512_bf16", "amx_bf16", "bf16")))


def _gpu_limits(nvml: Any) -> list[dict[str, Any]]:
    handles = {_text(nvml.nvmlDeviceGetName(handle)): handle for handle in _handles(nvml)}

    def ask(handle: Any, name: str, *more: Any) -> Any:
        try:
            return getattr(nvml, name)(handle, *more)
        except nvml.NVMLError:
            return None

    found = []
    for model, handle in sorted(handles.items()):
        capability = ask(handle, "nvmlDeviceGetCudaComputeCapability")
        milliwatts = ask(handle, "nvmlDeviceGetPowerManagementLimitConstraints")
        found.append(
            {
                "model": model,
                "cores": ask(handle, "nvmlDeviceGetNumGpuCores"),
                "capability": capability and ".".join(map(str, capability)),
                "max_mhz": ask(handle, "nvmlDeviceGetMaxClockInfo", nvml.NVML_CLOCK_SM),
                "power_watts": milliwatts and milliwatts[1] // 1000,
            }
        )
    return found


def _ask_nvml(question: Callable[[Any], T]) -> T | None:
    """What NVML answers; None where there is no driver or it does not say."""
    import pynvml

    try:
        pynvml.nvmlInit()
        try:
            return question(pynvml)
        finally:
            pynvml.nvmlShutdown()
    except pynvml.NVMLError:
        return None


def _visible(nvml: Any) -> Iterator[tuple[int, Any]]:
    """Index and handle of each GPU that CUDA_VISIBLE_DEVICES does not hide."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    indices = [part.strip() for part in visible.split(",")] if visible is not None else []
    # Devices may be named by UUID as well; then all are looked at.
    named = bool(indices) and all(index.isdigit() for index in indices)
    for index, handle in enumerate(_handles(nvml)):
        if not named or str(index) in indices:
            yield index, handle


def _handles(nvml: Any) -> Iterator[Any]:
    return map(nvml.nvmlDeviceGetHandleByIndex, range(nvml.nvmlDeviceGetCount()))


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode()
