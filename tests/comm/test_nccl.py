"""The same algorithms and the reducer over NCCL, ordered by streams."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from comm_cases import backward, gradients, make_model
from local_world import LocalWorld
from torch import Tensor

from fourmin.recipe.allreduces import NAMES
from fourmin.training.comm.fusion import GradientReducer

pytestmark = pytest.mark.gpu
GPUS = torch.cuda.device_count()
needs_one = pytest.mark.skipif(GPUS < 1, reason="needs a GPU")
needs_two = pytest.mark.skipif(GPUS < 2, reason="needs two GPUs")


@pytest.fixture(scope="module")
def nccl_world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalWorld]:
    size = min(GPUS, 4)
    each = LocalWorld(size, tmp_path_factory.mktemp("nccl"), timeout_seconds=60, backend="nccl")
    yield each
    each.close()


@needs_two
@pytest.mark.parametrize("group_size", [1, 2])
@pytest.mark.parametrize("name", NAMES)
def test_sums(nccl_world: LocalWorld, name: str, group_size: int) -> None:
    by_rank = nccl_world.run(
        "sums",
        name=name,
        numels=[0, 1, 2, 3, 5, 4097, 2_000_003],
        dtypes=["float32", "float16", "bfloat16"],
        group_size=group_size,
        pipeline_bytes=1 << 20,
    )
    for rows in zip(*by_rank, strict=True):
        assert all(row["excess"] <= 0 for row in rows), rows
        assert len({row["digest"] for row in rows}) == 1, rows


@needs_two
@pytest.mark.parametrize("name", ["hierarchical", "torus"])
@pytest.mark.parametrize("steps", [300, pytest.param(10_000, marks=pytest.mark.slow)])
def test_ranks_that_come_late_hang_nobody(nccl_world: LocalWorld, name: str, steps: int) -> None:
    for seed in range(steps // 100):
        said = nccl_world.run("delayed_steps", name=name, steps=100, group_size=2, seed=seed)
        assert said == [""] * nccl_world.size


@needs_two
@pytest.mark.parametrize("overlap", [True, False])
@pytest.mark.parametrize("name", NAMES)
def test_mean_gradient_equals_that_of_one_process(
    nccl_world: LocalWorld, name: str, overlap: bool
) -> None:
    model = make_model()
    backward(model, slice(0, 12))
    by_rank = nccl_world.run(
        "mean_gradient", name=name, threshold_bytes=2000, overlap=overlap, steps=3
    )
    for result in by_rank:
        assert result["exposed"] >= 0
        for key, values in gradients(model).items():
            exact, got = torch.tensor(values), torch.tensor(result["gradients"][key])
            # Convolutions on the GPU may use TF32.
            assert float((got - exact).norm() / exact.norm()) < 5e-3
    assert len({tuple(result["digests"]) for result in by_rank}) == 1


class SlowDouble:
    """Keeps the stream busy, then doubles: a missing wait shows as a gradient not yet right."""

    name = "slow-double"

    def all_reduce(self, tensor: Tensor) -> None:
        torch.cuda._sleep(50_000_000)
        tensor.mul_(2)


@needs_one
@pytest.mark.parametrize("bucket_dtype", [None, torch.float16])
def test_the_stream_of_the_caller_waits_for_the_reduction(
    bucket_dtype: torch.dtype | None,
) -> None:
    model = make_model().cuda()
    backward(model, slice(0, 12))
    expected = [p.grad.clone() for p in model.parameters()]
    reducer = GradientReducer(
        model.named_parameters(), SlowDouble(), 2, 1 << 20, bucket_dtype=bucket_dtype
    )
    for step in range(3):
        reducer.zero_()
        backward(model, slice(0, 12))
        exposed = reducer.finish()
        copies = [p.grad.clone() for p in model.parameters()]
        # In the first step the host is busy loading kernels, which can hide the reduction.
        assert step == 0 or exposed.seconds() > 0.01
        for copy, exact in zip(copies, expected, strict=True):
            torch.testing.assert_close(copy, exact, rtol=5e-3, atol=1e-3)
    reducer.close()
