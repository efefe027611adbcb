"""Where the backward pass puts gradients: the flat FP32 buckets of the reducer."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

from fourmin.training.comm.bucket import Bucket, copy_all


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
        if self._accumulate:
            for target, source in waiting:
                target.add_(source)
        else:
            copy_all(waiting)
