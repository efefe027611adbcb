"""Every algorithm against the float64 sum, on real gloo processes."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from local_world import LocalWorld

from fourmin.recipe.allreduces import NAMES, needs
from fourmin.training.comm.native import NativeAllReduce
from fourmin.training.comm.ring import part_bounds

GetWorld = Callable[[int], LocalWorld]
SIZES = range(1, 9)
FLAT = [name for name in NAMES if not needs(name, "group_size")]
GROUPED = [name for name in NAMES if needs(name, "group_size")]
DTYPES = ["float32", "float16", "bfloat16"]
FROM_HYPOTHESIS = settings(
    max_examples=15,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def sizes_for(world_size: int) -> list[int]:
    return sorted({0, 1, 2, 3, max(world_size - 1, 0), world_size + 1, 4097, 40_001})


def check(by_rank: list[list[dict[str, Any]]]) -> None:
    """The sums are right within rounding, and all ranks hold the same bits."""
    for rows in zip(*by_rank, strict=True):
        what = f"{rows[0]['dtype']}, {rows[0]['numel']} elements"
        for rank, row in enumerate(rows):
            assert row["excess"] <= 0, f"{what}: rank {rank} is off by {row['excess']}"
        assert len({row["digest"] for row in rows}) == 1, f"{what}: ranks hold other bits"


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", FLAT)
def test_flat_algorithms(world: GetWorld, name: str, size: int) -> None:
    check(world(size).run("sums", name=name, numels=sizes_for(size), dtypes=DTYPES))


@pytest.mark.parametrize(("size", "group_size"), [(s, g) for s in SIZES for g in range(1, s + 1)])
@pytest.mark.parametrize("name", GROUPED)
def test_grouped_algorithms(world: GetWorld, name: str, size: int, group_size: int) -> None:
    rows = world(size).run(
        "sums", name=name, numels=sizes_for(size), dtypes=DTYPES, group_size=group_size
    )
    check(rows)


@pytest.mark.parametrize(("size", "group_size"), [(2, 2), (2, 1), (4, 2), (5, 3), (7, 2), (8, 3)])
@pytest.mark.parametrize("name", ["hierarchical", "halving-doubling", "torus"])
def test_many_pieces_on_their_way_at_once(
    world: GetWorld, name: str, size: int, group_size: int
) -> None:
    rows = world(size).run(
        "sums",
        name=name,
        numels=[1, 63, 64, 65, 2000],
        dtypes=["float32"],
        group_size=group_size,
        pipeline_bytes=256,
    )
    check(rows)


@pytest.mark.parametrize(
    ("name", "size", "group_size"),
    [
        ("ring", 3, 0),
        ("ring", 4, 0),
        ("hierarchical", 5, 2),
        ("halving-doubling", 6, 3),
        ("halving-doubling", 7, 4),
        ("torus", 6, 2),
        ("torus", 8, 5),
        ("tuned", 4, 2),
    ],
)
@FROM_HYPOTHESIS
@given(numels=st.lists(st.integers(0, 3000), min_size=1, max_size=4))
def test_any_sequence_of_sizes(
    world: GetWorld, name: str, size: int, group_size: int, numels: list[int]
) -> None:
    rows = world(size).run(
        "sums", name=name, numels=numels, dtypes=["float32"], group_size=group_size
    )
    check(rows)


@pytest.mark.parametrize("name", NAMES)
def test_the_same_bits_each_time(world: GetWorld, name: str) -> None:
    runs = [
        world(4).run("sums", name=name, numels=[4097], dtypes=["float32"], group_size=2)
        for _ in range(3)
    ]
    assert runs[0] == runs[1] == runs[2]


@pytest.mark.parametrize("broken", ["identity", "times-world", "one-rank-off"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_check_sees_a_broken_algorithm(world: GetWorld, broken: str, dtype: str) -> None:
    rows = world(3).run("sums", name=broken, numels=[4097], dtypes=[dtype])
    with pytest.raises(AssertionError):
        check(rows)


@given(st.integers(0, 10_000), st.integers(1, 64))
def test_parts_cover_the_tensor_and_differ_by_at_most_one(numel: int, parts: int) -> None:
    bounds = part_bounds(numel, parts)
    assert len(bounds) == parts
    assert bounds[0][0] == 0
    assert bounds[-1][1] == numel
    assert all(a[1] == b[0] for a, b in itertools.pairwise(bounds))
    sizes = [end - start for start, end in bounds]
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize(
    "tensor",
    [torch.zeros(2, 2), torch.zeros(4)[::2], torch.zeros(4, dtype=torch.int32), torch.tensor(1.0)],
    ids=["two dimensions", "gaps", "integers", "no dimension"],
)
def test_other_tensors_are_refused(tensor: torch.Tensor) -> None:
    with pytest.raises(ValueError, match="1-D contiguous floating-point"):
        NativeAllReduce(1).all_reduce(tensor)
