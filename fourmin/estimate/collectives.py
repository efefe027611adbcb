"""How long an all-reduce takes, by algorithm: the published cost models.

The formulas stand in `fourmin.recipe.allreduces`, the symbols in docs/allreduce.md. Of halving and
doubling n/k crosses between groups; in the torus b_e is that of one rank, the messages of a row are
one round, and columns halve and double. `native` is what NCCL's tuner computes: the least over
algorithm and protocol of latency + bytes/rate.

Latencies are NCCL's own (src/graph/tuning.cc of NCCL 2.30, default tuner constants): microseconds
by kind of link and protocol. A profile that has measured a round of point-to-point messages takes
that for the algorithms that fourmin composes, and NCCL's for `native` alone.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

from fourmin.base.errors import FourminError, list_names
from fourmin.estimate.profile import Profile
from fourmin.recipe.allreduces import (
    ALL_REDUCES,
    CANDIDATES,
    Switches,
    hybrid_table,
    needs,
    taken,
)

_US = 1e-6
PROTOCOLS = ("LL", "LL128", "Simple")
HOP_LATENCY = {
    "ring": {
        "nvlink": (0.6, 1.9, 3.4),
        "pcie": (1.0, 2.5, 5.7),
        "net": (2.7, 4.0, 14.0),
    },
    "tree": {
        "nvlink": (0.6, 1.25, 4.0),
        "pcie": (1.0, 1.9, 4.0),
        "net": (5.0, 8.5, 14.0),
    },
}
"""Microseconds of one hop, by algorithm, link and protocol."""
BASE_LATENCY = {"ring": (6.6, 14.0, 8.4), "tree": (6.8, 14.0, 8.4)}
"""Microseconds of one collective, by algorithm and protocol."""
POST_OVERHEAD = (1.0, 1.0, 3.0)
"""Microseconds that a hop takes at least where a ring crosses nodes (NCCL's for Intel CPUs)."""
RING_RATE = (0.5, 0.92, 1.0)
"""Share of the links' bandwidth that each protocol of the ring reaches."""
TREE_RATE = 0.92
TREE_PROTOCOL_RATE = (1 / 3.8, 120 / 128, 1.0)
TREE_ONE_NODE_LL128 = 7 / 9
LL128 = 1


@dataclass(frozen=True)
class Grouping:
    """`ranks` workers, `per_node` on each node, in groups of `group`."""

    ranks: int
    per_node: int
    group: int

    @property
    def nodes(self) -> int:
        return -(-self.ranks // self.per_node)

    @property
    def groups(self) -> int:
        return -(-self.ranks // self.group)


@dataclass(frozen=True)
class _Links:
    """Latencies (seconds) and bandwidths inside and between groups, under one protocol.

    Between groups all ranks of a node share `between_bandwidth`; `adapter_bandwidth` is what one
    rank alone can have of it.
    """

    inside: float
    between: float
    inside_bandwidth: float
    between_bandwidth: float
    adapter_bandwidth: float
    base: float


def native(nbytes: float, grouping: Grouping, profile: Profile) -> float:
    """Seconds of NCCL's own all-reduce."""
    if grouping.ranks == 1:
        return 0.0
    return profile.call_seconds + min(
        _native(nbytes, grouping, profile, algorithm, protocol)
        for algorithm in profile.nccl_algorithms
        for protocol in _protocols(profile)
    )


def _protocols(profile: Profile) -> tuple[int, ...]:
    # NCCL uses LL128 over NVLink only.
    return (0, 1, 2) if profile.inside_kind == "nvlink" else (0, 2)


def _native(
    nbytes: float, grouping: Grouping, profile: Profile, algorithm: str, protocol: int
) -> float:
    ranks, nodes = grouping.ranks, grouping.nodes
    in_node = min(grouping.per_node, ranks)
    bandwidth = profile.inside_bandwidth
    if nodes > 1:
        bandwidth = min(bandwidth, profile.between_bandwidth)
    hop = HOP_LATENCY[algorithm][profile.inside_kind][protocol]
    far = HOP_LATENCY[algorithm]["net"][protocol]
    if algorithm == "ring":
        if nodes > 1:
            hop = max(hop, POST_OVERHEAD[protocol])
        crossing = 2 * (nodes - 1)
        hops = (2 * (ranks - 1) - crossing) * hop + crossing * far
        volume = 2 * (ranks - 1) / ranks
        rate = RING_RATE[protocol]
    else:
        hops = 2 * ((in_node - 1) * hop + math.floor(math.log2(nodes)) * far)
        volume = 2.0
        rate = TREE_RATE * TREE_PROTOCOL_RATE[protocol]
        if protocol == LL128 and nodes == 1:
            rate = TREE_RATE * TREE_ONE_NODE_LL128
    return (BASE_LATENCY[algorithm][protocol] + hops) * _US + volume * nbytes / (bandwidth * rate)


def ring(nbytes: float, grouping: Grouping, profile: Profile) -> float:
    """Seconds of a flat ring over all ranks."""
    if grouping.ranks == 1:
        return 0.0
    if profile.round_seconds is None:
        return profile.call_seconds + min(
            _native(nbytes, grouping, profile, "ring", protocol) for protocol in _protocols(profile)
        )
    ranks = grouping.ranks
    links = _measured(profile, grouping)
    slower = min(links.inside_bandwidth, links.adapter_bandwidth)
    # Every round waits for its slowest message, which crosses between nodes where there are some.
    latency = links.between if grouping.nodes > 1 else links.inside
    return links.base + 2 * (ranks - 1) * (latency + nbytes / ranks / slower)


def hierarchical(nbytes: float, grouping: Grouping, profile: Profile) -> float:
    """Seconds of reduce in the group, ring of masters, broadcast in the group."""
    k, m = min(grouping.group, grouping.ranks), grouping.groups
    return _least(
        profile,
        grouping,
        lambda links: (
            4 * (k - 1) * (links.inside + nbytes / k / links.inside_bandwidth)
            + 2 * (m - 1) * (links.between + nbytes / m / links.adapter_bandwidth)
        ),
        collectives=3,
    )


def halving_doubling(nbytes: float, grouping: Grouping, profile: Profile) -> float:
    """Seconds of recursive halving and doubling, nearest partners first."""
    k, m = min(grouping.group, grouping.ranks), grouping.groups
    near, far = _halving_rounds(k), _halving_rounds(m)
    return _least(
        profile,
        grouping,
        lambda links: (
            near * links.inside
            + max(0, far - 1 if m > 1 else 0) * links.between
            + 2 * (k - 1) / k * nbytes / links.inside_bandwidth
            + _crossing(nbytes, grouping, links)
        ),
    )


def torus(nbytes: float, grouping: Grouping, profile: Profile) -> float:
    """Seconds of reduce-scatter in the group, all-reduce across, all-gather in the group."""
    k, m = min(grouping.group, grouping.ranks), grouping.groups
    halving = m & (m - 1) == 0
    across = max(0, _halving_rounds(m) - 1) if halving else 2 * (m - 1)
    return _least(
        profile,
        grouping,
        lambda links: (
            (2 if k > 1 else 0) * links.inside
            + across * links.between
            + 2 * (k - 1) / k * nbytes / links.inside_bandwidth
            + _crossing(nbytes, grouping, links)
        ),
    )


Cost = Callable[[float, Grouping, Profile], float]
"""Seconds of an all-reduce, from bytes, ranks and machine."""

MODELLED = tuple(name for name, entry in ALL_REDUCES.items() if entry.cost or entry.table)
"""What can be estimated."""


@cache
def cost_of(name: str) -> Cost:
    """The cost function of an all-reduce that sums. Raises FourminError where there is none."""
    module, _, function = ALL_REDUCES[name].cost.rpartition(".")
    if not function:
        raise FourminError(
            f"the all-reduce {name} has no cost model",
            "an estimate adds up the seconds of every bucket, and of this one they are not known",
            f"estimate with another --allreduce: {list_names(MODELLED)}; or measure {name}: "
            "`fourmin bench allreduce`",
        )
    cost: Cost = getattr(importlib.import_module(f"fourmin.estimate.{module}"), function)
    return cost


def choose(
    allreduce: str,
    nbytes: int,
    grouping: Grouping,
    profile: Profile,
    by: Switches,
) -> tuple[str, float]:
    """The algorithm that sums `nbytes` bytes and its seconds; `by` is a configuration.

    `tuned` without a table takes the fastest by these models. Raises FourminError for one without
    a cost model.
    """
    table = ALL_REDUCES[allreduce].table
    if table and needs(allreduce, "tuning") and not by.tuning:
        known = (name for name in CANDIDATES if ALL_REDUCES[name].cost)
        times = {name: cost_of(name)(nbytes, grouping, profile) for name in known}
        best = min(times, key=lambda name: times[name])
        return best, times[best]
    name = taken(table(by), nbytes) if table else allreduce
    return name, cost_of(name)(nbytes, grouping, profile)


def best_hybrid_threshold(
    sizes: Sequence[int], large: str, grouping: Grouping, profile: Profile
) -> int:
    """The threshold under which buckets of `sizes` bytes take least time together; it lies in the
    middle between those that it parts.
    """
    rising = sorted(set(sizes))
    candidates = [0, *(round(math.sqrt(a * b)) for a, b in pairwise(rising)), 2 * rising[-1]]

    def total(threshold: int) -> float:
        table = hybrid_table(threshold, large)
        return sum(cost_of(taken(table, size))(size, grouping, profile) for size in sizes)

    return min(candidates, key=total)


def _halving_rounds(ranks: int) -> int:
    """Rounds of halving and doubling, with those of ranks beyond a power of two."""
    power = ranks.bit_length() - 1
    return 2 * power + (0 if ranks == 1 << power else 2)


def _crossing(nbytes: float, grouping: Grouping, links: _Links) -> float:
    """Seconds of the n/k bytes of each rank between groups; the ranks of a node share its links."""
    k, m = min(grouping.group, grouping.ranks), grouping.groups
    sharing = grouping.per_node if grouping.nodes > 1 else 1
    return 2 * (m - 1) / m * sharing * nbytes / k / links.between_bandwidth


def _least(
    profile: Profile,
    grouping: Grouping,
    seconds: Callable[[_Links], float],
    collectives: int = 1,
) -> float:
    """`seconds` over measured rounds, or the least over NCCL's protocols."""
    if grouping.ranks == 1:
        return 0.0
    if profile.round_seconds is not None:
        links = _measured(profile, grouping)
        return links.base + seconds(links)
    return collectives * profile.call_seconds + min(
        collectives * links.base + seconds(links)
        for links in (_kernel(profile, grouping, protocol) for protocol in _protocols(profile))
    )


def _kernel(profile: Profile, grouping: Grouping, protocol: int) -> _Links:
    """Links as NCCL's kernels see them under one protocol of the ring."""
    hops = HOP_LATENCY["ring"]
    return _links(
        profile,
        grouping,
        near=hops[profile.inside_kind][protocol] * _US,
        far=hops["net"][protocol] * _US,
        rate=RING_RATE[protocol],
        base=BASE_LATENCY["ring"][protocol] * _US,
    )


def _measured(profile: Profile, grouping: Grouping) -> _Links:
    """Links under measured rounds of messages; between nodes the network's hop comes on top."""
    assert profile.round_seconds is not None
    hop = HOP_LATENCY["ring"]["net"][PROTOCOLS.index("Simple")] * _US
    return _links(
        profile,
        grouping,
        near=profile.round_seconds,
        far=profile.round_seconds + hop,
        rate=1.0,
        base=profile.call_seconds,
    )


def _links(
    profile: Profile, grouping: Grouping, *, near: float, far: float, rate: float, base: float
) -> _Links:
    """Where the network lies: between groups on several nodes, and inside a group of several."""
    node, network = profile.inside_bandwidth, profile.between_bandwidth
    torn = grouping.group > grouping.per_node
    several = grouping.nodes > 1
    return _Links(
        inside=far if torn else near,
        between=far if several else near,
        inside_bandwidth=rate * (min(node, network) if torn else node),
        between_bandwidth=rate * (network if several else node),
        adapter_bandwidth=rate * (min(node, network / profile.adapters) if several else node),
        base=base,
    )
