"""Deep Gradient Compression: each worker sends its largest gradients and keeps the rest for later.

Lin et al. 2018 (arXiv 1712.01887), sections 3.1 to 3.3, as the authors' code does it: filters and
matrices are sparse, biases and batch normalizations are sent whole. With the gradient g of this
worker, momentum m, and two sums u and v of each weight, 0 at first:

    g = g * min(1, clip / sqrt(workers) / |g|)      local clipping, where it is asked for
    u = m * u + g                                   momentum correction
    v = v + u
    send v where |v| is largest; there u = v = 0    momentum factor masking

(with Nesterov momentum u = m * (u + g) and v = v + u + g), and the mean of what all workers sent
takes the place of the gradient. The optimizer adds no momentum to it (`optim/sgd.py`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch import Tensor

from fourmin.recipe.compression import density_in, sent_elements
from fourmin.training.comm.base import AllReduce
from fourmin.training.comm.bucket import Bucket

if TYPE_CHECKING:
    from fourmin.recipe.configuration import Configuration
    from fourmin.training.comm.process_group import WorkerPlace

SAMPLE = 1 << 14
"""Elements of which a threshold is estimated, or a hundredth of a weight's where that is more."""


@dataclass(frozen=True)
class Settings:
    """Momentum, its form, and the norm to which a weight's gradient is clipped (0: none)."""

    momentum: float
    nesterov: bool
    clip: float


class Compression:
    """What one worker has not sent yet, and the exchange of what it sends."""

    density = 1.0
    """Share of a weight's elements that is sent."""

    def __init__(
        self,
        buckets: Sequence[Bucket],
        all_reduce: AllReduce,
        world_size: int,
        settings: Settings,
    ) -> None:
        self._buckets = buckets
        self._all_reduce = all_reduce
        self._world_size = world_size
        self._settings = settings
        self._momenta = [torch.zeros_like(bucket.flat) for bucket in buckets]
        self._left = [torch.zeros_like(bucket.flat) for bucket in buckets]
        self.bytes = 0
        """Given to collectives by this worker so far."""

    @property
    def state(self) -> list[Tensor]:
        """The sums u and v of each bucket: other ones on every worker."""
        return [*self._momenta, *self._left]

    def begin(self, config: Configuration, epoch: int) -> None:
        """Send from now on what is sent in this epoch."""
        self.density = density_in(config, epoch)

    def reset(self) -> None:
        """As if nothing had been trained."""
        torch._foreach_zero_(self.state)
        self.bytes = 0

    def exchange(self, index: int) -> None:
        """Replace the gradients of a bucket by the mean of what all workers send.

        On a GPU the host waits for how many elements exceed a threshold.
        """
        bucket, share = self._buckets[index], 1.0 / self._world_size
        flat = bucket.flat
        weights: list[slice] = []
        rest: list[slice] = []
        for slot in bucket.slots:
            place = slice(slot.offset, slot.offset + slot.view.numel())
            (weights if slot.view.dim() > 1 else rest).append(place)
        if rest:
            whole = torch.cat([flat[place] for place in rest])
            self._all_reduce.all_reduce(whole)
            self.bytes += whole.nbytes
        if weights:
            sent = torch.cat([part for place in weights for part in self._sent(index, place)])
            for place in weights:
                flat[place] = 0.0
            for places, values in self._of_all(sent, weights):
                # Places of one worker differ, but for padding that adds 0: the sum has one order.
                flat.index_add_(0, places, values, alpha=share)
        if rest:
            parts = whole.mul_(share).split([place.stop - place.start for place in rest])
            for place, part in zip(rest, parts, strict=True):
                flat[place] = part

    def _sent(self, index: int, place: slice) -> tuple[Tensor, Tensor]:
        """What is sent of a weight, as int32: places in the bucket, and the bits of the values."""
        gradient, settings = self._buckets[index].flat[place], self._settings
        momentum, left = self._momenta[index][place], self._left[index][place]
        if settings.clip:
            norm = torch.linalg.vector_norm(gradient, dtype=torch.float64)
            most = settings.clip / math.sqrt(self._world_size)
            gradient.mul_((most / norm.clamp_min(most)).float())
        if settings.nesterov:
            momentum.add_(gradient).mul_(settings.momentum)
            left.add_(gradient)
        else:
            momentum.mul_(settings.momentum).add_(gradient)
        left.add_(momentum)
        count = sent_elements(left.numel(), self.density)
        chosen = largest(left, count)
        places = torch.full((count,), place.start, dtype=torch.int32, device=left.device)
        values = torch.zeros(count, device=left.device)
        places[: len(chosen)] += chosen.int()
        values[: len(chosen)] = left[chosen]
        for kept in (momentum, left):
            kept[chosen] = 0.0
        return places, values.view(torch.int32)

    def _of_all(self, message: Tensor, weights: Sequence[slice]) -> list[tuple[Tensor, Tensor]]:
        """Places and values of each worker, in the order of ranks."""
        gathered = message
        if self._world_size > 1:
            self.bytes += message.nbytes
            gathered = message.new_empty(self._world_size * message.numel())
            dist.all_gather_into_tensor(gathered, message)
        counts = [sent_elements(place.stop - place.start, self.density) for place in weights]
        found = []
        for one in gathered.chunk(self._world_size):
            parts = one.split([count for count in counts for _ in range(2)])
            found.append((torch.cat(parts[::2]), torch.cat(parts[1::2]).view(torch.float32)))
        return found


def largest(values: Tensor, count: int) -> Tensor:
    """Places, int64, of the `count` values of largest magnitude: of a large tensor about as many,
    never more, by a threshold from every n-th value and exactly among those above it.
    """
    magnitudes = values.abs()
    size = magnitudes.numel()
    stride = size // max(SAMPLE, size // 100) | 1  # odd: layouts repeat in even steps
    if stride > 1 and count < size:
        sample = magnitudes[::stride]
        above = max(1, round(count * len(sample) / size))
        threshold = torch.topk(sample, above, sorted=False).values.min()
        found = (magnitudes >= threshold).nonzero().squeeze(1)
        if len(found) <= count:
            return found
        return found[torch.topk(magnitudes[found], count, sorted=False).indices]
    return torch.topk(magnitudes, count, sorted=False).indices


def gathered(compression: Compression, place: WorkerPlace) -> Tensor | None:
    """What every worker has not sent, on rank 0's CPU: FP32, (workers, elements); else None."""
    own = torch.cat(compression.state)
    rows = []
    for rank in range(place.world_size):
        row = own if rank == place.rank else torch.empty_like(own)
        if place.world_size > 1:
            dist.broadcast(row, src=rank)
        if place.rank == 0:
            rows.append(row.cpu())
    return torch.stack(rows) if rows else None


def scatter(compression: Compression, saved: Tensor | None, place: WorkerPlace) -> None:
    """Give every worker its row of what rank 0 `gathered`."""
    own = torch.cat(compression.state)
    for rank in range(place.world_size):
        row = torch.empty_like(own) if saved is None else saved[rank].to(place.device)
        if place.world_size > 1:
            dist.broadcast(row, src=0)
        if rank == place.rank:
            own = row
    parts = own.split([tensor.numel() for tensor in compression.state])
    torch._foreach_copy_(compression.state, list(parts))
