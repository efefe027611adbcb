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

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from fourmin.recipe.rounds import halving_round_counts, power_of_two_below, swap_round_count
from fourmin.recipe.topology import Topology
from fourmin.training.comm.base import AllReduceOptions, require_flat
from fourmin.training.comm.rounds import Message, Rounds, Scratch, later, pieces, receive, run, send


@dataclass(frozen=True)
class Step:
    """A round of one rank: its messages, and what it then adds to what."""

    receives: list[Message] = field(default_factory=list)
    sends: list[Message] = field(default_factory=list)
    sums: list[tuple[Tensor, Tensor]] = field(default_factory=list)


class HalvingDoublingAllReduce:
    """Halving and doubling in the group, then over the groups."""

    name = "halving-doubling"

    def __init__(self, topology: Topology, pipeline_bytes: int) -> None:
        """``pipeline_bytes`` is the size of the pieces that follow each other between groups."""
        self._topology = topology
        self._pipeline_bytes = pipeline_bytes
        self._scratch = Scratch()

    def all_reduce(self, tensor: Tensor) -> None:
        require_flat(tensor)
        topology = self._topology
        if topology.world_size == 1 or not tensor.numel():
            return
        # Inside one group all links are alike, and there is nothing to overlap.
        several = len(topology.groups) > 1
        run(self._rounds, pieces(tensor, self._pipeline_bytes) if several else [tensor])

    def _rounds(self, tensor: Tensor) -> Rounds:
        plan = _Plan(self._topology.rank, self._scratch)
        steps = plan.steps(tensor, self._topology)
        # All that it receives is announced at once.
        ahead = [each for due, step in enumerate(steps) for each in later(due, step.receives)]
        for step in steps:
            yield [*ahead, *step.sends]
            ahead = []
            for total, term in step.sums:
                total.add_(term)
        for buffer in plan.buffers:
            self._scratch.give(buffer)


class _Plan:
    """The steps of a rank, and the buffers for what it adds.

    What comes back takes the place of what was given away: the partner has read all of that before
    it can answer.
    """

    def __init__(self, rank: int, scratch: Scratch) -> None:
        self._rank = rank
        self._scratch = scratch
        self.buffers: list[Tensor] = []

    def steps(self, tensor: Tensor, topology: Topology) -> list[Step]:
        """Sum ``tensor`` over all ranks."""
        groups, group = topology.groups, topology.group
        if len(groups) == 1:
            return self._flat(tensor, group)
        core = power_of_two_below(min(map(len, groups)))
        place = group.index(self._rank) % core
        column = [ranks[place] for ranks in groups]
        rounds = sum(halving_round_counts(topology))
        return self._folded(
            tensor, group, core, core, rounds, lambda rest: self._flat(rest, column)
        )

    def _flat(self, tensor: Tensor, ranks: Sequence[int]) -> list[Step]:
        """Sum ``tensor`` over ``ranks`` (global, neighbours first); the innermost pair swaps."""
        core = power_of_two_below(len(ranks))

        def swap(rest: Tensor) -> list[Step]:
            if core == 1:
                return []
            # Both add what the other holds: a + b has the same bits as b + a.
            theirs = self._buffer(rest, rest.numel())
            peer = ranks[ranks.index(self._rank) ^ (core // 2)]
            return [Step(receive(peer, theirs), send(peer, rest), [(rest, theirs)])]

        return self._folded(tensor, ranks, core, core // 2, swap_round_count(len(ranks)), swap)

    def _folded(
        self,
        tensor: Tensor,
        ranks: Sequence[int],
        core: int,
        until: int,
        rounds: int,
        inner: Callable[[Tensor], list[Step]],
    ) -> list[Step]:
        """Sum ``tensor`` over ``ranks`` and by ``inner`` what is left of it after the distances 1,
        2, 4, ... below ``until``, in as many ``rounds`` as every rank makes.

        Ranks beyond ``core`` give their tensor first and get the sum at last.
        """
        position = ranks.index(self._rank)
        if position >= core:
            peer = ranks[position % core]
            silent = [Step()] * (rounds - 2)
            return [Step(sends=send(peer, tensor)), *silent, Step(receive(peer, tensor))]
        windows = []
        rest, distance = tensor, 1
        while distance < until:
            middle = rest.numel() // 2
            low, high = rest[:middle], rest[middle:]
            rest, given = (high, low) if position & distance else (low, high)
            windows.append((rest, given, ranks[position ^ distance]))
            distance *= 2
        incoming = self._buffer(tensor, sum(kept.numel() for kept, _, _ in windows))
        parts = incoming.split([kept.numel() for kept, _, _ in windows])
        steps = [
            Step(receive(peer, part), send(peer, given), [(kept, part)])
            for (kept, given, peer), part in zip(windows, parts, strict=True)
        ]
        steps += inner(rest)
        steps += [
            Step(receive(peer, given), send(peer, kept)) for kept, given, peer in windows[::-1]
        ]
        if len(steps) == rounds:
            return steps
        guests = [
            (peer, self._buffer(tensor, tensor.numel())) for peer in ranks[position + core :: core]
        ]
        first = Step(
            [each for peer, theirs in guests for each in receive(peer, theirs)],
            sums=[(tensor, theirs) for _, theirs in guests],
        )
        last = Step(sends=[each for peer, _ in guests for each in send(peer, tensor)])
        return [first, *steps, last]

    def _buffer(self, like: Tensor, numel: int) -> Tensor:
        self.buffers.append(self._scratch.take(like, numel))
        return self.buffers[-1][:numel]


def build(topology: Topology, options: AllReduceOptions) -> HalvingDoublingAllReduce:
    return HalvingDoublingAllReduce(topology, options.pipeline_bytes)
