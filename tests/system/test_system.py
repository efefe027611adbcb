"""The captured system: what is in it, what never is, and when its digest changes."""

from __future__ import annotations

import copy
import getpass
import hashlib
import json
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest
from jsonschema import Draft202012Validator

import fourmin
from fourmin.ruleset import load_ruleset
from fourmin.system import hardware
from fourmin.system.capture import capture_system, system_digest
from fourmin.system.environment import captured_environment, interpreter_changes
from fourmin.system.hardware import usable_gpus
from fourmin.system.software import in_package, package_digest


def test_the_capture_names_no_host_and_no_user() -> None:
    text = json.dumps(capture_system())
    assert socket.gethostname() not in text
    if getpass.getuser() != "root":  # a word that kernels and distributions use as well
        assert getpass.getuser() not in text


def test_the_digest_changes_with_hardware_and_versions_only() -> None:
    system = capture_system()
    digest = system_digest(system)
    assert digest == system_digest(json.loads(json.dumps(system)))
    other = copy.deepcopy(system)
    other["environment"] = {"OMP_NUM_THREADS": "7"}
    other["software"]["operating_system"]["kernel"] = "9.9"
    other["limits"] = {"processor": {"max_mhz": 4321, "flags": []}, "accelerators": []}
    other["hardware"]["memory_gib"] = 1 + (other["hardware"]["memory_gib"] or 0)
    assert system_digest(other) == digest
    for path, value in (
        (("hardware", "accelerators"), [{"model": "X", "memory_gib": 80, "count": 8}]),
        (("software", "torch"), "0.0"),
        (("software", "fourmin"), "9.9"),
    ):
        other = copy.deepcopy(system)
        other[path[0]][path[1]] = value
        assert system_digest(other) != digest, path


def test_only_allow_listed_variables_are_kept_and_no_secret() -> None:
    kept = captured_environment(
        {
            "NCCL_ALGO": "Ring",
            "OMP_NUM_THREADS": "1",
            "NCCL_SOCKET_IFNAME": "eth0",
            "TORCH_TOKEN": "secret",
            "FOURMIN_JOB": "/tmp/x",
            "HOME": "/home/me",
            "SLURM_NNODES": "4",
            "SLURM_JOB_USER": "me",
            "SLURMD_NODENAME": "n1",
            "AWS_SECRET_ACCESS_KEY": "x",
        }
    )
    assert kept == {"NCCL_ALGO": "Ring", "OMP_NUM_THREADS": "1", "SLURM_NNODES": "4"}


def test_changes_to_the_interpreter_are_disclosed() -> None:
    assert interpreter_changes({"PYTHONPATH": "/x", "LD_PRELOAD": ""}) == ["PYTHONPATH"]
    assert "LD_PRELOAD" in interpreter_changes({"LD_PRELOAD": "evil.so"})


def test_the_package_digest_is_over_sources_and_rulesets_by_name() -> None:
    top = Path(fourmin.__file__).parents[1]
    names = [path.relative_to(top).as_posix() for path in (top / "fourmin").rglob("*.py")]
    names += [path.relative_to(top).as_posix() for path in (top / "rules").rglob("*.json")]
    names.remove("rules/1.0/published_results.json")
    lines = [f"{name}\0{hashlib.sha256((top / name).read_bytes()).hexdigest()}\n"
             for name in sorted(names)]  # fmt: skip
    assert package_digest() == hashlib.sha256("".join(lines).encode()).hexdigest()


@pytest.mark.parametrize(
    ("name", "inside"),
    [
        ("fourmin/cli/main.py", True),
        ("rules/1.0/ruleset.json", True),
        ("fourmin/_rulesets/1.0/ruleset.json", False),
        ("fourmin/estimate/profiles/dgx.toml", False),
        ("rules/1.0/published_results.json", False),
        ("rules/1.0/RULES.md", False),
        ("rules/beacon", False),
        ("rules/waivers.toml", False),
        ("fourminx/a.py", False),
        ("tests/fourmin/a.py", False),
    ],
)
def test_what_decides_a_run_is_in_the_package_digest(name: str, inside: bool) -> None:
    assert in_package(name) is inside


@pytest.mark.parametrize(("visible", "expected"), [("", 0), ("-1", 0), ("0,2", 2), ("0,1,2", 2)])
def test_hidden_gpus_are_not_counted(
    monkeypatch: pytest.MonkeyPatch, visible: str, expected: int
) -> None:
    monkeypatch.setattr(
        hardware, "accelerators", lambda: [{"model": "H100", "memory_gib": 80, "count": 2}]
    )
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert usable_gpus() == expected


CPUINFO = """\
processor\t: 0
model name\t: Some Processor @ 2.10GHz
cpu MHz\t\t: 2903.998
flags\t\t: fpu sse2 avx f16c avx2 avx512f amx_tile amx_bf16
"""


