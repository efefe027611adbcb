"""How long an all-reduce takes, and what it is made of: calls, rounds, bytes.

Composed all-reduces are counted from the calls that training makes (`fourmin.recipe.calls`), those
of point-to-point messages from their rounds (`fourmin.recipe.rounds`), both on rank 0, which does
as much as any. NCCL's part in a collective is `fourmin.estimate.nccl`'s.

The host needs `call_seconds` to start a collective, and starts the next ones meanwhile: whichever
takes longer, the host or the machine, is what a sequence of them takes. Stages of several pieces go
on together: a tick takes the longest latency among its stages, and the bytes of all that share
links. Rounds of messages wait for each other, `round_seconds` each.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import groupby, pairwise

from fourmin.base.errors import FourminError, list_names
from fourmin.estimate.nccl import HOP_LATENCY, SIMPLE, Communicator, Inside, collective
from fourmin.estimate.profile import Profile
from fourmin.recipe.allreduces import (
    ALL_REDUCES,
    CANDIDATES,
    Switches,
    hybrid_table,
    needs,
    taken,
)
from fourmin.recipe.calls import Kind, Stage, calls, piece_sizes
from fourmin.recipe.rounds import (
    halving_round_counts,
    message_piece,
    power_of_two_below,
    ring_round_count,
)
from fourmin.recipe.topology import Topology


@dataclass(frozen=True)
class Grouping:
    """`ranks` workers, `per_node` on each node, in groups of `group`.

    Elements are sent in `itemsize` bytes.
    """

    ranks: int
    per_node: int
    group: int
    itemsize: int = 4

    @property
    def nodes(self) -> int:
        return -(-self.ranks // self.per_node)


@cache
def topology_of(grouping: Grouping) -> Topology:
    """The ranks in their groups, as rank 0 sees them."""
    per_node = min(grouping.per_node, grouping.ranks)
    return Topology.build(0, grouping.ranks, per_node, grouping.group)


@dataclass(frozen=True)
class Cost:
    """An all-reduce on the rank that does most: the seconds of it, its collectives and rounds of
    messages, and the bytes that it gives to the ones and sends in the others.

    `hops` and `moved` are inside the library, by the cost model: messages one after the other,
    and bytes on the busiest link, added up over the calls.
    """

    seconds: float = 0.0
    collectives: tuple[Kind, ...] = ()
    rounds: int = 0
    nbytes: float = 0.0
    hops: int = 0
    moved: float = 0.0

    @property
    def calls(self) -> int:
        """Collectives and rounds: what the host starts."""
        return len(self.collectives) + self.rounds


NOTHING = Cost()


def native(nbytes: float, grouping: Grouping, profile: Profile, kind: Kind = "all_reduce") -> Cost:
    """NCCL's own all-reduce, or another collective of all ranks."""
    if grouping.ranks == 1:
        return NOTHING
    everybody = Communicator(
        grouping.ranks, grouping.nodes, profile.inside_bandwidth, profile.between_bandwidth
    )
    inside = collective(kind, nbytes, everybody, profile)
    seconds = max(profile.call_seconds, inside.seconds)
    return Cost(seconds, (kind,), 0, nbytes, inside.hops, inside.nbytes)


def composed(
    stages: Callable[[Topology], tuple[Stage, ...]],
    nbytes: float,
    grouping: Grouping,
    profile: Profile,
) -> Cost:
    """The collectives of `stages`, in the pieces and the order in which training calls them."""
    if grouping.ranks == 1:
        return NOTHING
    made, groups = _laid_out(stages, grouping, profile)
    sizes = piece_sizes(made, max(1, math.ceil(nbytes / grouping.itemsize)), grouping.itemsize)
    known: dict[tuple[int, int], Inside] = {}
    device, ordered = 0.0, list(calls(made, sizes, 0))
    for _, together in groupby(ordered, key=lambda call: call.tick):
        latency, transfers = 0.0, {True: 0.0, False: 0.0}
        for call in together:
            group, key = groups[call.stage], (call.stage, call.count)
            if key not in known:
                size = call.count * grouping.itemsize
                known[key] = collective(made[call.stage].kind, size, group, profile)
            latency = max(latency, known[key].latency)
            transfers[group.nodes > 1] += known[key].transfer
        device += latency + max(transfers.values())
    insides = [known[call.stage, call.count] for call in ordered]
    return Cost(
        max(len(ordered) * profile.call_seconds, device),
        tuple(made[call.stage].kind for call in ordered),
        0,
        grouping.itemsize * sum(call.count for call in ordered),
        sum(inside.hops for inside in insides),
        sum(inside.nbytes for inside in insides),
    )


@cache
def _laid_out(
    stages: Callable[[Topology], tuple[Stage, ...]], grouping: Grouping, profile: Profile
) -> tuple[tuple[Stage, ...], tuple[Communicator, ...]]:
    """The stages, and of each the communicator of rank 0 with what it has of the links."""
    made = stages(topology_of(grouping))
    return made, tuple(_communicator(stage, grouping.per_node, profile) for stage in made)


