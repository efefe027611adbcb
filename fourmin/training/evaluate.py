"""Evaluation: every validation image exactly once, counted, over all ranks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

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


@torch.no_grad()
def evaluate(
    model: nn.Module, batches: Iterable[_Batch], precision: Precision, expected: int
) -> tuple[int, int]:
    """(correct, counted) over all ranks: top-1 hits and images seen, as exact integers.

    `batches` are this rank's share, the last of which may be smaller. Every rank gets the same
    answer. Raises FourminError when the ranks together did not see `expected` images: accuracy
    over a padded or a partial set is not accuracy.
    """
    model.eval()
    totals = torch.zeros(2, dtype=torch.int64, device=precision.device)
    for batch in batches:
        with precision.autocast():
            logits = model(batch.images)
        totals[0] += (logits.float().argmax(dim=1) == batch.labels).sum()
        totals[1] += batch.labels.numel()
    model.train()
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
