"""The fast training step: the same mathematics as `EagerStep`, on the device alone.

- Models run forward and backward through fused kernels (`resnet.FusedResNet`,
  `alexnet.FusedAlexNet`).
- They read half-precision weights that the update writes beside the FP32 masters, which remain
  the module's parameters: evaluation, digests and checkpoints see them as ever.
- LARS or SGD with unscaling, overflow check, schedule and loss scale is four kernels.
- All of it is one CUDA graph with one worker. With several it is one graph for each gradient
  bucket, and the reducer is told between them, so that all-reduces overlap the backward pass as
  they do in the eager step and no collective is captured. Where workers share batch statistics,
  it is cut at each normalization too.

The host reads nothing in a step: how many steps were performed and what became of the loss scale
is read when it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import Optimizer

from fourmin.recipe.schedule import LearningRateSchedule
from fourmin.training.comm.fusion import GradientReducer
from fourmin.training.comm.lanes import ExposedTime
from fourmin.training.fast import graphs
from fourmin.training.fast.alexnet import FusedAlexNet
from fourmin.training.fast.plan import FusionPlan
from fourmin.training.fast.resnet import FusedResNet
from fourmin.training.fast.sink import BucketSink
from fourmin.training.fast.update import FusedUpdate
from fourmin.training.models.alexnet import AlexNet
from fourmin.training.models.resnet import ResNet
from fourmin.training.precision import DTYPES, Precision
from fourmin.training.step import MicroBatch

_ALIGNMENT = 8  # elements: working copies start at multiples of 16 bytes
_WARMUP_PASSES = 2


class FastStep:
    """In place of `EagerStep`, for FP16 or BF16 on a CUDA GPU.

    The first call for a shape of images compiles, chooses convolution algorithms and captures;
    what that changed is put back. Call `reset` after the weights were set anew from outside.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        reducer: GradientReducer,
        precision: Precision,
        schedule: LearningRateSchedule,
        label_smoothing: float,
        *,
        total_steps: int,
        growth_interval: int,
        world_size: int,
        use_graphs: bool = True,
        plan: FusionPlan | None = None,
    ) -> None:
        """As `EagerStep`; `total_steps` bounds the steps of the run (the schedule is tabulated).

        Raises ValueError for what the kernels cannot do; ask `choose.reason_against` before.
        """
        self._model = model
        self._reducer = reducer
        self._precision = precision
        self._label_smoothing = label_smoothing
        self._world_size = world_size
        self._use_graphs = use_graphs
        kinds = (nn.Conv2d, nn.Linear)
        layers = [module for module in model.modules() if isinstance(module, kinds)]
        self._masters = [layer.weight for layer in layers[:-1]]  # the classifier's stays FP32
        self._halves = _working_copies(self._masters, DTYPES[precision.name])
        copies = dict(zip(self._masters, self._halves, strict=True))
        self._executor: FusedResNet | FusedAlexNet
        if isinstance(model, ResNet):
            self._executor = FusedResNet(model, copies, plan or FusionPlan())
        elif isinstance(model, AlexNet):
            self._executor = FusedAlexNet(model, copies, plan or FusionPlan())
        else:
            raise ValueError(f"no fused kernels for {type(model).__name__}")
        if precision.name == "fp32":
            copies = {}  # the working copies are the masters
        self._update = FusedUpdate(
            optimizer,
            copies,
            [schedule(step) for step in range(total_steps)],
            scaled=precision.name == "fp16",
            loss_scale=precision.loss_scale,
            growth_interval=growth_interval,
            factor=reducer.leave_division(),
        )
        self._loss = torch.zeros((), device=precision.device)
        self._stale = True
        self._inputs: dict[tuple[int, ...], MicroBatch] = {}
        self._captured: dict[tuple[tuple[int, ...], int, bool, bool], graphs.Segments] = {}
        self._captured_update: graphs.Segments | None = None
        self._pool = torch.cuda.graph_pool_handle() if use_graphs else None

    @property
    def performed(self) -> int:
        """Optimizer steps performed so far.

        Waits for the device, and brings `precision`'s loss scale and count of skipped steps up
        to date.
        """
        state = self._update.read()
        performed = int(state.pop("performed"))
        self._precision.load_state_dict(state)
        return performed

    def reset(self, precision: Precision) -> None:
        """Forget all history, as a new step would: momentum, schedule, loss scale.

        Captured graphs stay. Weights are read anew at the next call, so they may be set between.
        """
        self._precision = precision
        self._update.reset(precision.loss_scale)
        self._stale = True

    def state_dict(self) -> dict[str, Any]:
        """As `EagerStep.state_dict`; waits for the device."""
        return self._update.read()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """As `EagerStep.load_state_dict`; weights and momentum are set before the next call."""
        self._update.load(state)
        self._precision.load_state_dict(state)
        self._stale = True

    def __call__(self, micro_batches: Sequence[MicroBatch]) -> tuple[Tensor, ExposedTime]:
        with torch.no_grad():
            if self._stale:
                self._refresh()
                self._stale = False
            count = len(micro_batches)
            for index, (images, labels) in enumerate(micro_batches):
                buffers = self._buffers(images)
                self._executor.stem.fill(buffers[0], images)
                buffers[1].copy_(labels, non_blocking=True)
                self._pass(buffers, count, first=index == 0, last=index + 1 == count)
            if self._world_size == 1:
                return self._loss.clone(), ExposedTime(lambda: 0.0)
            exposed = self._reducer.finish()
            self._run_update()
            return self._loss.clone(), exposed

    def update_parameters(self) -> None:
        """Queue the update alone, from the gradients as they are; for measurements."""
        self._update.launch()

    def _refresh(self) -> None:
        torch._foreach_copy_(self._halves, [master.detach() for master in self._masters])
        self._executor.refresh()

    def _buffers(self, images: Tensor) -> MicroBatch:
        shape = tuple(images.shape)
        if shape not in self._inputs:
            labels = torch.zeros(shape[0], dtype=torch.int64, device=images.device)
            self._inputs[shape] = (self._executor.input_buffer(images), labels)
        return self._inputs[shape]

    def _body(self, buffers: MicroBatch, count: int, first: bool, last: bool) -> graphs.Body:
        """One forward and backward pass; with one worker and `last`, the update too."""
        images, labels = buffers

        def loss_of(logits: Tensor) -> Tensor:
            loss = functional.cross_entropy(logits, labels, label_smoothing=self._label_smoothing)
            return loss / count

        def body(cut: graphs.Cut) -> None:
            def complete(index: int) -> None:
                if last and self._world_size > 1:
                    cut(self._arrival(index))

            sink = BucketSink(self._reducer.buckets, complete, accumulate=not first)
            loss = self._executor.loss_and_gradients(
                images, loss_of, self._update.scale[0], sink, cut, accumulate=not first
            )
            if first:
                self._loss.copy_(loss)
            else:
                self._loss.add_(loss)
            if last and self._world_size == 1:
                self._move()

        return body

    def _arrival(self, index: int) -> Callable[[], None]:
        bucket = self._reducer.buckets[index]

        def arrived() -> None:
            for slot in bucket.slots:
                self._reducer.arrived(bucket, slot)

        return arrived

    def _move(self) -> None:
        self._update.launch()
        self._executor.refresh()

    def _pass(self, buffers: MicroBatch, count: int, *, first: bool, last: bool) -> None:
        body = self._body(buffers, count, first, last)
        if not self._use_graphs:
            graphs.run(body)
            return
        key = (tuple(buffers[0].shape), count, first, last)
        if key not in self._captured:
            self._warm_up(body, first)
            edit = self._executor.zeroed.drop_other_fills
            self._captured[key] = graphs.Segments(body, self._pool, edit)
        self._captured[key].replay()

    def _run_update(self) -> None:
        if not self._use_graphs:
            self._move()
            return
        if self._captured_update is None:
            self._captured_update = graphs.Segments(lambda _cut: self._move(), self._pool)
        self._captured_update.replay()

    def _warm_up(self, body: graphs.Body, first: bool) -> None:
        """Run `body` so that all is compiled and chosen, then put back what it changed."""
        changed = [
            *(p.detach() for p in self._model.parameters()),
            *self._model.buffers(),
            *self._halves,
            *self._reducer.flat_buffers,
            *self._update.tensors,
            self._loss,
        ]
        before = [tensor.clone() for tensor in changed]
        device = self._loss.device
        drawn = torch.cuda.get_rng_state(device)
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(_WARMUP_PASSES):
                body(lambda _action: None)
            if self._world_size > 1:
                self._move()
        torch.cuda.current_stream().wait_stream(stream)
        for tensor, value in zip(changed, before, strict=True):
            tensor.copy_(value)
        torch.cuda.set_rng_state(drawn, device)
        self._executor.refresh()


def _working_copies(masters: Sequence[Tensor], kind: torch.dtype) -> list[Tensor]:
    """A copy of each master in `kind` with its memory order, side by side; not yet filled.

    For FP32 the masters themselves.
    """
    if kind == torch.float32:
        return [master.detach() for master in masters]
    starts = [0]
    for master in masters:
        starts.append(starts[-1] + -(-master.numel() // _ALIGNMENT) * _ALIGNMENT)
    flat = torch.zeros(starts[-1], dtype=kind, device=masters[0].device)
    return [
        flat.as_strided(master.shape, master.stride(), start)
        for master, start in zip(masters, starts[:-1], strict=True)
    ]
