"""Two ranks: the fast step's buckets go through the same all-reduces as the eager step's."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from fast_worker import STEPS

WORLD = 2


def train(folder: Path, device: str, precision: str, span: int) -> list[dict[str, Any]]:
    script = Path(__file__).with_name("fast_worker.py")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    processes = [
        subprocess.Popen(
            [sys.executable, script, *map(str, (rank, WORLD, folder, device, precision, span))],
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(WORLD)
    ]
    try:
        for process in processes:
            _, errors = process.communicate(timeout=200)
            assert process.returncode == 0, errors[-2000:]
    finally:
        for process in processes:
            process.kill()
    return [torch.load(folder / f"rank-{rank}.pt", weights_only=True) for rank in range(WORLD)]


def check(ranks: list[dict[str, Any]], tolerance: float) -> None:
    for rank in ranks:
        eager, fast = rank["eager"], rank["fast"]
        assert fast["losses"] == pytest.approx(eager["losses"], rel=tolerance)
        assert fast["performed"] == eager["performed"] == STEPS
        assert fast["steps"] == STEPS
        assert fast["buckets"] > 2
        assert all(seconds >= 0 for seconds in fast["exposed"])
        for a, b in zip(fast["weights"], eager["weights"], strict=True):
            # Biases have hardly left 0 yet; they are held to what a weight would be.
            assert (a - b).norm() < tolerance * (b.norm() + 0.01 * b.numel() ** 0.5)
        for a, b in zip(fast["statistics"], eager["statistics"], strict=True):
            torch.testing.assert_close(a, b, rtol=10 * tolerance, atol=10 * tolerance)
    # Both ranks hold the same bits, and they saw different data.
    for a, b in zip(ranks[0]["fast"]["weights"], ranks[1]["fast"]["weights"], strict=True):
        assert torch.equal(a, b)
    assert ranks[0]["fast"]["losses"] != ranks[1]["fast"]["losses"]


def share(ranks: list[dict[str, Any]]) -> bool:
    """Whether both ranks have the same running statistics, of different images."""
    first, second = (rank["fast"]["statistics"] for rank in ranks)
    return all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("span", [1, 2])
def test_two_ranks_in_fp32(device: torch.device, tmp_path: Path, span: int) -> None:
    if device.type == "cuda":
        pytest.skip("on a GPU the FP16 test below does it with NCCL")
    ranks = train(tmp_path, "cpu", "fp32", span)
    check(ranks, 1e-5)
    assert share(ranks) == (span == 2)


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < WORLD, reason="needs two GPUs")
@pytest.mark.parametrize("span", [1, 2])
def test_two_gpus_with_graphs_and_nccl(tmp_path: Path, span: int) -> None:
    ranks = train(tmp_path, "cuda", "fp16", span)
    check(ranks, 0.02)
    assert share(ranks) == (span == 2)