def _communicator(stage: Stage, per_node: int, profile: Profile) -> Communicator:
    """That of rank 0. A rank alone has one adapter; communicators that leave a node share all."""
    _, ranks = stage.of(0)
    here = sum(rank < per_node for rank in ranks)
    sharing = sum(group[0] < per_node for group in stage.communicators)
    total, adapters = profile.between_bandwidth, profile.adapters
    between = min(total * min(here, adapters) / adapters, total / sharing)
    nodes = len({rank // per_node for rank in ranks})
    return Communicator(len(ranks), nodes, profile.inside_bandwidth, between)


def ring(nbytes: float, grouping: Grouping, profile: Profile) -> Cost:
    """A flat ring of messages over all ranks; NCCL's where a round of messages has no cost."""
    ranks, nodes = grouping.ranks, grouping.nodes
    if ranks == 1:
        return NOTHING
    rounds = ring_round_count(ranks)
    moved = rounds / ranks * nbytes
    if profile.round_seconds is None:
        only = Communicator(ranks, nodes, profile.inside_bandwidth, profile.between_bandwidth)
        ring_only = replace(profile, nccl_algorithms=("ring",), nvls_bandwidth=0.0)
        seconds = collective("all_reduce", nbytes, only, ring_only).seconds
    else:
        near, far = _round_seconds(profile)
        adapter = profile.between_bandwidth / profile.adapters
        # Every round waits for its slowest message, which crosses between nodes if there are some.
        slowest = min(profile.inside_bandwidth, adapter) if nodes > 1 else profile.inside_bandwidth
        seconds = rounds * (far if nodes > 1 else near) + moved / slowest
    return Cost(seconds, (), rounds, moved, rounds, moved)


def halving_doubling(nbytes: float, grouping: Grouping, profile: Profile) -> Cost:
    """Recursive halving and doubling in messages, nearest partners first, pieces between groups."""
    if grouping.ranks == 1:
        return NOTHING
    topology = topology_of(grouping)
    near, far = halving_round_counts(topology)
    sizes = [len(group) for group in topology.groups]
    inside, across = power_of_two_below(min(sizes)), power_of_two_below(len(sizes))
    # Ranks beyond a power of two get the sum from their partner, whole.
    shared = 2 * (inside - 1) / inside + (sizes[0] - 1) // inside
    left = (2 * (across - 1) / across + (len(sizes) > across)) / inside
    numel = max(1, math.ceil(nbytes / grouping.itemsize))
    pieces = -(-numel // message_piece(numel, grouping.itemsize, True)) if far else 1
    near_seconds, far_seconds = _round_seconds(profile)
    several, torn = grouping.nodes > 1, grouping.group > grouping.per_node
    network = profile.between_bandwidth / grouping.per_node
    seconds = (
        near * (far_seconds if torn else near_seconds)
        + (far + pieces - 1) * (far_seconds if several else near_seconds)
        + shared
        * nbytes
        / (min(profile.inside_bandwidth, network) if torn else profile.inside_bandwidth)
        + left * nbytes / (network if several else profile.inside_bandwidth)
    )
    rounds, moved = near + far + pieces - 1, (shared + left) * nbytes
    return Cost(seconds, (), rounds, moved, rounds, moved)


def _round_seconds(profile: Profile) -> tuple[float, float]:
    """Of a round inside a node and between nodes, where the network's hop comes on top."""
    hops = HOP_LATENCY["ring"]
    near = profile.round_seconds or 1e-6 * hops[profile.inside_kind][SIMPLE]
    return near, near + 1e-6 * hops["net"][SIMPLE]


CostFunction = Callable[[float, Grouping, Profile], Cost]
"""What an all-reduce costs, from bytes, ranks and machine."""

MODELLED = tuple(name for name, e in ALL_REDUCES.items() if e.cost or e.stages or e.table)
"""What can be estimated."""


@cache
def cost_of(name: str) -> CostFunction:
    """The cost function of an all-reduce that sums. Raises FourminError where there is none."""
    entry = ALL_REDUCES[name]
    if entry.stages:
        return partial(composed, entry.stages)
    module, _, function = entry.cost.rpartition(".")
    if not function:
        raise FourminError(
            f"the all-reduce {name} has no cost model",
            "an estimate adds up the seconds of every bucket, and of this one they are not known",
            f"estimate with another --allreduce: {list_names(MODELLED)}; or measure {name}: "
            "`fourmin bench allreduce`",
        )
    cost: CostFunction = getattr(importlib.import_module(f"fourmin.estimate.{module}"), function)
    return cost


def choose(
    allreduce: str,
    nbytes: int,
    grouping: Grouping,
    profile: Profile,
    by: Switches,
) -> tuple[str, Cost]:
    """The algorithm that sums `nbytes` bytes and its cost; `by` is a configuration.

    `tuned` without a table takes the fastest by these models. Raises FourminError for one without
    a cost model.
    """
    table = ALL_REDUCES[allreduce].table
    if table and needs(allreduce, "tuning") and not by.tuning:
        known = (name for name in CANDIDATES if name in MODELLED)
        costs = {name: cost_of(name)(nbytes, grouping, profile) for name in known}
        return min(costs.items(), key=lambda item: item[1].seconds)
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
        return sum(cost_of(taken(table, size))(size, grouping, profile).seconds for size in sizes)

    return min(candidates, key=total)
