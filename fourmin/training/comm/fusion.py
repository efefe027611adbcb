"""Tensor fusion: gradients live in flat buckets that are reduced while backward goes on.

Buckets are fixed when the reducer is made, by `fourmin.recipe.buckets.partition`. Packing whatever
happens to be ready would give other sums in every run, and other buckets on every rank.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import Parameter

from fourmin.base.errors import FourminError
from fourmin.recipe.buckets import partition
from fourmin.training.comm.base import AllReduce, BySize, CommunicationError
from fourmin.training.comm.bucket import Bucket, Slot, check_parameters, make_bucket
from fourmin.training.comm.compression import Compression, Settings
from fourmin.training.comm.lanes import ExposedTime, Lane, StreamLane, ThreadLane

_NAMES_SHOWN = 10


@dataclass(frozen=True)
class ReductionCounters:
    """What has been reduced so far.

    ``steps`` counts calls of ``finish``, ``collectives`` all-reduces of buckets, ``bytes`` the
    bytes of the tensors given to collectives on this rank (both 0 with one rank), ``counted``
    whether those do not follow from the buckets and the steps.
    ``bucket_bytes`` and ``bucket_algorithms`` give size and algorithm of each bucket, in the
    order of launch.
    """

    steps: int
    collectives: int
    bytes: int
    bucket_bytes: tuple[int, ...]
    bucket_algorithms: tuple[str, ...]
    counted: bool = False


def mean(
    flat: Tensor,
    all_reduce: AllReduce,
    world_size: int,
    wire: Tensor | None = None,
    *,
    divide: bool = True,
) -> None:
    """Replace ``flat`` (FP32, 1-D) by its mean over all ranks.

    Without ``wire``: sum, then one multiplication by 1/p. With ``wire`` (a half-precision tensor
    of the same size, overwritten): divide by sqrt(p), round, sum, and divide by sqrt(p) in FP32.
    Dividing by p first would flush small FP16 gradients to zero, dividing after the sum would
    overflow; split, the sum is sqrt(p) times the mean, and the smallest term g/sqrt(p).
    Without ``divide`` the last multiplication, by ``last_factor``, is left to the caller.

    The split keeps the range, not the digits. A sum of p terms, one after the other, in a type
    of t significant bits (FP16 11, BF16 8) stops growing once a term is below half a unit in
    the last place of the sum, at about 2^t equal terms: a flat ring of 2048 ranks is at the edge
    in FP16, one of 256 in BF16. Groups shorten the chain to k, then m terms.
    """
    if world_size == 1:
        return
    factor = last_factor(world_size, halves=wire is not None)
    if wire is None:
        all_reduce.all_reduce(flat)
    else:
        torch.mul(flat, factor, out=wire)
        all_reduce.all_reduce(wire)
        flat.copy_(wire)
    if divide:
        flat.mul_(factor)


def last_factor(world_size: int, *, halves: bool) -> float:
    """What ``mean`` multiplies by at last: 1/p, or 1/sqrt(p) where halves are sent."""
    return 1.0 / math.sqrt(world_size) if halves else 1.0 / world_size


class GradientReducer:
    """Averages gradients over all ranks, bucket by bucket, during the backward pass.

    One step::

        reducer.clear()
        for i, batch in enumerate(micro_batches):
            with reducer.accumulating(i + 1 < len(micro_batches)):
                loss(batch).backward()
        exposed = reducer.finish()      # now every parameter's .grad is the mean
        optimizer.step()

    After ``finish`` each ``.grad`` is a view, with the parameter's strides, into a flat FP32 buffer
    that is allocated once. Autograd makes each gradient as a tensor of its own, and those of a
    bucket are copied together: to add each to zeros would be a launch a parameter. The reducer
    divides by the number of ranks only; dividing the loss by the number of micro-batches
    is the caller's.

    Buckets are launched strictly in bucket order, so that all ranks issue the same collectives
    in the same order, whatever order the gradients come in. Between the start of a backward
    pass and ``finish`` the process groups of ``all_reduce`` (the default group, for most
    algorithms) belong to the reducer: a collective of somebody else there would come between.
    """

    def __init__(
        self,
        model_parameters: Iterable[tuple[str, Parameter]],
        all_reduce: AllReduce,
        world_size: int,
        threshold_bytes: int,
        overlap: bool = True,
        bucket_dtype: torch.dtype | None = None,
        compress: Settings | None = None,
    ) -> None:
        """Lay out the buckets and hook the parameters.

        ``model_parameters`` is ``model.named_parameters()``; those that need no gradient are
        left out. ``threshold_bytes`` counts FP32 gradients; 0 gives each tensor a bucket of its
        own. With ``overlap`` a bucket is launched as soon as it and those before it are
        complete, otherwise all are launched by ``finish``. ``bucket_dtype`` float16 or bfloat16
        sends half-precision copies (see ``mean``); None sends FP32. With ``compress`` each rank
        sends a part of its gradients, and the mean is that of what was sent.

        Raises ValueError for parameters that cannot be packed: not FP32, on several devices,
        listed twice, or with overlapping or gappy memory.
        """
        if threshold_bytes < 0:
            raise ValueError(f"threshold_bytes must not be negative: {threshold_bytes}")
        if bucket_dtype not in (None, torch.float32, torch.float16, torch.bfloat16):
            raise ValueError(f"buckets can be FP32, FP16 or BF16, not {bucket_dtype}")
        named = [(name, p) for name, p in model_parameters if p.requires_grad]
        check_parameters(named)
        wire_dtype = None if bucket_dtype == torch.float32 else bucket_dtype
        sizes = [parameter.nbytes for _, parameter in named]
        self.buckets = tuple(
            make_bucket([named[index] for index in part], wire_dtype)
            for part in partition(sizes, threshold_bytes)
        )
        """In the order of launch; to be read, not changed."""
        self._all_reduce = all_reduce
        self.compression = (
            Compression(self.buckets, all_reduce, world_size, compress) if compress else None
        )
        self._world_size = world_size
        self._overlap = overlap
        self._factor = last_factor(world_size, halves=wire_dtype is not None)
        self._divides = True
        self._accumulating = False
        self._launched = 0
        self._steps = 0
        self._closed = False
        device = named[0][1].device
        self._lane: Lane = (
            StreamLane(self._reduce, device) if device.type == "cuda" else ThreadLane(self._reduce)
        )
        self._hooks = [
            slot.parameter.register_post_accumulate_grad_hook(
                lambda _, bucket=bucket, slot=slot: self.arrived(bucket, slot)
            )
            for bucket in self.buckets
            for slot in bucket.slots
        ]

    @property
    def flat_buffers(self) -> tuple[Tensor, ...]:
        """The FP32 buffer of each bucket, 1-D; padding between tensors is always 0."""
        return tuple(bucket.flat for bucket in self.buckets)

    @property
    def counters(self) -> ReductionCounters:
        sizes = tuple(b.sent.nbytes for b in self.buckets)
        reduced = self._steps if self._world_size > 1 else 0
        return ReductionCounters(
            steps=self._steps,
            collectives=reduced * len(sizes),
            bytes=self.compression.bytes if self.compression else reduced * sum(sizes),
            bucket_bytes=sizes,
            bucket_algorithms=tuple(self._algorithm(size).name for size in sizes),
            counted=self.compression is not None,
        )

    def clear(self) -> None:
        """Forget all gradients; the next backward pass makes them anew.

        Raises RuntimeError between backward and finish.
        """
        if self._launched:
            raise RuntimeError("clear() while gradients are being reduced: call finish() first")
        for bucket in self.buckets:
            for slot in bucket.slots:
                slot.parameter.grad = None

    @contextmanager
    def accumulating(self, active: bool = True) -> Iterator[None]:
        """While active, backward only adds to the gradients; nothing counts as complete."""
        before = self._accumulating
        self._accumulating = active
        try:
            yield
        finally:
            self._accumulating = before

    def finish(self) -> ExposedTime:
        """Wait until every gradient is the mean over all ranks; call once after backward.

        On the CPU the host waits; on CUDA the current stream does. Returns the communication
        time that the backward pass did not hide.

        Raises FourminError naming the parameters that got no gradient, CommunicationError if
        the reduction of a bucket failed (a peer died, or the timeout passed). After an error the
        ranks are out of step: the reducer can only be closed.
        """
        if self._closed:
            raise RuntimeError("finish() after close()")
        absent = [s.name for b in self.buckets for s in b.slots if not s.arrived]
        if absent:
            more = f" and {len(absent) - _NAMES_SHOWN} more" if len(absent) > _NAMES_SHOWN else ""
            raise FourminError(
                "no gradient in this step for " + ", ".join(absent[:_NAMES_SHOWN]) + more,
                why="the loss does not depend on them, or backward was not called outside "
                "accumulating(); the other ranks wait for their gradients",
                next_step="freeze them (requires_grad=False) or make the loss depend on them",
            )
        self._launch_complete()
        exposed = self._lane.wait()
        self._steps += 1
        self._launched = 0
        for bucket in self.buckets:
            bucket.missing = len(bucket.slots)
            for slot in bucket.slots:
                slot.arrived = False
        return exposed

    def leave_division(self) -> float:
        """From now on leave out the last multiplication of the mean; returns its factor.

        For an update that multiplies the gradients anyway: it saves a pass over each bucket,
        which would wait for memory beside the backward pass. 1 with one rank.
        """
        self._divides = False
        return self._factor

    def close(self) -> None:
        """Unhook the parameters and stop the communication thread; the gradients stay."""
        if self._closed:
            return
        self._closed = True
        for hook in self._hooks:
            hook.remove()
        self._lane.close()

    def arrived(self, bucket: Bucket, slot: Slot) -> None:
        """Take note that the gradient of `slot` is complete; autograd's hooks call this, and so
        does a step that makes gradients without autograd.

        Raises RuntimeError for a gradient that came twice.
        """
        if self._accumulating:
            return
        if slot.arrived:
            raise RuntimeError(
                f"the gradient of {slot.name} came twice in a step: call finish() after each "
                "backward, or run all but the last inside accumulating()"
            )
        slot.arrived = True
        bucket.missing -= 1
        if not bucket.missing:
            bucket.take_in()
        if self._overlap:
            self._launch_complete()

    def _launch_complete(self) -> None:
        while self._launched < len(self.buckets) and not self.buckets[self._launched].missing:
            index = self._launched
            self._launched += 1
            self._lane.submit(index)

    def _reduce(self, index: int) -> None:
        bucket = self.buckets[index]
        try:
            with torch.no_grad():
                if self.compression:
                    self.compression.exchange(index)
                    return
                mean(
                    bucket.flat,
                    self._all_reduce,
                    self._world_size,
                    bucket.wire,
                    divide=self._divides,
                )
        except Exception as error:
            size = bucket.sent.nbytes
            raise CommunicationError(
                f"{self._algorithm(size).name} all-reduce of bucket {index} failed "
                f"({bucket.slots[0].name} to {bucket.slots[-1].name}, {size} bytes)",
                why=str(error),
                next_step="look in the other workers' logs for the first failure; if all were "
                "alive, raise collective_timeout_seconds",
            ) from error

    def _algorithm(self, nbytes: int) -> AllReduce:
        one = self._all_reduce
        return one.choose(nbytes) if isinstance(one, BySize) else one
