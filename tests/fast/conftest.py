"""Triton's kernels run on the GPU where there is one, else in Triton's interpreter."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
ON_GPU = torch.cuda.is_available()


@pytest.fixture(scope="session")
def device() -> torch.device:
    pytest.importorskip("triton", reason="Triton is not installed")
    if not ON_GPU and not os.environ.get("TRITON_INTERPRET"):
        pytest.skip("torch cannot use this machine's GPU")
    return torch.device("cuda" if ON_GPU else "cpu")


@pytest.fixture(autouse=True)
def exact_arithmetic() -> Iterator[None]:
    """FP32 means FP32, and a convolution gives the same bits twice: expectations rely on it."""
    cudnn = torch.backends.cudnn
    before = cudnn.allow_tf32, cudnn.deterministic
    cudnn.allow_tf32, cudnn.deterministic = False, True
    yield
    cudnn.allow_tf32, cudnn.deterministic = before