@pytest.mark.parametrize(
    ("cpuinfo", "clocks", "expected"),
    [
        (CPUINFO, ["2101000", "3800000"], (3800, ["amx_tile", "avx", "avx2", "avx512f"])),
        (CPUINFO, [], (None, ["amx_tile", "avx", "avx2", "avx512f"])),
        ("processor : 0\nFeatures : fp asimd sve sve2\n", ["n/a"], (None, ["asimd", "sve"])),
        ("", [], (None, [])),
    ],
)
def test_the_clock_is_the_highest_and_never_the_present_one(
    cpuinfo: str,
    clocks: list[str],
    expected: tuple[int | None, list[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text(cpuinfo)
    for number, clock in enumerate(clocks):
        folder = tmp_path / f"sys/devices/system/cpu/cpu{number}/cpufreq"
        folder.mkdir(parents=True)
        (folder / "cpuinfo_max_freq").write_text(f"{clock}\n")
    monkeypatch.setattr(hardware, "Path", lambda path: tmp_path / str(path).lstrip("/"))
    found = hardware.limits()["processor"]
    assert (found["max_mhz"], found["flags"]) == expected


class FakeNvml:
    """Two models; the second tells neither its cores nor its power limit."""

    NVMLError, NVML_CLOCK_SM = pynvml.NVMLError, pynvml.NVML_CLOCK_SM
    names = (b"NVIDIA H200", "NVIDIA H200", "ACME X1")

    def nvmlInit(self) -> None: ...
    def nvmlShutdown(self) -> None: ...
    def nvmlDeviceGetCount(self) -> int:
        return len(self.names)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetName(self, handle: int) -> str | bytes:
        return self.names[handle]

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> Any:
        return SimpleNamespace(total=141 << 30)

    def nvmlDeviceGetCudaComputeCapability(self, handle: int) -> tuple[int, int]:
        return (9, 0) if handle < 2 else (13, 1)

    def nvmlDeviceGetMaxClockInfo(self, handle: int, kind: int) -> int:
        assert kind == pynvml.NVML_CLOCK_SM
        return 1980

    def nvmlDeviceGetNumGpuCores(self, handle: int) -> int:
        return self._known(handle, 16896)

    def nvmlDeviceGetPowerManagementLimitConstraints(self, handle: int) -> list[int]:
        return [200_000, self._known(handle, 700_000)]

    def _known(self, handle: int, value: int) -> int:
        if handle == 2:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return value


def test_gpus_are_asked_for_their_limits_and_may_not_know(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = FakeNvml()
    for name in dir(nvml):
        if name.startswith("nvml"):
            monkeypatch.setattr(pynvml, name, getattr(nvml, name))
    h200 = {"cores": 16896, "capability": "9.0", "max_mhz": 1980, "power_watts": 700}
    x1 = {"cores": None, "capability": "13.1", "max_mhz": 1980, "power_watts": None}
    limits = hardware.limits()["accelerators"]
    assert limits == [{"model": "ACME X1", **x1}, {"model": "NVIDIA H200", **h200}]
    assert hardware.accelerators() == [
        {"model": "ACME X1", "memory_gib": 141, "count": 1},
        {"model": "NVIDIA H200", "memory_gib": 141, "count": 2},
    ]
    for hidden, capabilities in (
        (None, ["9.0", "13.1"]), ("0,1", ["9.0"]), ("2", ["13.1"]), ("", []),
        ("GPU-f3a2", ["9.0", "13.1"]),
    ):  # fmt: skip
        if hidden is None:
            monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        else:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
        assert hardware.compute_capabilities() == capabilities
    schema = load_ruleset().schema("result")["$defs"]["system"]["properties"]["limits"]
    assert list(Draft202012Validator(schema).iter_errors(hardware.limits())) == []


def test_without_a_driver_there_is_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    monkeypatch.setattr(pynvml, "nvmlInit", fail)
    assert hardware.limits()["accelerators"] == []
    assert hardware.accelerators() == hardware.busy_gpus() == []
    assert hardware.compute_capabilities() == []
    assert hardware.driver_version() is None


def test_names_of_host_user_and_home_are_taken_out(monkeypatch: pytest.MonkeyPatch) -> None:
    from fourmin.system import privacy

    monkeypatch.setattr(privacy.socket, "gethostname", lambda: "node17.cluster")
    monkeypatch.setattr(privacy.socket, "getfqdn", lambda: "node17.cluster.example.org")
    monkeypatch.setattr(privacy.getpass, "getuser", lambda: "jdoe")
    monkeypatch.setenv("HOME", "/home/jdoe")
    told = privacy.redact("on node17.cluster.example.org (node17): /home/jdoe/x of jdoe, node170")
    assert told == "on <host> (<host>): <home>/x of <user>, node170"
