"""Hybrid all-reduce: hierarchical for small tensors, ring for large ones.

Jia et al. 2018 choose by the size of the (fused) tensor against a parameter eta, whose value
they do not publish. Which side takes which follows from the cost models of the two. With p
ranks in m = p/k groups of k, one latency a and b seconds a byte for all links, hierarchical
saves 2(p - 1) - 4(k - 1) - 2(m - 1) steps and moves 4(k - 1)/k + 2(m - 1)/m - 2(p - 1)/p times
the tensor more, so it wins where latency matters, that is below

    n* = a [2(p - 1) - 4(k - 1) - 2(m - 1)] / (b [4(k - 1)/k + 2(m - 1)/m - 2(p - 1)/p]) bytes.

For p = 1024, k = 16 that is 1860 a / (3.72 b): at 10 us a step and 10 GB/s about 50 MB. Where the
first bracket is not positive (few groups: p = 8, k = 4 gives 0) ring is never slower, and the
threshold should be 0.

Two thresholds meet here. The fusion threshold decides how large a bucket is before it is sent;
the hybrid threshold decides by which algorithm it is sent. A hybrid threshold above the largest
bucket means hierarchical everywhere, 0 means ring everywhere.
"""

from __future__ import annotations

from torch import Tensor

from fourmin.training.comm import hierarchical, ring
from fourmin.training.comm.base import AllReduce, AllReduceOptions, Topology


class HybridAllReduce:
    """``small`` below ``threshold`` bytes, ``large`` from there on."""

    name = "hybrid"

    def __init__(self, small: AllReduce, large: AllReduce, threshold: int) -> None:
        """``threshold`` is in bytes of the tensor as it is sent (FP16: 2 bytes an element)."""
        self._small = small
        self._large = large
        self._threshold = threshold

    def choose(self, nbytes: int) -> AllReduce:
        """The algorithm that sums a tensor of ``nbytes`` bytes."""
        return self._small if nbytes < self._threshold else self._large

    def all_reduce(self, tensor: Tensor) -> None:
        """See ``base.AllReduce.all_reduce``."""
        self.choose(tensor.numel() * tensor.element_size()).all_reduce(tensor)


def build(topology: Topology, options: AllReduceOptions) -> HybridAllReduce:
    """Make hierarchical and ring, and choose by ``options.hybrid_threshold``."""
    return HybridAllReduce(
        small=hierarchical.build(topology, options),
        large=ring.build(topology, options),
        threshold=options.hybrid_threshold,
    )
