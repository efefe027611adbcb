"""The training step: forward, backward, mean gradient, update."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import Optimizer

from fourmin.recipe.schedule import LearningRateSchedule
from fourmin.training.comm.fusion import GradientReducer
from fourmin.training.comm.lanes import ExposedTime
from fourmin.training.optim.build import set_learning_rate
from fourmin.training.precision import Precision

MicroBatch = tuple[Tensor, Tensor]
"""Images (batch, 3, height, width) and labels (batch,), on the worker's device."""


class EagerStep:
    """The plain step, and the oracle of every faster one.

    The schedule follows performed optimizer steps: one that FP16 overflow skips leaves the
    learning rate where it is.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        reducer: GradientReducer,
        precision: Precision,
        schedule: LearningRateSchedule,
        label_smoothing: float,
    ) -> None:
        self._model = model
        self._optimizer = optimizer
        self._reducer = reducer
        self._precision = precision
        self._schedule = schedule
        self._label_smoothing = label_smoothing
        self.performed = 0
        """Optimizer steps performed so far."""

    def __call__(self, micro_batches: Sequence[MicroBatch]) -> tuple[Tensor, ExposedTime]:
        """Train on one global batch: this rank's micro-batches of it.

        Returns this rank's mean loss (0-dim, FP32, on the device, of the weights before the
        update) and the communication time that the backward pass did not hide.
        """
        self._reducer.zero_()
        loss_sum = torch.zeros((), device=self._precision.device)
        for index, (images, labels) in enumerate(micro_batches):
            with self._reducer.accumulating(index + 1 < len(micro_batches)):
                with self._precision.autocast():
                    logits = self._model(images)
                loss = functional.cross_entropy(
                    logits.float(), labels, label_smoothing=self._label_smoothing
                ) / len(micro_batches)
                self._precision.scale(loss).backward()
            loss_sum += loss.detach()
        exposed = self._reducer.finish()
        finite = self._precision.unscale_and_check(self._reducer.flat_buffers)
        if finite:
            set_learning_rate(self._optimizer, self._schedule(self.performed))
            self._optimizer.step()
            self.performed += 1
        self._precision.update(finite)
        return loss_sum, exposed

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint must keep beside weights and optimizer; plain numbers."""
        unscaled = {"loss_scale": 1.0, "good_steps": 0, "skipped_steps": 0}
        return {"performed": self.performed, **unscaled, **self._precision.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.performed = int(state["performed"])
        self._precision.load_state_dict(state)
