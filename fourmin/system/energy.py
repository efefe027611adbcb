"""Energy as this node's own meters count it: NVML for GPUs, RAPL for processors.

Both are counters that only grow, so energy is a difference and needs no integration of power.
RAPL's counters wrap round (at 65 or 262 kJ, minutes under load), so they are read now and then.
They count whole processor packages, whatever else ran on them, and most systems let only root
read them. What cannot be read is no meter, and is never estimated.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from fourmin.base.text import how_many

POWERCAP = Path("/sys/class/powercap")
SAMPLE_SECONDS = 20.0
"""Between two readings of RAPL's counters: a package would need 3 kW to wrap unseen."""


class Meter(Protocol):
    """Counts joules between `start` and `stop`. `method` and `scope` say how and of what."""

    method: str
    scope: str

    def start(self) -> None: ...

    def stop(self) -> float | None:
        """Joules since `start`; None if a counter could not be read or was set back."""


def open_meter(device: str, gpus: Sequence[str] = (), powercap: Path = POWERCAP) -> Meter | None:
    """The meter of what trains: on `cuda` the GPUs with these UUIDs, on `cpu` the processors.

    None where there is none that can be read.
    """
    if device == "cuda":
        return GpuMeter.open(gpus)
    return ProcessorMeter.open(powercap)


class GpuMeter:
    """NVML's total energy counters (mJ since the driver was loaded; Volta and later)."""

    method = "nvml"

    def __init__(self, nvml: Any, handles: Sequence[Any]) -> None:
        self._nvml, self._handles = nvml, handles
        self._begin: list[int] | None = None
        self.scope = f"{how_many(len(handles), 'GPU')} a node"

    @classmethod
    def open(cls, gpus: Sequence[str]) -> GpuMeter | None:
        """The GPUs with these UUIDs; None if one is not found or does not count."""
        import pynvml

        try:
            pynvml.nvmlInit()
            handles = [pynvml.nvmlDeviceGetHandleByUUID(_with_prefix(uuid)) for uuid in gpus]
        except (pynvml.NVMLError, ValueError):
            return None
        meter = cls(pynvml, handles)
        return meter if handles and meter._read() is not None else None

    def start(self) -> None:
        self._begin = self._read()

    def stop(self) -> float | None:
        begin, end = self._begin, self._read()
        if begin is None or end is None:
            return None
        each = [after - before for before, after in zip(begin, end, strict=True)]
        return sum(each) / 1000 if min(each) >= 0 else None

    def _read(self) -> list[int] | None:
        read = self._nvml.nvmlDeviceGetTotalEnergyConsumption
        try:
            return [int(read(handle)) for handle in self._handles]
        except self._nvml.NVMLError:
            return None


def _with_prefix(uuid: str) -> str:
    return uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}"


class ProcessorMeter:
    """RAPL through the kernel's powercap files: all packages, and memory where it is counted."""

    method = "rapl"

    def __init__(self, zones: Sequence[_Zone]) -> None:
        self._zones = zones
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._readable = True
        self.scope = ", ".join(zone.name for zone in zones)

    @classmethod
    def open(cls, powercap: Path = POWERCAP) -> ProcessorMeter | None:
        """Every package of this node; None if there is none or one cannot be read."""
        try:
            zones = _zones(powercap)
        except (OSError, ValueError):
            return None
        return cls(zones) if zones else None

    def start(self) -> None:
        """Begin to count; from here on the counters are read every `SAMPLE_SECONDS`."""
        self.sample()
        for zone in self._zones:
            zone.microjoules = 0
        threading.Thread(target=self._watch, name="energy", daemon=True).start()

    def stop(self) -> float | None:
        self._stopped.set()
        self.sample()
        microjoules = sum(zone.microjoules for zone in self._zones)
        return microjoules / 1e6 if self._readable else None

    def sample(self) -> None:
        """Read every counter, and add what it grew by, across at most one wrap."""
        with self._lock:
            try:
                for zone in self._zones:
                    zone.read()
            except (OSError, ValueError):
                self._readable = False

    def _watch(self) -> None:
        while not self._stopped.wait(SAMPLE_SECONDS):
            self.sample()


class _Zone:
    """One counter: its name, its range, and the microjoules that were seen so far."""

    def __init__(self, folder: Path, name: str) -> None:
        self.name = name
        self._file = folder / "energy_uj"
        self._range = int((folder / "max_energy_range_uj").read_text())
        self._last = self._now()
        self.microjoules = 0

    def read(self) -> None:
        """Add what the counter grew by since it was read last."""
        now = self._now()
        grown = now - self._last
        self.microjoules += grown if grown >= 0 else grown + self._range + 1
        self._last = now

    def _now(self) -> int:
        return int(self._file.read_text())


def _zones(powercap: Path) -> list[_Zone]:
    """Packages, and the memory beside them: a package's cores are within its own count."""
    found = []
    for folder in sorted(powercap.glob("intel-rapl:*"), key=lambda path: path.name):
        name = (folder / "name").read_text().strip()
        if name.startswith("package-"):
            found.append(_Zone(folder, name))
        elif name == "dram":
            parent = (powercap / folder.name.rpartition(":")[0] / "name").read_text().strip()
            found.append(_Zone(folder, f"{parent} {name}"))
    return found
