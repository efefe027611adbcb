"""Batch normalization over several ranks, and averaging of running statistics.

Which images share their mean and variance changes what a large batch converges to, so MLPerf
logs it as model_bn_span. Here the unit is ranks: with a span of s, ranks 0 to s-1 share one set
of batch statistics, ranks s to 2s-1 the next.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.modules.batchnorm import _BatchNorm

from fourmin.base.errors import FourminError

_DIMS = (0, 2, 3)


def _per_channel(values: Tensor) -> Tensor:
    return values.view(1, -1, 1, 1)


class _SharedBatchNorm(torch.autograd.Function):
    """Normalise [n, c, h, w] with the mean and variance over all ranks of a group.

    The collectives move sums and counts, so ranks may hold different numbers of images. Gradients
    of gamma and beta are those of this rank's images; adding them over ranks is the business of
    the gradient all-reduce, as with torch.nn.SyncBatchNorm.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor,
        epsilon: float,
        group: dist.ProcessGroup | None,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        x32 = x.float()
        local_count = x.numel() // x.shape[1]
        local_variance, local_mean = torch.var_mean(x32, _DIMS, correction=0)
        # Sums and sums of squares cancel in the variance: float64 has the bits to spare, and
        # taking the local variance first keeps FP32's rounding out of the squares.
        mean = local_mean.double()
        sums = mean * local_count
        squares = (local_variance.double() + mean * mean) * local_count
        total = torch.cat([sums, squares, sums.new_tensor([local_count])])
        dist.all_reduce(total, group=group)
        count = total[-1]
        mean, mean_square = (total[:-1] / count).chunk(2)
        variance = (mean_square - mean * mean).clamp_min(0.0)
        inverse = (variance + epsilon).rsqrt().float()
        mean, variance = mean.float(), variance.float()
        normalised = (x32 - _per_channel(mean)) * _per_channel(inverse)
        y = normalised * _per_channel(weight) + _per_channel(bias)
        ctx.save_for_backward(x, weight, mean, inverse, count)
        ctx.group = group
        ctx.mark_non_differentiable(mean, variance, count)
        return y.to(x.dtype), mean, variance, count

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, *_unused: Any) -> tuple[Tensor | None, ...]:
        x, weight, mean, inverse, count = ctx.saved_tensors
        grad32 = grad.float()
        normalised = (x.float() - _per_channel(mean)) * _per_channel(inverse)
        grad_bias = grad32.sum(_DIMS)
        grad_weight = (grad32 * normalised).sum(_DIMS)
        total = torch.cat([grad_bias, grad_weight]).double()
        dist.all_reduce(total, group=ctx.group)
        mean_grad, mean_product = (total / count).float().chunk(2)
        centred = grad32 - _per_channel(mean_grad) - normalised * _per_channel(mean_product)
        grad_x = centred * _per_channel(weight * inverse)
        return grad_x.to(x.dtype), grad_weight, grad_bias, None, None


class SpanBatchNorm2d(nn.BatchNorm2d):
    """BatchNorm2d whose training statistics are those of a process group, on any device.

    torch.nn.SyncBatchNorm refuses CPU tensors. Parameters, buffers and statistics in evaluation
    mode are BatchNorm2d's. Statistics are taken in FP32 or better whatever the input's type; the
    output has the input's type.
    """

    group: dist.ProcessGroup | None = None

    def forward(self, x: Tensor) -> Tensor:
        """[n, c, h, w] to the same shape. Raises ValueError when the group has one value only."""
        if not self.training:
            return super().forward(x)
        result: tuple[Tensor, ...] = _SharedBatchNorm.apply(
            x, self.weight, self.bias, self.eps, self.group
        )
        y, mean, variance, count = result
        if count.item() <= 1:
            raise ValueError("batch statistics need more than one value per channel")
        with torch.no_grad():
            assert self.momentum is not None
            assert self.running_mean is not None
            assert self.running_var is not None
            assert self.num_batches_tracked is not None
            # torch keeps the unbiased variance in its running statistics.
            unbiased = variance * (count / (count - 1)).float()
            self.running_mean.lerp_(mean, self.momentum)
            self.running_var.lerp_(unbiased, self.momentum)
            self.num_batches_tracked.add_(1)
        return y


def shared_group(module: nn.Module) -> dist.ProcessGroup | None:
    """The ranks that share the batch statistics of a normalization; None for a rank's own."""
    if isinstance(module, SpanBatchNorm2d):
        return module.group
    return module.process_group if isinstance(module, nn.SyncBatchNorm) else None


def apply_bn_span(
    model: nn.Module,
    span: int,
    world_size: int,
    *,
    timeout: timedelta | None = None,
) -> None:
    """Make the batch normalizations of `model` share statistics over groups of `span` ranks.

    In place; parameters, buffers and their names stay. A span of 1 changes nothing. Otherwise
    every rank must call it at the same point, after torch.distributed is initialised and the
    model is on its device: CUDA takes torch.nn.SyncBatchNorm, the CPU `SpanBatchNorm2d`.
    The groups are new ones also when the span is the world, so that collectives of the forward
    and backward passes never queue behind gradient reductions. `timeout` is that of the new
    groups' collectives (None: torch's default).
    Raises FourminError when `span` does not divide `world_size`.
    """
    if span < 1 or world_size % span:
        fits = [str(n) for n in range(1, world_size + 1) if world_size % n == 0]
        raise FourminError(
            f"bn_span={span} does not fit {world_size} workers",
            "every group of workers that shares batch statistics must have the same size",
            f"values that fit: {', '.join(fits)}",
        )
    if span == 1:
        return
    own: dist.ProcessGroup | None = None
    for first in range(0, world_size, span):  # every rank takes part in making every group
        group = dist.new_group(list(range(first, first + span)), timeout=timeout)
        if isinstance(group, dist.ProcessGroup):  # a rank outside of it gets a marker
            own = group
    if next(model.parameters()).device.type == "cuda":
        nn.SyncBatchNorm.convert_sync_batchnorm(model, own)
    else:
        for module in model.modules():
            if isinstance(module, nn.BatchNorm2d):
                # The same object and tensors, so that all that refers to them stays valid.
                module.__class__ = SpanBatchNorm2d
                vars(module)["group"] = own


def bn_statistics(model: nn.Module) -> list[Tensor]:
    """The running means and variances of `model`, as they are, in the order of its modules."""
    return [
        statistic
        for module in model.modules()
        if isinstance(module, _BatchNorm)
        for statistic in (module.running_mean, module.running_var)
        if statistic is not None
    ]


@torch.no_grad()
def average_bn_statistics(model: nn.Module, counts: bool = True) -> None:
    """Replace running means and variances by their averages over all ranks, in place.

    Call it before an evaluation, so that every rank evaluates the same model. One all-reduce of
    one flat FP32 buffer; the sum is divided by the number of ranks. A rank that does not count
    only gets the averages; at least one has to. The average of the variances
    leaves out the spread of the means between ranks, as MLPerf's submissions do. Without
    torch.distributed, or alone, it changes nothing.
    """
    if not dist.is_initialized() or dist.get_world_size() == 1:
        return
    statistics = bn_statistics(model)
    if not statistics:
        return
    own = [statistic.float().reshape(-1) for statistic in statistics]
    flat = torch.cat([*own, torch.ones_like(own[0][:1])]) * counts
    dist.all_reduce(flat)
    averages = torch.split(flat[:-1] / flat[-1], [statistic.numel() for statistic in statistics])
    for statistic, average in zip(statistics, averages, strict=True):
        statistic.copy_(average)
