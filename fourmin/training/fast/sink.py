"""Where the backward pass puts gradients: the flat FP32 buckets of the reducer."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from fourmin.training.comm.fusion import Bucket


class BucketSink:
    """Writes gradients into the buckets, bucket by bucket, in few launches.

    A gradient is kept until those of its whole bucket are there; then all are copied (or added,
    if `accumulate`) and `complete(index)` is called.
    """

    def __init__(
        self, buckets: Sequence[Bucket], complete: Callable[[int], None], *, accumulate: bool
    ) -> None:
        self._complete = complete
        self._accumulate = accumulate
        self._place: dict[Tensor, int] = {
            slot.parameter: index for index, bucket in enumerate(buckets) for slot in bucket.slots
        }
        self._missing = [len(bucket.slots) for bucket in buckets]
        self._waiting: list[list[tuple[Tensor, Tensor]]] = [[] for _ in buckets]

    def weight(self, parameter: Tensor, gradient: Tensor) -> None:
        """Take `gradient`, of the parameter's shape and any floating-point type."""
        assert parameter.grad is not None
        self._waiting[self._place[parameter]].append((parameter.grad, gradient))
        self._count(parameter)

    def written(self, *parameters: Tensor) -> None:
        for parameter in parameters:
            self._count(parameter)

    def _count(self, parameter: Tensor) -> None:
        index = self._place[parameter]
        self._missing[index] -= 1
        if not self._missing[index]:
            self._flush(index)
            self._complete(index)

    def _flush(self, index: int) -> None:
        waiting, self._waiting[index] = self._waiting[index], []
        flat: tuple[list[Tensor], list[Tensor]] = ([], [])
        for target, source in waiting:
            if self._accumulate:
                target.add_(source)
            elif _is_dense(source) and _same_order(source, target):
                # As vectors, since torch's grouped copy wants equal strides, and those of a
                # 1x1 convolution's weight have several names.
                flat[0].append(_vector(target))
                flat[1].append(_vector(source))
            else:
                target.copy_(source)
        if flat[0]:
            torch._foreach_copy_(flat[0], flat[1])


def _vector(tensor: Tensor) -> Tensor:
    """The memory of a dense tensor, in its order."""
    return tensor.as_strided((tensor.numel(),), (1,), tensor.storage_offset())


def _is_dense(tensor: Tensor) -> bool:
    dense: bool = torch.ops.aten.is_non_overlapping_and_dense(tensor)
    return dense


def _same_order(a: Tensor, b: Tensor) -> bool:
    """Whether two dense tensors of one shape keep their elements in the same order."""
    wide = [i for i, size in enumerate(a.shape) if size > 1]
    return [a.stride(i) for i in wide] == [b.stride(i) for i in wide]
