"""The cost models against their formulas, written out anew."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import pytest

from fourmin.estimate.collectives import (
    MODELLED,
    Grouping,
    best_hybrid_threshold,
    choose,
    cost_of,
)
from fourmin.estimate.nccl import Communicator, collective
from fourmin.estimate.profile import Compute, Profile
from fourmin.recipe.allreduces import CANDIDATES

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
    nccl_algorithms=("ring",),
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


def chosen(name: str, nbytes: float, world: Grouping, profile: Profile) -> float:
    return cost_of(name)(nbytes, world, profile).seconds


def test_ring_over_measured_rounds() -> None:
    # One adapter of two carries the ring between nodes.
    expected = 2 * 63 * (ROUND + HOP) + 2 * 63 / 64 * N / (BETWEEN / 2)
    assert chosen("ring", N, WORLD, MEASURED) == pytest.approx(expected)
    alone = 2 * 7 * ROUND + 2 * 7 / 8 * N / INSIDE
    assert chosen("ring", N, Grouping(8, 8, 8), MEASURED) == pytest.approx(alone)


def test_halving_doubling_over_measured_rounds() -> None:
    k, m = 8, 8
    volume = 2 * (k - 1) / k * N / INSIDE + 2 * (m - 1) / m * N / BETWEEN
    rounds = 2 * math.log2(k) * ROUND + (2 * math.log2(m) - 1) * (ROUND + HOP)
    assert chosen("halving-doubling", N, WORLD, MEASURED) == pytest.approx(rounds + volume)
    # Of three pieces of 16 MiB each follows the one before by a round.
    large = 48 << 20
    volume = 2 * (k - 1) / k * large / INSIDE + 2 * (m - 1) / m * large / BETWEEN
    expected = rounds + 2 * (ROUND + HOP) + volume
    assert chosen("halving-doubling", large, WORLD, MEASURED) == pytest.approx(expected)
    # One of the 9 ranks of a group gives its tensor to the first and gets the sum back.
    nine = Grouping(18, 9, 9)
    volume = (2 * 7 / 8 + 1) * N / INSIDE + 2 / 2 * N / 8 * 9 / BETWEEN
    expected = (2 * 3 + 2) * ROUND + (ROUND + HOP) + volume
    assert chosen("halving-doubling", N, nine, MEASURED) == pytest.approx(expected)


def stage(
    kind: str, nbytes: float, bandwidth: float, ranks: int, crossing: int = 0
) -> tuple[float, float]:
    """Latency and transfer of a collective around one ring, written anew: of three protocols the
    one that ends first. `crossing` of its hops lie between nodes.
    """
    around = 2 if kind == "all_reduce" else 1
    volume = 1 if kind in ("reduce", "broadcast") else around * (ranks - 1) / ranks
    near = around * (ranks - 1) - crossing
    posted = (1.0, 1.0, 3.0) if crossing else (0.0, 0.0, 0.0)
    protocols = ((6.6, 0.6, 2.7, 0.5), (14.0, 1.9, 4.0, 0.92), (8.4, 3.4, 14.0, 1.0))
    return min(
        (
            (
                (base + near * max(hop, post) + crossing * far) * 1e-6,
                volume * nbytes / (rate * bandwidth),
            )
            for (base, hop, far, rate), post in zip(protocols, posted, strict=True)
        ),
        key=sum,
    )


def test_hierarchical_adds_up_its_ticks() -> None:
    """A piece of 4 MiB in two: reduce, all-reduce of masters on an adapter each, broadcast."""
    nbytes = 4 << 20
    (l1, t1), (l2, t2) = (
        stage(kind, nbytes / 2, bandwidth, 8, crossing)
        for kind, bandwidth, crossing in (("reduce", INSIDE, 0), ("all_reduce", BETWEEN / 2, 14))
    )
    # Reduction and broadcast share the links of the node: two of them in no tick here.
    ticks = l1 + t1, max(l1, l2) + max(t1, t2), max(l1, l2) + max(t1, t2), l1 + t1
    cost = cost_of("hierarchical")(nbytes, WORLD, MEASURED)
    assert cost.seconds == pytest.approx(sum(ticks))
    assert cost.collectives == ("reduce", "all_reduce", "reduce", "broadcast", "all_reduce",
                                "broadcast")  # fmt: skip
    assert cost.calls == 6
    assert cost.hops == 2 * (7 + 14 + 7)


def test_columns_of_the_torus_share_the_links_of_their_node() -> None:
    nbytes = 1 << 20
    # 8 columns on 2 adapters: an eighth of the node's links for an eighth of the bytes.
    parts = [
        stage("reduce_scatter", nbytes, INSIDE, 8),
        stage("all_reduce", nbytes / 8, BETWEEN / 8, 8, 14),
        stage("all_gather", nbytes, INSIDE, 8),
    ]
    expected = sum(latency + transfer for latency, transfer in parts)
    assert chosen("torus", nbytes, WORLD, MEASURED) == pytest.approx(expected)
    # In groups of half a node 4 columns of two ranks a node: of 30 hops 14 leave it.
    parts = [
        stage("reduce_scatter", nbytes, INSIDE, 4),
        stage("all_reduce", nbytes / 4, BETWEEN / 4, 16, 14),
        stage("all_gather", nbytes, INSIDE, 4),
    ]
    expected = sum(latency + transfer for latency, transfer in parts)
    assert chosen("torus", nbytes, Grouping(64, 8, 4), MEASURED) == pytest.approx(expected)


def test_a_host_that_is_slower_than_the_machine_is_what_counts() -> None:
    slow = replace(MEASURED, call_seconds=1.0)
    assert chosen("native", 1e6, WORLD, slow) == 1.0
    cost = cost_of("torus")(4 << 20, WORLD, slow)
    assert cost.seconds == cost.calls == 6


def test_native_on_pcie_is_the_better_of_two_protocols() -> None:
    p, m = 256, 32
    small, large = 1e3, 1e9
    crossing = 2 * (m - 1)
    ll = 6.6 + (2 * (p - 1) - crossing) * 1.0 + crossing * 2.7
    simple = 8.4 + (2 * (p - 1) - crossing) * 5.7 + crossing * 14.0
    world = Grouping(p, 8, 8)
    volume = 2 * (p - 1) / p
    assert chosen("native", small, world, P40) == pytest.approx(ll * 1e-6 + volume * small / 6e9)
    assert chosen("native", large, world, P40) == pytest.approx(
        simple * 1e-6 + volume * large / 12e9
    )


def test_native_takes_the_tree_where_hops_count() -> None:
    world = Grouping(4096, 8, 8)
    trees = replace(MEASURED, nccl_algorithms=("ring", "tree"))
    with_trees = chosen("native", 1e3, world, trees)
    # 7 hops in the node and 9 over the network, up and down, by the tree's LL protocol.
    assert with_trees == pytest.approx(
        (6.8 + 2 * (7 * 0.6 + 9 * 5.0)) * 1e-6 + 2 * 1e3 / (10e9 * 0.92 / 3.8)
    )
    assert with_trees < chosen("native", 1e3, world, MEASURED)


def test_native_takes_nvls_where_the_profile_has_it() -> None:
    switched = replace(MEASURED, nvls_bandwidth=130e9)
    node, large = Grouping(8, 8, 8), 1e9
    expected = 25e-6 + 2 * 7 / 8 * large / 130e9
    assert chosen("native", large, node, switched) == pytest.approx(expected)
    # Small tensors keep their ring.
    assert chosen("native", 1e3, node, switched) == chosen("native", 1e3, node, MEASURED)
    # Over 4 nodes a tree, whose inner nodes pass on twice the bytes.
    few = Grouping(32, 8, 8)
    inside = collective("all_reduce", large, Communicator(32, 4, INSIDE, BETWEEN), switched)
    assert inside.algorithm == "ring Simple"
    fast = replace(switched, between_bandwidth=300e9)
    inside = collective("all_reduce", large, Communicator(32, 4, INSIDE, 300e9), fast)
    assert (inside.algorithm, inside.hops) == ("NVLS tree", 5)
    assert inside.seconds == pytest.approx((25 + 4 * 20.9) * 1e-6 + 2 * 31 / 32 * large / 130e9)
    assert chosen("native", large, few, fast) == inside.seconds


@pytest.mark.parametrize("name", MODELLED)
@pytest.mark.parametrize("profile", [MEASURED, P40], ids=["measured", "p40"])
def test_more_bytes_and_more_ranks_never_take_less(name: str, profile: Profile) -> None:
    def seconds(nbytes: int, ranks: int) -> float:
        grouping = Grouping(ranks, min(8, ranks), min(8, ranks))
        return choose(name, nbytes, grouping, profile, Switched(1 << 20))[1].seconds

    for ranks in (2, 8, 16, 48, 64, 2048):
        # One more piece, or another algorithm, may well take less.
        whole = name in ("native", "ring", "halving-doubling")
        for small in range(0, 1 << 22, 65521) if whole else (1, 1 << 10, 1 << 22):
            assert 0 < seconds(small, ranks) <= seconds(small + 1000, ranks)
    assert seconds(1 << 22, 16) < seconds(1 << 22, 64) < seconds(1 << 22, 2048)


@pytest.mark.parametrize("name", MODELLED)
def test_one_rank_sends_nothing(name: str) -> None:
    for profile in (MEASURED, P40):
        assert choose(name, 1 << 20, Grouping(1, 1, 1), profile, Switched())[1].seconds == 0.0


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
        assert best.seconds == min(chosen(name, size, WORLD, P40) for name in CANDIDATES)


def test_the_best_hybrid_threshold_is_no_worse_than_either_side() -> None:
    sizes = [1 << power for power in range(10, 25)]
    world = Grouping(1024, 8, 8)
    threshold = best_hybrid_threshold(sizes, "ring", world, P40)

    def total(at: int) -> float:
        return sum(choose("hybrid", s, world, P40, Switched(at))[1].seconds for s in sizes)

    assert total(threshold) < min(total(0), total(1 << 40))
