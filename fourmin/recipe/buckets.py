"""Which gradients are reduced together: the one rule of training and of the estimate."""

from __future__ import annotations

from collections.abc import Sequence

TAIL = 1 << 20
"""FP32 bytes: the most that is left for last, when nothing is left to hide its reduction."""

ALIGNMENT = 4
"""Elements at whose multiples a gradient starts: 16 bytes of FP32, as vectorised kernels want."""


def partition(sizes: Sequence[int], threshold: int) -> list[list[int]]:
    """Group gradients into buckets; returns indices of `sizes`, in the order of launch.

    `sizes` are the FP32 bytes of each gradient, in the order of registration. They are taken in
    reverse, about the order in which backward produces them, and a bucket ends once its size
    reaches `threshold` (Jia et al. 2018 send a buffer once its size passes theta); 0 gives each its
    own. A last bucket of more than `TAIL` is sent in two parts, the second of at most that size:
    the first part is then reduced while backward makes the second.
    """
    parts: list[list[int]] = []
    size = threshold  # so that the first gradient opens a bucket
    for index in reversed(range(len(sizes))):
        if size >= threshold:
            parts.append([])
            size = 0
        parts[-1].append(index)
        size += sizes[index]
    if parts:
        parts[-1:] = _before_and_tail(sizes, parts[-1])
    return parts


def lay_out(elements: Sequence[int]) -> tuple[list[int], int]:
    """Where each gradient of a bucket starts, and where the last one ends, in elements."""
    starts = []
    end = 0
    for count in elements:
        starts.append(-(-end // ALIGNMENT) * ALIGNMENT)
        end = starts[-1] + count
    return starts, end


def _before_and_tail(sizes: Sequence[int], last: list[int]) -> list[list[int]]:
    """`last` as one part or two; the tail holds as many of its last gradients as `TAIL` allows."""
    room, cut = TAIL, len(last)
    while cut and sizes[last[cut - 1]] <= room:
        cut -= 1
        room -= sizes[last[cut]]
    return [part for part in (last[:cut], last[cut:]) if part]
