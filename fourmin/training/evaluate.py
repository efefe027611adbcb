"""Evaluation: every validation image exactly once, counted, over all ranks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol

import torch
import torch.distributed as dist
from torch import Tensor, nn

from fourmin.base.errors import NOT_CONVERGED, FourminError
from fourmin.training.precision import Precision


class _Batch(Protocol):
    @property
    def images(self) -> Tensor: ...
    @property
    def labels(self) -> Tensor: ...


class Synthetic(NamedTuple):
    """A batch of no dataset: `images` (b, 3, height, width), `labels` (b,), int64."""

    images: Tensor
    labels: Tensor


def synthetic_batch(
    size: int, image_size: int, device: torch.device, width: int | None = None
) -> Synthetic:
    """`size` black images, square unless `width` is given, in channels_last format, of class 0."""
    shape = (size, 3, image_size, width or image_size)
    images = torch.zeros(shape, device=device).to(memory_format=torch.channels_last)
    return Synthetic(images, torch.zeros(size, dtype=torch.int64, device=device))


@torch.no_grad()
def count(model: nn.Module, batches: Iterable[_Batch], precision: Precision) -> Tensor:
    """Top-1 hits and images of this rank's batches; (2,), int64, on the device."""
    model.eval()
    totals = torch.zeros(2, dtype=torch.int64, device=precision.device)
    for batch in batches:
        with precision.autocast():
            logits = model(batch.images)
        totals[0] += (logits.float().argmax(dim=1) == batch.labels).sum()
        totals[1] += batch.labels.numel()
    model.train()
    return totals


def evaluate(
    model: nn.Module, batches: Iterable[_Batch], precision: Precision, expected: int
) -> tuple[int, int]:
    """(correct, counted) over all ranks: top-1 hits and images seen, as exact integers.

    `batches` are this rank's share, the last of which may be smaller. Every rank gets the same
    answer. Raises FourminError when the ranks together did not see `expected` images: accuracy
    over a padded or a partial set is not accuracy.
    """
    totals = count(model, batches, precision)
    if dist.is_initialized():
        dist.all_reduce(totals)
    correct, counted = totals.tolist()
    if counted != expected:
        raise FourminError(
            f"the evaluation saw {counted} images instead of {expected}",
            "every validation image must be counted exactly once",
            exit_code=NOT_CONVERGED,
        )
    return correct, counted
