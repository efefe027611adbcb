"""Recursive halving and doubling, with the largest messages between the nearest ranks.

Ranks pair up and swap halves of the tensor, then, with another partner, halves of their half,
and so on: after log2(p) rounds each holds 1/p of the sum, and the same way back spreads it. With
n bytes, latency a and b seconds a byte that takes 2 log2(p) a + 2 ((p - 1)/p) n b: the bytes of
a ring in far fewer steps.

Who pairs with whom decides what crosses the slow links. Partners in the group come first, when
the messages are n/2, n/4, ...; between groups each rank exchanges only the n/k that is left to
it with the rank of the same column. The innermost pair swaps what it holds whole and both add:
as many bytes as half there and half back, in one round instead of two.

Where a number is no power of two, the ranks beyond the largest one that fits hand their tensor to
a partner before, and get the sum from it afterwards: those of a group inside the group, surplus
groups column by column.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from fourmin.recipe.rounds import power_of_two_below, swap_round_count
from fourmin.recipe.topology import Topology
from fourmin.training.comm.base import AllReduceOptions, require_flat
from fourmin.training.comm.rounds import (
    Message,
    Rounds,
    Scratch,
    later,
    pieces,
    receive,
    run,
    send,
)


class HalvingDoublingAllReduce:
    """Halving and doubling in the group, then over the groups."""

    name = "halving-doubling"

    def __init__(self, topology: Topology, pipeline_bytes: int) -> None:
        """``pipeline_bytes`` is the size of the pieces that follow each other between groups."""
        self._pipeline_bytes = pipeline_bytes
        self._world_size = topology.world_size
        self._rank = topology.rank
        self._group = topology.group
        self._several = len(topology.groups) > 1
        self._core = power_of_two_below(min(len(group) for group in topology.groups))
        self._folds = any(len(group) > self._core for group in topology.groups)
        self._position = self._group.index(self._rank)
        self._column = tuple(group[self._position % self._core] for group in topology.groups)
        self._scratch = Scratch()

    def all_reduce(self, tensor: Tensor) -> None:
        require_flat(tensor)
        if self._world_size == 1 or not tensor.numel():
            return
        # Inside one group all links are alike, and there is nothing to overlap.
        run(self._rounds, pieces(tensor, self._pipeline_bytes) if self._several else [tensor])

    def _rounds(self, tensor: Tensor) -> Rounds:
        core, group, position, scratch = self._core, self._group, self._position, self._scratch
        if not self._several:
            ahead, rounds = flat_plan(tensor, group, self._rank, scratch)
            yield from _with_first(ahead, rounds)
            return
        across = swap_round_count(len(self._column))
        if position >= core:
            between = 2 * (core.bit_length() - 1) + across
            peer = group[position % core]
            yield [*later(1 + between, receive(peer, tensor)), *send(peer, tensor)]
            for _ in range(between + 1):
                yield []
            return
        fold = _Fold(tensor, group[position + core :: core], scratch)
        halving = _Halving(tensor, group[:core], position, core, scratch)
        first = 1 if self._folds else 0
        ahead, rounds = flat_plan(halving.rest, self._column, self._rank, scratch)
        ahead = [
            *fold.receives,
            *later(first, halving.receives),
            *later(first + halving.depth, ahead),
            *later(first + halving.depth + across, halving.returns),
        ]

        def steps() -> Rounds:
            if self._folds:
                yield from fold.take()
            yield from halving.halve()
            yield from rounds
            yield from halving.double()
            if self._folds:
                yield fold.back()

        yield from _with_first(ahead, steps())


def flat_plan(
    tensor: Tensor, ranks: Sequence[int], rank: int, scratch: Scratch
) -> tuple[list[Message], Rounds]:
    """Sum ``tensor`` over ``ranks`` (global, neighbours first), seen from ``rank``.

    Returns all that it receives, to be posted with or before its first round, and its rounds,
    which only send.
    """
    core = power_of_two_below(len(ranks))
    count = swap_round_count(len(ranks))
    position = ranks.index(rank)
    surplus = len(ranks) - core
    if position >= core:
        peer = ranks[position - core]
        # Our tensor has left before the sum comes into its place.
        return later(count - 1, receive(peer, tensor)), _then_listen(send(peer, tensor), count)
    folded = [ranks[position + core]] if position < surplus else []
    fold = _Fold(tensor, folded, scratch)
    first = 1 if surplus else 0
    # The last distance is left to the swap.
    halving = _Halving(tensor, ranks, position, core // 2, scratch)
    rest = halving.rest
    buffer = scratch.take(rest, rest.numel())
    peer = ranks[position ^ (core // 2)]
    ahead = [
        *fold.receives,
        *later(first, halving.receives),
        *(later(first + halving.depth, receive(peer, buffer[: rest.numel()])) if core > 1 else ()),
        *later(first + halving.depth + 1, halving.returns),
    ]

    def steps() -> Rounds:
        if surplus:
            yield from fold.take()
        yield from halving.halve()
        if core > 1:
            yield send(peer, rest)
            # Both add what the other holds: a + b has the same bits as b + a.
            rest.add_(buffer[: rest.numel()])
        scratch.give(buffer)
        yield from halving.double()
        if surplus:
            yield fold.back()

    return ahead, steps()


class _Halving:
    """Rounds at distance 1, 2, 4, ... below ``until``, and the way back.

    ``rest`` is what is left to this rank in between; ``receives`` are due in the rounds of
    ``halve``, ``returns`` in those of ``double``. What comes back takes the place of what was
    given away: the partner has read all of that before it can answer.
    """

    def __init__(
        self, tensor: Tensor, ranks: Sequence[int], position: int, until: int, scratch: Scratch
    ) -> None:
        self._scratch = scratch
        # Halves of odd sizes are up to one element more each time.
        self._buffer = scratch.take(tensor, tensor.numel() + until.bit_length())
        self._windows: list[tuple[Tensor, Tensor, Tensor, int]] = []
        used = 0
        distance = 1
        while distance < until:
            middle = tensor.numel() // 2
            kept, given = tensor[:middle], tensor[middle:]
            if position & distance:
                kept, given = given, kept
            incoming = self._buffer[used : used + kept.numel()]
            used += kept.numel()
            self._windows.append((kept, given, incoming, ranks[position ^ distance]))
            tensor = kept
            distance *= 2
        self.rest = tensor
        self.depth = len(self._windows)
        self.receives = [
            message
            for due, (_, _, incoming, peer) in enumerate(self._windows)
            for message in later(due, receive(peer, incoming))
        ]
        self.returns = [
            message
            for due, (_, given, _, peer) in enumerate(reversed(self._windows))
            for message in later(due, receive(peer, given))
        ]

    def halve(self) -> Rounds:
        for kept, given, incoming, peer in self._windows:
            yield send(peer, given)
            kept.add_(incoming)
        self._scratch.give(self._buffer)

    def double(self) -> Rounds:
        for kept, _, _, peer in reversed(self._windows):
            yield send(peer, kept)


class _Fold:
    """The tensors of ranks that are no part of a power of two: added first, answered last."""

    def __init__(self, tensor: Tensor, peers: Sequence[int], scratch: Scratch) -> None:
        self._tensor = tensor
        self._peers = peers
        self._scratch = scratch
        self._buffers = [scratch.take(tensor, tensor.numel()) for _ in peers]
        self._incoming = [buffer[: tensor.numel()] for buffer in self._buffers]
        self.receives = [
            message
            for peer, incoming in zip(peers, self._incoming, strict=True)
            for message in receive(peer, incoming)
        ]

    def take(self) -> Rounds:
        yield []
        for incoming in self._incoming:
            self._tensor.add_(incoming)
        for buffer in self._buffers:
            self._scratch.give(buffer)

    def back(self) -> list[Message]:
        return [message for peer in self._peers for message in send(peer, self._tensor)]


def _then_listen(first: list[Message], count: int) -> Rounds:
    """``first``, then rounds without a message until there are ``count``."""
    yield first
    for _ in range(count - 1):
        yield []


def _with_first(ahead: list[Message], rounds: Rounds) -> Rounds:
    """``rounds``, with ``ahead`` in the first of them."""
    for first in rounds:
        yield [*ahead, *first]
        yield from rounds


def build(topology: Topology, options: AllReduceOptions) -> HalvingDoublingAllReduce:
    return HalvingDoublingAllReduce(topology, options.pipeline_bytes)
