"""Memory that a step frees stays with the process for the next one, where there is enough."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from fourmin.training import backends

STEPS, MIB = 20, 64

ALLOCATE = f"""
import resource, torch
from fourmin.training.backends import keep_freed_memory
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
def step():
    torch.ones({MIB} << 18)
kept = keep_freed_memory(DEVICE, PROCESSES)
for _ in range(8):  # until the heap is as large as it gets
    step()
before = faults()
for _ in range({STEPS}):
    step()
print(int(kept), faults() - before)
"""

glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="mallopt is glibc's")


def page_faults(processes: int, device: str = "cpu", **variables: str) -> tuple[bool, int]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("MALLOC_", "GLIBC_"))}
    script = ALLOCATE.replace("DEVICE", repr(device)).replace("PROCESSES", str(processes))
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**environment, **variables}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    kept, faults = done.stdout.split()
    return kept == "1", int(faults)


@glibc
def test_memory_is_cleared_once_and_not_in_every_step() -> None:
    kept, faults = page_faults(1)
    # A million processes would not fit: nothing is kept.
    given_back, as_ever = page_faults(1_000_000)
    assert (kept, given_back) == (True, False)
    assert as_ever >= STEPS * MIB // 2, "one fault for each huge page at the least"
    assert faults < as_ever / 10


@glibc
def test_a_setting_of_the_user_holds() -> None:
    kept, faults = page_faults(1, MALLOC_MMAP_THRESHOLD_="65536")
    assert not kept
    assert faults >= STEPS * MIB // 2


def test_the_host_memory_of_a_gpu_s_worker_is_left_alone() -> None:
    assert not backends.keep_freed_memory("cuda", 1)


@pytest.mark.parametrize(("text", "expected"), [("max\n", 8 << 30), ("1073741824\n", 1 << 30)])
def test_a_container_s_limit_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, expected: int
) -> None:
    limit = tmp_path / "memory.max"
    monkeypatch.setattr(backends, "_CGROUP_LIMIT", limit)
    monkeypatch.setattr(backends, "memory_gib", lambda: 8)
    assert backends._memory_limit() == 8 << 30
    limit.write_text(text)
    assert backends._memory_limit() == expected


BACKENDS = """
import os, torch
from fourmin.training.backends import set_backends
set_backends(1, DETERMINISTIC)
cudnn = torch.backends.cudnn
print(torch.are_deterministic_algorithms_enabled(), cudnn.benchmark, cudnn.deterministic,
      torch.utils.deterministic.fill_uninitialized_memory and DETERMINISTIC,
      os.environ.get("CUBLAS_WORKSPACE_CONFIG"), os.environ.get("NCCL_ALGO"))
"""


@pytest.mark.parametrize(
    ("deterministic", "told"),
    [
        (False, "False True False False None None"),
        (True, "True False True False :4096:8 Ring"),
    ],
)
def test_what_is_set_for_deterministic_runs(deterministic: bool, told: str) -> None:
    own = ("CUBLAS_", "NCCL_")
    done = subprocess.run(
        [sys.executable, "-c", BACKENDS.replace("DETERMINISTIC", str(deterministic))],
        env={k: v for k, v in os.environ.items() if not k.startswith(own)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.strip() == told
