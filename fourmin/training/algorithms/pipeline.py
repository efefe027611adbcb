"""A residual network's stages over several ranks, a batch going through in micro-batches.

GPipe's division (Huang et al. 2019, arXiv 1811.06965) with PipeDream's order of passes, one
forward and one backward (Narayanan et al. 2019), both torch.distributed.pipelining's. Every rank
has the whole model and trains its own part of it; batch normalization sees one micro-batch at a
time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import deepcopy
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.nn import functional
from torch.optim import Optimizer

from fourmin.base.errors import FourminError
from fourmin.training.comm.fusion import GradientReducer, ReductionCounters
from fourmin.training.comm.lanes import ExposedTime
from fourmin.training.models.resnet import ResNet
from fourmin.training.precision import DTYPES, Precision
from fourmin.training.step import EagerStep, MicroBatch, Update


class _Part(nn.Module):
    """Some stages of a model."""

    def __init__(self, model: ResNet, stages: range, precision: Precision) -> None:
        super().__init__()
        self.model = model
        self.stages = stages
        self.precision = precision

    def forward(self, x: Tensor) -> Tensor:
        with self.precision.autocast():
            # Messages are of contiguous memory.
            return self.model.part(x, self.stages).contiguous()


class Pipeline:
    """The gradients of one model, whose parts the ranks of the default group have in order."""

    def __init__(
        self,
        model: ResNet,
        images: Tensor,
        micro_batches: int,
        precision: Precision,
        label_smoothing: float = 0.0,
    ) -> None:
        """`images` are as large as a micro-batch's [n, 3, h, w], whatever is in them.

        Raises FourminError where there are more ranks than stages.
        """
        self.rank, self.ranks = dist.get_rank(), dist.get_world_size()
        self.model = model
        self._parts = _stages(model.stage_count, self.ranks)
        sent = list(_sent(model, self._parts, images.to("meta"), DTYPES[precision.name]))
        stage = PipelineStage(
            _Part(model, self._parts[self.rank], precision),
            self.rank,
            self.ranks,
            images.device,
            # Said beforehand: else older torches would find out by a pass that BN counts.
            input_args=sent[self.rank],
            output_args=sent[self.rank + 1],
        )
        self.bytes = tuple(2 * micro_batches * one.nbytes for one in sent[1:-1])
        """Of activations and their gradients that go from each part to the next in a step."""

        def loss(logits: Tensor, labels: Tensor) -> Tensor:
            return functional.cross_entropy(logits, labels, label_smoothing=label_smoothing)

        self._schedule = Schedule1F1B(stage, micro_batches, loss_fn=loss)

    def backward(self, images: Tensor, labels: Tensor) -> Tensor:
        """Add the gradients of a batch's mean loss to this rank's parameters; the loss.

        All ranks call it; the first one's images and the last one's labels are read.
        """
        losses: list[Tensor] = []
        inputs = [images] if self.rank == 0 else []
        last: dict[str, Any] = {"target": labels, "losses": losses}
        self._schedule.step(*inputs, **(last if self.rank == self.ranks - 1 else {}))
        mean = torch.stack(losses).mean().detach() if losses else torch.zeros(())
        dist.broadcast(mean, self.ranks - 1)
        return mean

    @torch.no_grad()
    def share(self, optimizer: Optimizer) -> None:
        """Give every rank the weights and statistics of all parts, and what `optimizer` keeps."""
        for rank, stages in enumerate(self._parts):
            for module in _modules(self.model, stages):
                own = list(module.parameters())
                kept = [tensor for one in own for tensor in optimizer.state[one].values()]
                for tensor in [*own, *module.buffers(), *kept]:
                    dist.broadcast(tensor, rank)


class PipelineStep(EagerStep):
    """A step on one batch, of which each rank has loaded a part; each part of it is a micro-batch.

    That is what all-reduced gradients would be of: with any number of ranks the update is that of
    a synchronous step.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        optimizer: Optimizer,
        update: Update,
        reducer: GradientReducer,
        precision: Precision,
    ) -> None:
        """`reducer` has nothing to do from now on."""
        super().__init__(pipeline.model, update, reducer, precision, 0.0)
        reducer.close()
        self._pipeline = pipeline
        self._optimizer = optimizer
        self._steps = 0

    def __call__(self, micro_batches: Sequence[MicroBatch]) -> tuple[Tensor, ExposedTime]:
        """Returns the batch's mean loss; waiting is not told from computing."""
        self._reducer.clear()
        images, labels = (torch.cat(own) for own in zip(*micro_batches, strict=True))
        loss = self._pipeline.backward(
            _gathered(images, 0), _gathered(labels, self._pipeline.ranks - 1)
        )
        self._update.launch()
        self._steps += 1
        return loss, ExposedTime(float)

    def share(self) -> None:
        """Every rank comes to hold what all have come to."""
        self._pipeline.share(self._optimizer)

    @property
    def counters(self) -> ReductionCounters:
        """What goes from part to part, images and labels aside."""
        sizes = self._pipeline.bytes
        return ReductionCounters(
            steps=self._steps,
            collectives=0,
            bytes=self._steps * sum(sizes),
            bucket_bytes=sizes,
            bucket_algorithms=("pipeline",) * len(sizes),
        )


def _gathered(own: Tensor, to: int) -> Tensor:
    """What all ranks have, one after the other, on one of them; anything on the others."""
    own = own.contiguous()
    here = dist.get_rank() == to
    parts = [torch.empty_like(own) for _ in range(dist.get_world_size())] if here else None
    dist.gather(own, parts, to)
    return torch.cat(parts) if parts else own


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


def _sent(model: ResNet, parts: list[range], x: Tensor, dtype: torch.dtype) -> Iterator[Tensor]:
    """What comes into each part, and out of the last one, without its values."""
    model = deepcopy(model).to("meta")
    yield x
    for stages in parts:
        x = model.part(x, stages).detach().contiguous()
        last = stages.stop == model.stage_count
        yield x.to(torch.float32 if last else dtype).requires_grad_()
