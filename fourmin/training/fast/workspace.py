"""What launches of kernels share: sizes, shapes, and memory for partial sums."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from fourmin.training.fast import epilogue, graphs
from fourmin.training.fast.fills import ZeroedBlock
from fourmin.training.fast.graphs import Cut
from fourmin.training.fast.kernels import batchnorm
from fourmin.training.fast.plan import FusionPlan

BLOCK_ROWS = 128
"""Rows of an activation that share a row of packed bits."""
_MOST_PROGRAMS = 4  # of a reduction, for each multiprocessor


def multiprocessors(device: torch.device) -> int:
    """Multiprocessors of a GPU; a few where Triton's interpreter stands in for one."""
    if device.type != "cuda":
        return 3
    return torch.cuda.get_device_properties(device).multi_processor_count


def shared_memory(device: torch.device) -> int:
    """Bytes of shared memory that a program may have; plenty where nothing has any."""
    if device.type != "cuda":
        return 1 << 20
    properties: Any = torch.cuda.get_device_properties(device)  # torch's stubs lack this one
    return int(properties.shared_memory_per_block_optin)


def channels_block(channels: int, most: int) -> int:
    """The greatest power of two that divides `channels`, at most `most`."""
    return min(channels & -channels, most)


def cdiv(a: int, b: int) -> int:
    """a / b, rounded up."""
    return -(-a // b)


def power_of_two(parts: int) -> int:
    """Partial sums that a program adds at once."""
    return min(512, max(16, 1 << (parts - 1).bit_length()))


def warps_for(parts: int) -> int:
    """Warps of a program that adds partial sums: one, that waits for no other, where few are."""
    return 1 if parts <= 16 else 4


def rows_of(x: Tensor) -> int:
    """M of an activation [n, C, h, w] in channels-last memory, seen as a matrix [M, C]."""
    return x.shape[0] * x.shape[2] * x.shape[3]


def empty_like_activation(x: Tensor, channels: int, height: int, width: int) -> Tensor:
    """An activation of x's type and number of images in channels-last memory, not filled."""
    return torch.empty(
        (x.shape[0], channels, height, width),
        dtype=x.dtype, device=x.device, memory_format=torch.channels_last,
    )  # fmt: skip


class Workspace:
    """What the layers of one model share.

    `partial` holds partial sums: kernels of one stream follow each other, so one is enough;
    `zeroed` is for those that are added to.
    The ranks of `group` share batch statistics, each of as many images; `span` is their number.
    """

    def __init__(
        self, device: torch.device, plan: FusionPlan, group: dist.ProcessGroup | None = None
    ) -> None:
        self.plan = plan
        self.zeroed = ZeroedBlock(device)
        self._cut: Cut = graphs.at_once
        self.span = 1 if group is None else dist.get_world_size(group)
        self._group = group
        self._totals = torch.empty(3 * 4096, dtype=torch.float64, device=device)
        self.multiprocessors = multiprocessors(device)
        self.shared = shared_memory(device)
        one_order = torch.are_deterministic_algorithms_enabled()
        usable = device.type == "cuda" and epilogue.available() and not one_order
        self._epilogue = plan.epilogue and usable
        self._epilogues: dict[tuple[object, ...], epilogue.StatisticsConvolution | None] = {}
        most = self.multiprocessors * _MOST_PROGRAMS
        # Programs times the channels that each sums, three sums at most.
        self.partial = torch.empty(most * 3 * 256 + 3 * 4096, device=device)

    def begin(self, cut: Cut) -> None:
        """A pass begins; `cut` is where the host acts between two parts of it."""
        self._cut = cut
        self.zeroed.fill()

    def statistics_convolution(
        self, x: Tensor, weight: Tensor, y: Tensor, stride: list[int], padding: list[int]
    ) -> epilogue.StatisticsConvolution | None:
        """The convolution of these shapes with statistics; None where there is none."""
        if not self._epilogue or x.dtype == torch.float32:
            return None
        key = (tuple(x.shape), tuple(weight.shape), stride[0], padding[0])
        if key not in self._epilogues:
            try:
                found = epilogue.StatisticsConvolution(x, weight, y, stride, padding)
            except RuntimeError:
                found = None
            self._epilogues[key] = found
        return self._epilogues[key]

    def totals(self, partial_sums: Tensor, parts: int, columns: int) -> Tensor | None:
        """Sums of `partial_sums` [parts, columns] over parts and over the ranks that share
        statistics, [columns] in FP64, until the next call; None where no other rank does.
        """
        if self._group is None:
            return None
        totals = self._totals[:columns]
        block = channels_block(columns, 16)
        batchnorm.add_parts[(columns // block,)](
            partial_sums, parts, columns, totals, BP=power_of_two(parts), BC=block,
            num_warps=warps_for(parts),
        )  # fmt: skip
        self._cut(partial(self._add_over_ranks, totals))
        return totals

    def _add_over_ranks(self, totals: Tensor) -> None:
        dist.all_reduce(totals, group=self._group)

    def parts(self, rows: int, tile: int, columns: int, programs: int) -> int:
        """Programs of a reduction for each of `columns` column blocks over `rows` rows in tiles:
        at most `programs` in all for each multiprocessor.
        """
        tiles = cdiv(rows, tile)
        most = max(1, min(tiles, self.multiprocessors * programs // columns))
        return cdiv(tiles, cdiv(tiles, most))
