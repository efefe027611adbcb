"""Kernels compile for GPUs that are not here, and a GPU's shared memory holds them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="Triton is not installed")


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("model", ["resnet50", "alexnet"])
def test_every_kernel_of_a_step(model: str) -> None:
    script = Path(__file__).parent / "compile_for_gpu.py"
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, script, model], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("kernels compiled") == 3
