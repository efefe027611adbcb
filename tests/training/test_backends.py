"""Memory that a step frees stays with the process for the next one."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

STEPS, MIB = 20, 64

ALLOCATE = f"""
import resource, torch
from fourmin.training.backends import set_backends
set_backends(1, DEVICE)
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
def step():
    torch.ones({MIB} << 18)
for _ in range(8):  # until the heap is as large as it gets
    step()
before = faults()
for _ in range({STEPS}):
    step()
print(faults() - before)
"""


def page_faults(device: str, **variables: str) -> int:
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("MALLOC_", "GLIBC_"))}
    done = subprocess.run(
        [sys.executable, "-c", ALLOCATE.replace("DEVICE", repr(device))],
        env={**environment, **variables}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return int(done.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="mallopt is glibc's")
def test_memory_is_cleared_once_and_not_in_every_step() -> None:
    given_back = page_faults("cuda")
    assert given_back >= STEPS * MIB // 2, "one fault for each huge page at the least"
    assert page_faults("cpu") < given_back / 10
    # A user's own setting holds.
    assert page_faults("cpu", MALLOC_MMAP_THRESHOLD_="65536") > given_back / 2
