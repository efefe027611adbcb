"""All-reduces composed of collectives: makes the calls of `fourmin.recipe.calls`.

Each stage has communicators of its own, even where the ranks are the same: on one of them NCCL
would run the reduction of a piece and the broadcast of the piece before one after the other, though
they use the two directions of a link.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor

from fourmin.recipe.calls import Call, Kind, Stage, calls, piece_sizes
from fourmin.training.comm.base import AllReduceOptions, require_flat
from fourmin.training.comm.rounds import Scratch

Issue = Callable[..., "dist.Work | None"]
"""(piece, ranks, place among them, how the collective is called)."""


def _own(tensor: Tensor, ranks: Sequence[int], place: int) -> Tensor:
    """The part of a rank, which reductions write and gatherings read in place."""
    count = tensor.numel() // len(ranks)
    return tensor[place * count : (place + 1) * count]


# torch 2.14 has renamed these two, and warns of the old names.
_scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor

ISSUE: dict[Kind, Issue] = {
    "reduce": lambda t, ranks, _, **how: dist.reduce(t, ranks[0], **how),
    "reduce_scatter": lambda t, ranks, at, **how: _scatter(_own(t, ranks, at), t, **how),
    "all_reduce": lambda t, _, __, **how: dist.all_reduce(t, **how),
    "all_gather": lambda t, ranks, at, **how: _gather(t, _own(t, ranks, at), **how),
    "broadcast": lambda t, ranks, _, **how: dist.broadcast(t, ranks[0], **how),
}


class ComposedAllReduce:
    """The stages of an all-reduce, over process groups made for each of them."""

    def __init__(
        self, name: str, stages: Sequence[Stage], rank: int, options: AllReduceOptions
    ) -> None:
        """Make the process groups and call each once, so that no run has to connect its ranks.

        A collective call over all ranks. The default group serves where it is all that is needed.
        """
        self.name = name
        self._rank = rank
        self._pipeline_bytes = options.pipeline_bytes
        self._stages = stages
        self._scratch = Scratch()
        self._plans: dict[tuple[int, int], tuple[list[int], list[Call]]] = {}
        self._groups = [
            None if len(stages) == 1 else _make_groups(stage, options.timeout) for stage in stages
        ]
        if stages:
            device = "cuda" if dist.get_backend() == "nccl" else "cpu"
            self.all_reduce(torch.zeros(1, device=device))

    def all_reduce(self, tensor: Tensor) -> None:
        """See `base.AllReduce.all_reduce`."""
        require_flat(tensor)
        if not tensor.numel() or not self._stages:
            return
        sizes, planned = self._plan(tensor.numel(), tensor.element_size())
        pieces = list(torch.split(tensor, sizes[0]))
        rest, padded = pieces[-1], None
        if rest.numel() < sizes[-1]:
            padded = self._scratch.take(tensor, sizes[-1])
            pieces[-1] = padded[: sizes[-1]]
            pieces[-1][: rest.numel()].copy_(rest)
            pieces[-1][rest.numel() :].zero_()
        going_on: dict[int, dist.Work | None] = {}
        for call in planned:
            _wait(going_on.pop(call.piece, None))
            part = pieces[call.piece][call.start : call.start + call.count]
            issue = ISSUE[self._stages[call.stage].kind]
            place, group = call.ranks.index(self._rank), self._groups[call.stage]
            # One piece alone is waited for by the call itself.
            going_on[call.piece] = issue(
                part, call.ranks, place, group=group, async_op=len(pieces) > 1
            )
        for work in going_on.values():
            _wait(work)
        if padded is not None:
            rest.copy_(pieces[-1][: rest.numel()])
            self._scratch.give(padded)

    def _plan(self, numel: int, itemsize: int) -> tuple[list[int], list[Call]]:
        """The pieces and calls of a size, kept: a run has few sizes, and many of each."""
        if (numel, itemsize) not in self._plans:
            sizes = piece_sizes(self._stages, numel, itemsize, self._pipeline_bytes)
            self._plans[numel, itemsize] = sizes, list(calls(self._stages, sizes, self._rank))
        return self._plans[numel, itemsize]


build = ComposedAllReduce


def _wait(work: dist.Work | None) -> None:
    if work is not None:
        work.wait()


def _make_groups(stage: Stage, timeout: timedelta) -> dist.ProcessGroup | None:
    """The group of this rank's communicator; None where it has none.

    All ranks make all groups, in the same order: torch names them by a counter. The ranks outside
    a group do not wait for it.
    """
    own = options = None
    if dist.get_backend() == "nccl":
        # A collective that waits for free multiprocessors delays every rank.
        options = dist.ProcessGroupNCCL.Options(is_high_priority_stream=True)
    for ranks in stage.communicators:
        if len(ranks) > 1:
            made = dist.new_group(list(ranks), timeout=timeout, pg_options=options)
            # To a rank outside the group torch gives a marker instead.
            own = made if isinstance(made, dist.ProcessGroup) else own
    return own
