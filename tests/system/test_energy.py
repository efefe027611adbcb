"""Meters: RAPL's files in a folder of our own, and an NVML that only counts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pynvml
import pytest

from fourmin.system import energy
from fourmin.system.energy import GpuMeter, ProcessorMeter, open_meter

RANGE = 262_143_328_850


class Powercap:
    """A /sys/class/powercap with the zones that are set."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def set(self, zone: str, name: str, microjoules: int, most: int = RANGE) -> None:
        path = self.folder / zone
        path.mkdir(exist_ok=True)
        (path / "name").write_text(f"{name}\n")
        (path / "new").write_text(f"{microjoules}\n")
        (path / "new").replace(path / "energy_uj")  # never half written, like the kernel's
        (path / "max_energy_range_uj").write_text(f"{most}\n")


@pytest.fixture
def powercap(tmp_path: Path) -> Powercap:
    found = Powercap(tmp_path)
    found.set("intel-rapl:0", "package-0", 5_000_000)
    return found


def opened(powercap: Powercap) -> ProcessorMeter:
    meter = open_meter("cpu", powercap=powercap.folder)
    assert isinstance(meter, ProcessorMeter)
    return meter


def test_energy_is_what_the_counter_grew_by(powercap: Powercap) -> None:
    meter = opened(powercap)
    powercap.set("intel-rapl:0", "package-0", 6_000_000)  # between opening and start
    meter.start()
    powercap.set("intel-rapl:0", "package-0", 9_500_000)
    assert meter.stop() == 3.5
    assert (meter.method, meter.scope) == ("rapl", "package-0")


def test_a_counter_that_wraps_counts_on(powercap: Powercap) -> None:
    powercap.set("intel-rapl:0", "package-0", RANGE - 1_000_000)
    meter = opened(powercap)
    meter.start()
    powercap.set("intel-rapl:0", "package-0", 1_999_999)
    assert meter.stop() == 3.0


def test_several_wraps_are_seen_because_the_counter_is_read_now_and_then(
    powercap: Powercap,
) -> None:
    most = 9_999_999
    powercap.set("intel-rapl:0", "package-0", 0, most)
    meter = opened(powercap)
    meter.start()
    for reading in (6_000_000, 2_000_000, 8_000_000, 4_000_000):  # 6 J a reading
        powercap.set("intel-rapl:0", "package-0", reading, most)
        meter.sample()
    assert meter.stop() == pytest.approx(24.0)


def test_the_counter_is_read_while_the_run_goes_on(
    powercap: Powercap, monkeypatch: pytest.MonkeyPatch
) -> None:
    import time

    monkeypatch.setattr(energy, "SAMPLE_SECONDS", 0.01)
    powercap.set("intel-rapl:0", "package-0", 9_000_000, 9_999_999)
    meter = opened(powercap)
    meter.start()
    powercap.set("intel-rapl:0", "package-0", 5_000_000, 9_999_999)
    time.sleep(0.5)
    powercap.set("intel-rapl:0", "package-0", 9_500_000, 9_999_999)
    assert meter.stop() == pytest.approx(10.5)  # read at the end alone, it would be 0.5


def test_packages_and_their_memory_are_added_and_cores_are_not(powercap: Powercap) -> None:
    def set_all(microjoules: int) -> None:
        powercap.set("intel-rapl:0", "package-0", microjoules)
        powercap.set("intel-rapl:1", "package-1", microjoules)
        powercap.set("intel-rapl:0:0", "core", microjoules)
        powercap.set("intel-rapl:0:1", "dram", microjoules)
        powercap.set("intel-rapl:2", "psys", microjoules)
        powercap.set("intel-rapl-mmio:0", "package-0", microjoules)

    set_all(0)
    meter = opened(powercap)
    meter.start()
    set_all(1_000_000)
    assert meter.stop() == 3.0
    assert meter.scope == "package-0, package-0 dram, package-1"


def test_no_meter_where_nothing_counts_or_nothing_may_be_read(
    powercap: Powercap, tmp_path: Path
) -> None:
    assert open_meter("cpu", powercap=tmp_path / "none") is None
    counter = powercap.folder / "intel-rapl:0" / "energy_uj"
    counter.write_text("not permitted")
    assert open_meter("cpu", powercap=powercap.folder) is None
    counter.unlink()
    counter.mkdir()  # as unreadable as a file without permission, for root as well
    assert open_meter("cpu", powercap=powercap.folder) is None


def test_a_counter_that_goes_away_leaves_no_number(powercap: Powercap) -> None:
    meter = opened(powercap)
    meter.start()
    (powercap.folder / "intel-rapl:0" / "energy_uj").unlink()
    assert meter.stop() is None


class FakeNvml:
    """Counters by UUID; None for a GPU that does not count."""

    NVMLError = pynvml.NVMLError

    def __init__(self, **millijoules: int | None) -> None:
        self.millijoules = millijoules

    def nvmlInit(self) -> None:
        pass

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        name = uuid.removeprefix("GPU-")
        if name not in self.millijoules:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return name

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: str) -> int:
        value = self.millijoules[handle]
        if value is None:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return value


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    fake = FakeNvml(a=10_000, b=500, c=None)
    for name in (
        "nvmlInit", "nvmlDeviceGetHandleByUUID", "nvmlDeviceGetTotalEnergyConsumption",
    ):  # fmt: skip
        monkeypatch.setattr(pynvml, name, getattr(fake, name))
    return fake


def test_gpus_are_added(nvml: FakeNvml) -> None:
    meter = open_meter("cuda", ["a", "GPU-b"])
    assert isinstance(meter, GpuMeter)
    meter.start()
    nvml.millijoules.update(a=12_500, b=1_000)
    assert meter.stop() == 3.0
    assert (meter.method, meter.scope) == ("nvml", "2 GPUs a node")


@pytest.mark.parametrize("gpus", [[], ["c"], ["a", "c"], ["a", "unknown"]])
def test_no_meter_unless_every_gpu_counts(gpus: list[str], nvml: FakeNvml) -> None:
    assert open_meter("cuda", gpus) is None


def test_a_counter_that_was_set_back_leaves_no_number(nvml: FakeNvml) -> None:
    meter: Any = open_meter("cuda", ["a"])
    meter.start()
    nvml.millijoules["a"] = 5
    assert meter.stop() is None


def test_no_driver_no_meter(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    monkeypatch.setattr(pynvml, "nvmlInit", fail)
    assert open_meter("cuda", ["a"]) is None
