"""Python, the training stack, and the launchers."""

from __future__ import annotations

import json
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from fourmin import __version__
from fourmin.base.installation import install
from fourmin.doctor.check import MISSING, OK, WARNING, Check
from fourmin.launch.registry import LAUNCHERS
from fourmin.system.fitness import bad_nccl
from fourmin.system.hardware import cuda_of_driver, driver_version, usable_gpus
from fourmin.system.software import dali_cuda, installed_version, triton_installed

_TRAINS = ("torch", "torchvision", "dali", "numpy", "pillow")
_INSTALL = f"{install('train')} (with a CUDA 12 driver: train-cuda12)"
_PROBE = """
import json, torch
import torch.distributed as dist
found = {
    "cuda": torch.version.cuda,
    "gpus": torch.cuda.device_count(),
    "cpu_backend": dist.is_available() and dist.is_gloo_available(),
    "nccl": None,
}
if dist.is_available() and dist.is_nccl_available():
    found["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
import LOADER
print(json.dumps(found))
"""
_PROBE_SECONDS = 120.0


@dataclass(frozen=True)
class StackProbe:
    """What the training stack said of itself in a process of its own; `error` where it failed."""

    facts: dict[str, Any] = field(default_factory=dict)
    error: str = ""


class Probing:
    """A process that imports the training stack; this one never does. Look at `result` late."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        if installed_version("torch") is not None:
            loader = "nvidia.dali" if installed_version("dali") else "torchvision"
            self._process = subprocess.Popen(
                [sys.executable, "-c", _PROBE.replace("LOADER", loader)],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )

    def result(self) -> StackProbe | None:
        """What it found; None where torch is not installed."""
        if self._process is None:
            return None
        try:
            output, errors = self._process.communicate(timeout=_PROBE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
            return StackProbe(error=f"importing it took more than {_PROBE_SECONDS:g} s")
        if self._process.returncode:
            return StackProbe(
                error=(errors.strip().splitlines() or ["it ended without a word"])[-1]
            )
        return StackProbe(facts=json.loads(output.splitlines()[-1]))


def python() -> Iterator[Check]:
    """The interpreter and the operating system."""
    found = f"Python {platform.python_version()}, fourmin {__version__}"
    if sys.platform != "linux":
        yield Check("python", MISSING, f"{found} on {sys.platform}", "training needs Linux")
    else:
        yield Check("python", OK, found)


def training_stack(probe: StackProbe | None) -> Iterator[Check]:
    """What trains: which parts are installed, and whether they can be imported."""
    versions = {name: installed_version(name) for name in _TRAINS}
    absent = [name for name, version in versions.items() if version is None]
    present = ", ".join(f"{name} {version}" for name, version in versions.items() if version)
    if "torch" in absent:
        yield Check(
            "training stack",
            MISSING,
            f"not installed: {', '.join(absent)}; this installation validates and reports only",
            _INSTALL,
        )
        return
    if probe is not None and probe.error:
        yield Check(
            "training stack",
            MISSING,
            f"{present}, but it cannot be imported: {probe.error}",
            f"install it anew, torch and torchvision from one index: {_INSTALL}",
        )
        return
    if absent:
        message = f"{present}; not installed: {', '.join(absent)}"
        yield Check("training stack", WARNING, message, _INSTALL)
    else:
        yield Check("training stack", OK, present)
    if usable_gpus() and not triton_installed():
        message = "Triton is not installed: no run can take the fast step"
        yield Check("fast step", WARNING, message, "pip install triton")


def cuda(probe: StackProbe | None) -> Iterator[Check]:
    """The driver, and whether torch was built for it and sees the GPUs."""
    driver, gpus = driver_version(), usable_gpus()
    if driver is None:
        yield Check("driver", OK, "no NVIDIA driver: training runs on the CPU")
        return
    facts = probe.facts if probe is not None else {}
    majors = {"driver": cuda_of_driver(), "torch": facts.get("cuda"), "DALI": dali_cuda()}
    told = [f"{name} {version}" for name, version in majors.items() if version]
    message = f"NVIDIA driver {driver}; CUDA: {', '.join(told) or 'none'}"
    numbers = {name: int(str(v).partition(".")[0]) for name, v in majors.items() if v}
    if {"torch", "DALI"} <= numbers.keys() and numbers["torch"] != numbers["DALI"]:
        yield Check("cuda", WARNING, f"{message}: torch and DALI differ", f"both alike: {_INSTALL}")
    if max(numbers.values(), default=0) > numbers.get("driver", 99):
        yield Check(
            "driver", WARNING, f"{message}: newer than the driver", f"a newer driver, or {_INSTALL}"
        )
    elif facts and facts["gpus"] < gpus:
        yield Check(
            "driver",
            WARNING,
            f"{message}: torch sees {facts['gpus']} of {gpus} GPUs",
            "a torch built for this driver's CUDA version, or a newer driver",
        )
    else:
        yield Check("driver", OK, message)
    if not facts:
        return
    if known := bad_nccl(facts["nccl"] or "", platform.machine()):
        yield Check("nccl", WARNING, known, "another build of torch, or NCCL beside it")
    elif facts["nccl"]:
        yield Check("nccl", OK, f"NCCL {facts['nccl']}")
    else:
        message = "torch was built without NCCL: several GPUs cannot work together"
        yield Check("nccl", WARNING, message, "another build of torch")


def launchers() -> Iterator[Check]:
    """What can start workers: here, and on other nodes."""
    found = ["torchrun here" if installed_version("torch") else "nothing without torch"]
    submit = [(kind.program, kind.title) for kind in LAUNCHERS.values() if kind.program]
    for command, what in (*submit, ("kubectl", "Kubernetes")):
        if shutil.which(command):
            found.append(f"{what} ({command})")
    yield Check("launchers", OK, ", ".join(found))
