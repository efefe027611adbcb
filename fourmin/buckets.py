"""Which gradients are reduced together: the one rule of training and of the estimate."""

from __future__ import annotations

from collections.abc import Sequence


def partition(sizes: Sequence[int], threshold: int) -> list[list[int]]:
    """Group gradients into buckets; returns indices of `sizes`, in the order of launch.

    `sizes` are the FP32 bytes of each gradient, in the order of registration. They are taken in
    reverse, about the order in which backward produces them, and a bucket ends once its size
    reaches `threshold` (Jia et al. 2018 send a buffer once its size passes theta); 0 gives each its
    own.
    """
    parts: list[list[int]] = []
    size = threshold  # so that the first gradient opens a bucket
    for index in reversed(range(len(sizes))):
        if size >= threshold:
            parts.append([])
            size = 0
        parts[-1].append(index)
        size += sizes[index]
    return parts
