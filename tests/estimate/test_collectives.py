"""The cost models against their formulas, written out anew."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import pytest

from fourmin.estimate import collectives
from fourmin.estimate.collectives import MODELLED, Grouping, best_hybrid_threshold, choose
from fourmin.estimate.profile import Compute, Profile

ROUND, HOP = 50e-6, 14e-6  # a measured round, and NCCL's hop over the network
INSIDE, BETWEEN = 100e9, 10e9
MEASURED = Profile(
    name="x",
    title="x",
    workers_per_node=8,
    inside_kind="nvlink",
    inside_bandwidth=INSIDE,
    between_bandwidth=BETWEEN,
    compute=(Compute("resnet50", "fp16", 256, 1000.0, "x"),),
    sources=(),
    adapters=2,
    round_seconds=ROUND,
    call_seconds=7e-6,
)
P40 = replace(
    MEASURED,
    inside_kind="pcie",
    inside_bandwidth=12e9,
    between_bandwidth=12e9,
    adapters=1,
    round_seconds=None,
    call_seconds=0.0,
    nccl_algorithms=("ring",),
)
N = 1e6


@dataclass(frozen=True)
class Switched:
    hybrid_threshold: int = 0
    hybrid_large: str = "ring"
    tuning: tuple[str, ...] = ()


WORLD = Grouping(64, 8, 8)


def test_ring_over_measured_rounds() -> None:
    # One adapter of two carries the ring between nodes.
    expected = 7e-6 + 2 * 63 * (ROUND + HOP) + 2 * 63 / 64 * N / (BETWEEN / 2)
    assert collectives.ring(N, WORLD, MEASURED) == pytest.approx(expected)
    alone = 7e-6 + 2 * 7 * ROUND + 2 * 7 / 8 * N / INSIDE
    assert collectives.ring(N, Grouping(8, 8, 8), MEASURED) == pytest.approx(alone)


def test_hierarchical_over_measured_rounds() -> None:
    k, m = 8, 8
    expected = (
        7e-6
        + 4 * (k - 1) * ROUND
        + 2 * (m - 1) * (ROUND + HOP)
        + 4 * (k - 1) / k * N / INSIDE
        + 2 * (m - 1) / m * N / (BETWEEN / 2)
    )
    assert collectives.hierarchical(N, WORLD, MEASURED) == pytest.approx(expected)


def test_torus_and_halving_doubling_over_measured_rounds() -> None:
    k, m = 8, 8
    volume = 2 * (k - 1) / k * N / INSIDE + 2 * (m - 1) / m * N / BETWEEN
    torus = 7e-6 + 2 * ROUND + (2 * math.log2(m) - 1) * (ROUND + HOP) + volume
    assert collectives.torus(N, WORLD, MEASURED) == pytest.approx(torus)
    halving = 7e-6 + 2 * math.log2(k) * ROUND + (2 * math.log2(m) - 1) * (ROUND + HOP) + volume
    assert collectives.halving_doubling(N, WORLD, MEASURED) == pytest.approx(halving)


def test_a_column_that_is_no_power_of_two_takes_a_ring() -> None:
    six = Grouping(48, 8, 8)
    volume = 2 * 7 / 8 * N / INSIDE + 2 * 5 / 6 * N / BETWEEN
    expected = 7e-6 + 2 * ROUND + 2 * 5 * (ROUND + HOP) + volume
    assert collectives.torus(N, six, MEASURED) == pytest.approx(expected)


def test_groups_of_half_a_node_share_its_links() -> None:
    halves = Grouping(64, 8, 4)
    k, m = 4, 16
    # Each of 8 ranks sends n/4 out of the node: twice the tensor.
    volume = 2 * (k - 1) / k * N / INSIDE + 2 * (m - 1) / m * 2 * N / BETWEEN
    expected = 7e-6 + 2 * ROUND + (2 * math.log2(m) - 1) * (ROUND + HOP) + volume
    assert collectives.torus(N, halves, MEASURED) == pytest.approx(expected)


def test_native_on_pcie_is_the_better_of_two_protocols() -> None:
    p, m = 256, 32
    small, large = 1e3, 1e9
    crossing = 2 * (m - 1)
    ll = 6.6 + (2 * (p - 1) - crossing) * 1.0 + crossing * 2.7
    simple = 8.4 + (2 * (p - 1) - crossing) * 5.7 + crossing * 14.0
    world = Grouping(p, 8, 8)
    volume = 2 * (p - 1) / p
    assert collectives.native(small, world, P40) == pytest.approx(ll * 1e-6 + volume * small / 6e9)
    assert collectives.native(large, world, P40) == pytest.approx(
        simple * 1e-6 + volume * large / 12e9
    )


def test_native_takes_the_tree_where_hops_count() -> None:
    world = Grouping(4096, 8, 8)
    with_trees = collectives.native(1e3, world, MEASURED)
    # 7 hops in the node and 9 over the network, up and down, by the tree's LL protocol.
    assert with_trees == pytest.approx(
        7e-6 + (6.8 + 2 * (7 * 0.6 + 9 * 5.0)) * 1e-6 + 2 * 1e3 / (10e9 * 0.92 / 3.8)
    )
    assert with_trees < collectives.native(1e3, world, replace(MEASURED, nccl_algorithms=("ring",)))


@pytest.mark.parametrize("name", MODELLED)
@pytest.mark.parametrize("profile", [MEASURED, P40], ids=["measured", "p40"])
def test_more_bytes_and_more_ranks_never_take_less(name: str, profile: Profile) -> None:
    def seconds(nbytes: int, ranks: int) -> float:
        grouping = Grouping(ranks, min(8, ranks), min(8, ranks))
        return choose(name, nbytes, grouping, profile, Switched(1 << 20))[1]

    for ranks in (2, 8, 16, 48, 64, 2048):
        # The hybrid may well take less where it changes its algorithm.
        for small in (1, 1 << 10, 1 << 22) if name == "hybrid" else range(0, 1 << 22, 65521):
            assert 0 < seconds(small, ranks) <= seconds(small + 1000, ranks)
    assert seconds(1 << 22, 16) < seconds(1 << 22, 64) < seconds(1 << 22, 2048)


@pytest.mark.parametrize("name", MODELLED)
def test_one_rank_sends_nothing(name: str) -> None:
    for profile in (MEASURED, P40):
        assert choose(name, 1 << 20, Grouping(1, 1, 1), profile, Switched())[1] == 0.0


def test_hybrid_and_tuned_choose_by_size() -> None:
    names = [choose("hybrid", size, WORLD, MEASURED, Switched(100))[0] for size in (99, 100)]
    assert names == ["hierarchical", "ring"]
    table = ("0:torus", "100:native")
    names = [
        choose("tuned", size, WORLD, MEASURED, Switched(tuning=table))[0] for size in (99, 100)
    ]
    assert names == ["torus", "native"]
    for size in (1, 1 << 14, 1 << 28):
        best = choose("tuned", size, WORLD, P40, Switched())[1]
        others = ("native", "ring", "hierarchical", "halving-doubling", "torus")
        assert best == min(choose(name, size, WORLD, P40, Switched())[1] for name in others)


def test_the_best_hybrid_threshold_is_no_worse_than_either_side() -> None:
    sizes = [1 << power for power in range(10, 25)]
    world = Grouping(1024, 8, 8)
    threshold = best_hybrid_threshold(sizes, "ring", world, P40)

    def total(at: int) -> float:
        return sum(choose("hybrid", s, world, P40, Switched(at))[1] for s in sizes)

    assert total(threshold) < min(total(0), total(1 << 40))
