"""Rounds of point-to-point messages: how many there are, and how a tensor is cut for them.

Training sends them (`fourmin.training.comm`); whoever counts an all-reduce counts here.
"""

from __future__ import annotations

from fourmin.recipe.calls import MOST_PIECES, PIPELINE_BYTES
from fourmin.recipe.topology import Topology

GPU_FACTOR = 16
"""How many times larger a piece is on a GPU, where a byte takes so much less than a launch."""


def power_of_two_below(number: int) -> int:
    """The largest power of two that is not above `number` (at least 1)."""
    return 1 << (number.bit_length() - 1)


def message_piece(
    numel: int, itemsize: int, on_gpu: bool, pipeline_bytes: int = PIPELINE_BYTES
) -> int:
    """Elements of a piece of `numel` of `itemsize` bytes; more pieces would only add messages."""
    wanted = pipeline_bytes * (GPU_FACTOR if on_gpu else 1)
    return max(1, -(-numel // MOST_PIECES), wanted // itemsize)


def ring_round_count(ranks: int) -> int:
    """Of a flat ring: once around to add, once around to spread."""
    return 2 * (ranks - 1)


def swap_round_count(ranks: int) -> int:
    """Of halving and doubling over `ranks`: the innermost pair swaps all, ranks beyond a power of
    two give their tensor before and get the sum after.
    """
    core = power_of_two_below(ranks)
    return max(0, 2 * (core.bit_length() - 1) - 1) + (0 if core == ranks else 2)


def halving_round_counts(topology: Topology) -> tuple[int, int]:
    """Of halving and doubling for one piece, in the group and between groups."""
    sizes = [len(group) for group in topology.groups]
    if len(sizes) == 1:
        return swap_round_count(sizes[0]), 0
    core = power_of_two_below(min(sizes))
    folds = 2 if max(sizes) > core else 0
    return 2 * (core.bit_length() - 1) + folds, swap_round_count(len(sizes))
