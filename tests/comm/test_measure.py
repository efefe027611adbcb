"""The measurement: every sum is checked, and all ranks agree on what they found."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from local_world import LocalWorld

GetWorld = Callable[[int], LocalWorld]


def test_every_size_and_algorithm_has_a_row_that_is_the_same_on_all_ranks(world: GetWorld) -> None:
    names = ["ring", "torus"]
    # One element, less than a block of the probe, and more than one.
    sizes = [4, 4096, 20 << 20]
    by_rank = world(2).run("measured", names=names, sizes=sizes)
    assert by_rank[0] == by_rank[1]
    assert [(row["bytes"], row["algorithm"]) for row in by_rank[0]] == [
        (size, name) for size in sizes for name in names
    ]
    for row in by_rank[0]:
        assert 0 < row["least"] <= row["milliseconds"] <= row["most"]
    assert by_rank[0][0]["calls_per_sample"] > by_rank[0][-1]["calls_per_sample"]


@pytest.mark.parametrize("broken", ["identity", "times-world", "one-rank-off"])
def test_a_wrong_sum_ends_the_measurement_on_every_rank(world: GetWorld, broken: str) -> None:
    messages = world(3).run("measured", names=["ring", broken], sizes=[4096])
    for message in messages:
        assert f"{broken} gives a wrong sum for 1024 elements" in message
