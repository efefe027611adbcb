"""The reducer on real gloo processes: many processes must equal one over all their samples."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from comm_cases import backward, batch, make_model
from local_world import LocalWorld

from fourmin.recipe.allreduces import NAMES

GetWorld = Callable[[int], LocalWorld]
GetFragile = Callable[[int, float], LocalWorld]
SAMPLES = 12


@pytest.fixture(scope="module")
def expected() -> dict[str, torch.Tensor]:
    """Gradients of the whole batch in one process, in float64."""
    model = make_model().double()
    images, labels = batch(slice(0, SAMPLES))
    torch.nn.functional.cross_entropy(model(images.double()), labels).backward()
    return {name: p.grad.contiguous().reshape(-1) for name, p in model.named_parameters()}


def check(
    by_rank: list[dict[str, Any]], expected: dict[str, torch.Tensor], tolerance: float = 1e-6
) -> None:
    """Every rank holds the gradient of the whole batch, all the same bits, in every step."""
    for rank, result in enumerate(by_rank):
        for name, exact in expected.items():
            got = torch.tensor(result["gradients"][name], dtype=torch.float64)
            error = float((got - exact).norm() / exact.norm())
            assert error < tolerance, f"rank {rank}, {name}: relative error {error:.2g}"
    assert len({tuple(r["digests"]) for r in by_rank}) == 1, "ranks hold other bits"
    assert len(set(by_rank[0]["digests"])) == 1, "the same step gave other bits"


@pytest.mark.parametrize("threshold", [0, 2000, 1 << 20])
@pytest.mark.parametrize("name", NAMES)
def test_two_processes_equal_one(
    world: GetWorld, expected: dict[str, torch.Tensor], name: str, threshold: int
) -> None:
    check(world(2).run("mean_gradient", name=name, threshold_bytes=threshold), expected)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("size", [3, 4])
def test_more_processes_in_groups_equal_one(
    world: GetWorld, expected: dict[str, torch.Tensor], name: str, size: int
) -> None:
    rows = world(size).run("mean_gradient", name=name, threshold_bytes=0, group_size=2)
    check(rows, expected)


def test_without_overlap_the_bits_are_the_same(world: GetWorld) -> None:
    results = [
        world(2).run("mean_gradient", name="ring", threshold_bytes=2000, overlap=overlap)
        for overlap in (True, False)
    ]
    assert results[0][0]["digests"] == results[1][0]["digests"]


def test_accumulation_over_micro_batches_equals_one_batch(
    world: GetWorld, expected: dict[str, torch.Tensor]
) -> None:
    rows = world(2).run("mean_gradient", name="ring", threshold_bytes=0, micro_batches=3)
    check(rows, expected)
    assert rows[0]["collectives"] == 2 * rows[0]["buckets"]


@pytest.mark.parametrize(("dtype", "tolerance"), [("float16", 2e-3), ("bfloat16", 1.5e-2)])
@pytest.mark.parametrize("name", NAMES)
def test_half_precision_buckets(
    world: GetWorld,
    expected: dict[str, torch.Tensor],
    name: str,
    dtype: str,
    tolerance: float,
) -> None:
    rows = world(2).run("mean_gradient", name=name, threshold_bytes=0, bucket_dtype=dtype)
    check(rows, expected, tolerance)
    full = world(2).run("mean_gradient", name=name, threshold_bytes=0)
    assert 2 * rows[0]["bytes"] == full[0]["bytes"]


@pytest.mark.parametrize("broken", ["identity", "times-world", "one-rank-off"])
def test_the_check_sees_a_broken_algorithm(
    world: GetWorld, expected: dict[str, torch.Tensor], broken: str
) -> None:
    rows = world(2).run("mean_gradient", name=broken, threshold_bytes=0)
    with pytest.raises(AssertionError):
        check(rows, expected)


def test_a_local_gradient_is_far_from_that_of_the_batch(expected: dict[str, torch.Tensor]) -> None:
    # Otherwise the comparison above could not tell a missing all-reduce.
    model = make_model()
    backward(model, slice(0, SAMPLES // 2))
    for name, p in model.named_parameters():
        local = p.grad.contiguous().reshape(-1).double()
        assert float((local - expected[name]).norm() / expected[name].norm()) > 0.1


def test_hybrid_names_the_algorithm_of_each_bucket(world: GetWorld) -> None:
    rows = world(2).run("mean_gradient", name="hybrid", threshold_bytes=0, hybrid_threshold=500)
    # In order: 5.bias 40, 5.weight 2160, 2.weight 1728, 0.bias 32, 0.weight 864 bytes.
    assert rows[0]["algorithms"] == ["hierarchical", "ring", "ring", "hierarchical", "ring"]
    assert len({row["layout"] for row in rows}) == 1


@pytest.mark.parametrize("name", NAMES)
def test_a_dead_peer_is_an_error_in_finish(fragile_world: GetFragile, name: str) -> None:
    world = fragile_world(3, 3.0)
    world.start(
        "step_without_peer",
        name=name,
        absent=2,
        absent_seconds=60.0,
        group_size=2,
        timeout_seconds=3.0,
    )
    time.sleep(0.5)
    world.signal(2, signal.SIGKILL)
    for result in world.results([0, 1], seconds=15.0):
        assert result["kind"] == "CommunicationError", result
        assert "all-reduce of bucket 0 failed" in result["message"]
        assert result["seconds"] < 5.0
        assert result["threads"] == []


@pytest.mark.parametrize("name", ["native", "ring"])
def test_a_silent_peer_is_an_error_after_the_timeout(fragile_world: GetFragile, name: str) -> None:
    world = fragile_world(2, 2.0)
    world.start("step_without_peer", name=name, absent=1, absent_seconds=60.0)
    (result,) = world.results([0], seconds=15.0)
    assert result["kind"] == "CommunicationError"
    assert 1.5 < result["seconds"] < 5.0
    world.signal(1, signal.SIGKILL)
