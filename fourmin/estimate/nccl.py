"""What NCCL does inside one collective: hops, bytes and seconds, by the model of its own tuner.

A collective takes the least over algorithm and protocol of latency + bytes/rate, with the default
constants of NCCL 2.30 (src/graph/tuning.cc, microseconds). A profile says which algorithms there
are: ring, tree, and NVLS, where switches add up what passes them, if it has a bandwidth for that.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from fourmin.estimate.profile import Profile
from fourmin.recipe.calls import Kind

_US = 1e-6
PROTOCOLS = ("LL", "LL128", "Simple")
LL128, SIMPLE = 1, 2
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
NVLS_LATENCY = {"nvlink": 25.0, "net": 20.9}
"""The same of NVLS, which knows one protocol: through the switch, and of its tree over nodes."""
BASE_LATENCY = {"ring": (6.6, 14.0, 8.4), "tree": (6.8, 14.0, 8.4)}
"""Microseconds of one collective, by algorithm and protocol."""
POST_OVERHEAD = (1.0, 1.0, 3.0)
"""Microseconds that a hop takes at least where a ring crosses nodes (NCCL's for Intel CPUs)."""
RING_RATE = (0.5, 0.92, 1.0)
"""Share of the links' bandwidth that each protocol of the ring reaches."""
TREE_RATE = 0.92
TREE_PROTOCOL_RATE = (1 / 3.8, 120 / 128, 1.0)
TREE_ONE_NODE_LL128 = 7 / 9
_PASSES = {"all_reduce": 2, "reduce_scatter": 1, "all_gather": 1, "reduce": 1, "broadcast": 1}
"""How often the data goes around a ring."""


@dataclass(frozen=True)
class Communicator:
    """`ranks` ranks on `nodes` nodes, with bytes a second that they have inside a node and, of one
    node and direction, between nodes.
    """

    ranks: int
    nodes: int
    inside: float
    between: float

    @property
    def bandwidth(self) -> float:
        return self.inside if self.nodes == 1 else min(self.inside, self.between)


@dataclass(frozen=True)
class Inside:
    """One collective as NCCL makes it: messages one after the other, seconds that they take, and
    bytes that the busiest link carries, with their seconds.
    """

    algorithm: str
    hops: int
    latency: float
    nbytes: float
    transfer: float

    @property
    def seconds(self) -> float:
        return self.latency + self.transfer


def collective(kind: Kind, nbytes: float, group: Communicator, profile: Profile) -> Inside:
    """What NCCL does with `nbytes` bytes on each rank; reduce-scatter and all-gather share them."""
    return min(_choices(kind, nbytes, group, profile), key=lambda one: one.seconds)


def _choices(kind: Kind, nbytes: float, group: Communicator, profile: Profile) -> Iterator[Inside]:
    # NCCL uses LL128 over NVLink only.
    protocols = (0, 1, 2) if profile.inside_kind == "nvlink" else (0, 2)
    for protocol in protocols:
        yield _ring(kind, nbytes, group, profile, protocol)
    if kind != "all_reduce":
        return
    if "tree" in profile.nccl_algorithms:
        for protocol in protocols:
            yield _tree(nbytes, group, profile, protocol)
    if profile.nvls_bandwidth and group.ranks > group.nodes:
        yield _nvls(nbytes, group, profile.nvls_bandwidth)


def _ring(
    kind: Kind, nbytes: float, group: Communicator, profile: Profile, protocol: int
) -> Inside:
    """Reductions to a rank and broadcasts are a chain: the bytes pass every link once."""
    ranks, nodes, passes = group.ranks, group.nodes, _PASSES[kind]
    hop = HOP_LATENCY["ring"][profile.inside_kind][protocol]
    if nodes > 1:
        hop = max(hop, POST_OVERHEAD[protocol])
    hops, crossing = passes * (ranks - 1), passes * (nodes - 1)
    latency = (hops - crossing) * hop + crossing * HOP_LATENCY["ring"]["net"][protocol]
    volume = 1.0 if kind in ("reduce", "broadcast") else passes * (ranks - 1) / ranks
    return _inside(
        f"ring {PROTOCOLS[protocol]}",
        hops,
        BASE_LATENCY["ring"][protocol] + latency,
        volume * nbytes,
        group.bandwidth * RING_RATE[protocol],
    )


def _tree(nbytes: float, group: Communicator, profile: Profile, protocol: int) -> Inside:
    """Two binary trees over nodes, a chain in each node, up and down."""
    near = 2 * (group.ranks // group.nodes - 1)
    far = 2 * math.floor(math.log2(group.nodes))
    latency = near * HOP_LATENCY["tree"][profile.inside_kind][protocol]
    latency += far * HOP_LATENCY["tree"]["net"][protocol]
    rate = TREE_RATE * TREE_PROTOCOL_RATE[protocol]
    if protocol == LL128 and group.nodes == 1:
        rate = TREE_RATE * TREE_ONE_NODE_LL128
    return _inside(
        f"tree {PROTOCOLS[protocol]}",
        near + far,
        BASE_LATENCY["tree"][protocol] + latency,
        2.0 * nbytes,
        group.bandwidth * rate,
    )


def _nvls(nbytes: float, group: Communicator, bandwidth: float) -> Inside:
    """In the switch of a node; on several nodes a tree over them, whose inner nodes pass on twice
    what they get.
    """
    far = 2 * math.floor(math.log2(group.nodes))
    if group.nodes > 1:
        bandwidth = min(bandwidth, group.between if group.nodes == 2 else group.between / 2)
    return _inside(
        "NVLS" if group.nodes == 1 else "NVLS tree",
        1 + far,
        NVLS_LATENCY["nvlink"] + far * NVLS_LATENCY["net"],
        2 * (group.ranks - 1) / group.ranks * nbytes,
        bandwidth,
    )


def _inside(name: str, hops: int, latency: float, nbytes: float, rate: float) -> Inside:
    return Inside(name, hops, latency * _US, nbytes, nbytes / rate)
