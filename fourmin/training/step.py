"""The training step: forward, backward, mean gradient, update."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import Optimizer

from fourmin.training.comm.fusion import GradientReducer
from fourmin.training.comm.lanes import ExposedTime
from fourmin.training.optim.build import set_learning_rate
from fourmin.training.precision import Precision

MicroBatch = tuple[Tensor, Tensor]
"""Images (batch, 3, height, width) and labels (batch,), on the worker's device."""


class Update(Protocol):
    """What becomes of the gradients: unscaled, checked for overflow, applied; and its counts."""

    def scaled(self, loss: Tensor) -> Tensor:
        """The loss whose gradients `launch` takes."""

    def launch(self) -> None:
        """Update all parameters from their gradients."""

    def read(self) -> dict[str, Any]:
        """Steps performed, and the loss scaler's state; plain numbers. Waits for the device."""

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from what `read` gave."""


@dataclass(eq=False)
class HostUpdate:
    """An optimizer's step, if the host has seen that the gradients are finite.

    The schedule follows performed optimizer steps: one that FP16 overflow skips leaves the
    learning rate where it is.
    """

    _optimizer: Optimizer
    _buffers: Sequence[Tensor]
    """They hold all gradients."""
    _precision: Precision
    _schedule: Callable[[int], float]
    _performed = 0

    def scaled(self, loss: Tensor) -> Tensor:
        return self._precision.scale(loss)

    def launch(self) -> None:
        finite = self._precision.unscale_and_check(self._buffers)
        if finite:
            set_learning_rate(self._optimizer, self._schedule(self._performed))
            self._optimizer.step()
            self._performed += 1
        self._precision.update(finite)

    def read(self) -> dict[str, Any]:
        unscaled = {"loss_scale": 1.0, "good_steps": 0, "skipped_steps": 0}
        return {"performed": self._performed, **unscaled, **self._precision.state_dict()}

    def load(self, state: Mapping[str, Any]) -> None:
        self._performed = int(state["performed"])
        self._precision.load_state_dict(dict(state))


@dataclass(eq=False)
class EagerStep:
    """The step by torch's modules, and the oracle of every faster one."""

    _model: nn.Module
    _update: Update
    _reducer: GradientReducer
    _precision: Precision
    _label_smoothing: float

    def __call__(self, micro_batches: Sequence[MicroBatch]) -> tuple[Tensor, ExposedTime]:
        """Train on one global batch: this rank's micro-batches of it.

        Returns this rank's mean loss (0-dim, FP32, on the device, of the weights before the
        update) and the communication time that the backward pass did not hide.
        """
        self._reducer.clear()
        loss_sum = torch.zeros((), device=self._precision.device)
        for index, (images, labels) in enumerate(micro_batches):
            with self._reducer.accumulating(index + 1 < len(micro_batches)):
                with self._precision.autocast():
                    logits = self._model(images)
                loss = functional.cross_entropy(
                    logits.float(), labels, label_smoothing=self._label_smoothing
                ) / len(micro_batches)
                self._update.scaled(loss).backward()
            loss_sum += loss.detach()
        exposed = self._reducer.finish()
        self._update.launch()
        return loss_sum, exposed

    @property
    def performed(self) -> int:
        """Optimizer steps performed so far.

        Waits for the device, and brings `precision`'s loss scale and count of skipped steps up
        to date.
        """
        state = self._update.read()
        self._precision.load_state_dict(state)
        return int(state["performed"])

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint must keep beside weights and optimizer; plain numbers."""
        return self._update.read()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._update.load(state)
        self._precision.load_state_dict(state)
