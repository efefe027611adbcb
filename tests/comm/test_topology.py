from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fourmin.base.errors import FourminError
from fourmin.recipe.allreduces import NAMES
from fourmin.recipe.topology import Topology
from fourmin.training.comm.base import BySize, build_all_reduce


def test_group_size_zero_is_the_node() -> None:
    topology = Topology.build(5, 8, ranks_per_node=4)
    assert topology.groups == ((0, 1, 2, 3), (4, 5, 6, 7))
    assert topology.group == (4, 5, 6, 7)
    assert topology.group_size == 4


@pytest.mark.parametrize(
    ("world_size", "ranks_per_node", "group_size", "groups"),
    [
        (6, 6, 4, ((0, 1, 2, 3), (4, 5))),
        (8, 4, 3, ((0, 1, 2), (3,), (4, 5, 6), (7,))),
        (6, 2, 4, ((0, 1, 2, 3), (4, 5))),
        (4, 4, 1, ((0,), (1,), (2,), (3,))),
        (4, 2, 4, ((0, 1, 2, 3),)),
        (1, 1, 0, ((0,),)),
    ],
)
def test_groups(
    world_size: int, ranks_per_node: int, group_size: int, groups: tuple[tuple[int, ...], ...]
) -> None:
    assert Topology.build(0, world_size, ranks_per_node, group_size).groups == groups


@given(st.integers(1, 12), st.integers(1, 12), st.integers(0, 160))
def test_groups_partition_the_ranks_and_tear_no_node(
    nodes: int, ranks_per_node: int, group_size: int
) -> None:
    world_size = nodes * ranks_per_node
    try:
        topology = Topology.build(0, world_size, ranks_per_node, group_size)
    except FourminError:
        assert group_size > ranks_per_node
        assert group_size > world_size or group_size % ranks_per_node
        return
    flat = [rank for group in topology.groups for rank in group]
    assert flat == list(range(world_size))
    for group in topology.groups:
        assert 1 <= len(group) <= topology.group_size
        whole = group[0] % ranks_per_node == 0 and len(group) % ranks_per_node == 0
        inside = group[0] // ranks_per_node == group[-1] // ranks_per_node
        assert whole or inside


@pytest.mark.parametrize(
    ("world_size", "ranks_per_node", "group_size", "offer"),
    [
        (8, 4, 6, "1 to 4, or 8"),
        (32, 8, 12, "1 to 8, or a multiple of 8 up to 32"),
        (2, 2, 4, "1 to 2;"),
        (4, 1, -1, "1 to 4;"),
    ],
)
def test_what_does_not_fit_is_refused_with_the_sizes_that_do(
    world_size: int, ranks_per_node: int, group_size: int, offer: str
) -> None:
    with pytest.raises(FourminError) as caught:
        Topology.build(0, world_size, ranks_per_node, group_size)
    assert caught.value.exit_code == 2
    assert f"group size {group_size} does not fit {world_size} workers" in caught.value.what
    assert offer in caught.value.next_step


def test_nodes_of_unequal_size_are_refused() -> None:
    with pytest.raises(FourminError, match="1, 2, 3, 6"):
        Topology.build(0, 6, ranks_per_node=4)


def test_rank_outside_the_world_is_refused() -> None:
    with pytest.raises(FourminError, match="rank 4"):
        Topology.build(4, 4, ranks_per_node=4)


def test_unknown_algorithm_lists_the_known_ones() -> None:
    with pytest.raises(FourminError) as caught:
        build_all_reduce("rnig", Topology.build(0, 1, 1), hybrid_threshold=0, timeout_seconds=1)
    for name in NAMES:
        assert name in caught.value.next_step


@pytest.mark.parametrize("name", NAMES)
def test_a_registered_name_is_the_name_of_the_algorithm(name: str) -> None:
    topology = Topology.build(0, 1, 1)
    built = build_all_reduce(
        name, topology, hybrid_threshold=0, timeout_seconds=1, tuning=("0:torus",)
    )
    assert built.name == name


def test_tuned_without_a_table_is_refused() -> None:
    with pytest.raises(FourminError, match="no algorithm for every size"):
        build_all_reduce("tuned", Topology.build(0, 1, 1), hybrid_threshold=0, timeout_seconds=1)


def test_tuned_takes_the_algorithm_of_the_size() -> None:
    tuned = build_all_reduce(
        "tuned",
        Topology.build(0, 1, 1),
        hybrid_threshold=0,
        timeout_seconds=1,
        tuning=("0:torus", "1000:ring", "5000:native"),
    )
    assert isinstance(tuned, BySize)
    chosen = [tuned.choose(size).name for size in (0, 999, 1000, 4999, 5000, 1 << 40)]
    assert chosen == ["torus", "torus", "ring", "ring", "native", "native"]


@pytest.mark.parametrize(("threshold", "seconds"), [(-1, 1.0), (0, 0.0)])
def test_senseless_options_are_refused(threshold: int, seconds: float) -> None:
    with pytest.raises(FourminError):
        build_all_reduce(
            "native",
            Topology.build(0, 1, 1),
            hybrid_threshold=threshold,
            timeout_seconds=seconds,
        )


def test_hybrid_takes_hierarchical_below_its_threshold_and_ring_from_there() -> None:
    hybrid = build_all_reduce(
        "hybrid", Topology.build(0, 1, 1), hybrid_threshold=1000, timeout_seconds=1
    )
    assert isinstance(hybrid, BySize)
    assert hybrid.choose(0).name == "hierarchical"
    assert hybrid.choose(999).name == "hierarchical"
    assert hybrid.choose(1000).name == "ring"
