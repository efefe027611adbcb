"""A residual network's stages over several ranks, a batch going through in micro-batches.

Schedules and messages are torch.distributed.pipelining's. Every rank has the whole model and
trains its own part of it; batch normalization sees one micro-batch at a time, as without a
pipeline that accumulates gradients.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from torch.nn import functional

from fourmin.base.errors import FourminError
from fourmin.training.models.resnet import ResNet

SCHEDULES = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B}
"""GPipe (Huang et al. 2019, arXiv 1811.06965) and one forward, one backward (PipeDream, Narayanan
et al. 2019)."""


class _Part(nn.Module):
    """Some stages of a model, in FP32."""

    def __init__(self, model: ResNet, stages: range) -> None:
        super().__init__()
        self.model = model
        self.stages = stages

    def forward(self, x: Tensor) -> Tensor:
        # Messages are of contiguous memory.
        return self.model.part(x, self.stages).contiguous()


class Pipeline:
    """The gradients of one model, whose parts the ranks of the default group have in order."""

    def __init__(
        self,
        model: ResNet,
        images: Tensor,
        micro_batches: int,
        *,
        schedule: str = "1f1b",
        label_smoothing: float = 0.0,
    ) -> None:
        """`images` are as large as a micro-batch's [n, 3, h, w], whatever is in them.

        Raises FourminError where there are more ranks than stages.
        """
        rank, ranks = dist.get_rank(), dist.get_world_size()
        self._model = model
        self._last = ranks - 1
        self._parts = _stages(model.stage_count, ranks)
        shapes = [images, *_boundaries(model, self._parts, images.to("meta"))]
        stage = PipelineStage(
            _Part(model, self._parts[rank]),
            rank,
            ranks,
            images.device,
            # Said beforehand: else older torches would find out by a pass that BN counts.
            input_args=shapes[rank].to("meta"),
            output_args=shapes[rank + 1],
        )

        def loss(logits: Tensor, labels: Tensor) -> Tensor:
            return functional.cross_entropy(logits, labels, label_smoothing=label_smoothing)

        self._schedule = SCHEDULES[schedule](stage, micro_batches, loss_fn=loss)

    def backward(self, images: Tensor, labels: Tensor) -> Tensor:
        """Add the gradients of a batch's mean loss to this rank's parameters; the loss.

        All ranks call it; the first one's images and the last one's labels are read.
        """
        rank, losses = dist.get_rank(), list[Tensor]()
        inputs = [images] if rank == 0 else []
        last: dict[str, Any] = {"target": labels, "losses": losses} if rank == self._last else {}
        self._schedule.step(*inputs, **last)
        mean = torch.stack(losses).mean().detach() if losses else images.new_zeros(())
        dist.broadcast(mean, self._last)
        return mean

    def parameters(self) -> list[nn.Parameter]:
        """Those of this rank's part."""
        own = _modules(self._model, self._parts[dist.get_rank()])
        return [parameter for module in own for parameter in module.parameters()]

    @torch.no_grad()
    def share(self) -> None:
        """Give every rank the weights and statistics of all parts."""
        for rank, stages in enumerate(self._parts):
            for module in _modules(self._model, stages):
                for tensor in [*module.parameters(), *module.buffers()]:
                    dist.broadcast(tensor, rank)


def _stages(count: int, ranks: int) -> list[range]:
    """The stages of each rank."""
    if ranks > count:
        raise FourminError(
            f"a model of {count} stages cannot be shared out among {ranks} workers",
            next_step=f"at most {count} workers (--procs-per-node)",
        )
    return [range(count * rank // ranks, count * (rank + 1) // ranks) for rank in range(ranks)]


def _modules(model: ResNet, stages: range) -> Iterator[nn.Module]:
    """What `ResNet.part` runs for these stages."""
    if stages.start == 0:
        yield from (model.conv1, model.bn1)
    for stage in stages:
        yield model.get_submodule(f"layer{stage + 1}")
    if stages.stop == model.stage_count:
        yield model.fc


def _boundaries(model: ResNet, parts: list[range], x: Tensor) -> Iterator[Tensor]:
    """What each part makes of what the one before it made, without its values."""
    model = deepcopy(model).to("meta")
    for stages in parts:
        x = _Part(model, stages)(x).detach().requires_grad_()
        yield x
