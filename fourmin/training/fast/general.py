"""Forward and backward of any model by autograd, for the fast step's graph and update."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from fourmin.training.fast.graphs import Cut
from fourmin.training.fast.resnet import Sink
from fourmin.training.precision import Precision


class GeneralModel:
    """The model's own forward under autocast; what `FusedResNet` is for residual networks."""

    def __init__(self, model: nn.Module, precision: Precision) -> None:
        self._model = model
        self._precision = precision
        self._parameters = [p for p in model.parameters() if p.requires_grad]

    def refresh(self) -> None:
        """Nothing: autocast reads the FP32 weights anew in each pass."""

    def input_buffer(self, images: Tensor) -> Tensor:
        """Memory for images of this shape, channels-last, in the type that autocast wants."""
        kind = torch.float16 if self._precision.name == "fp16" else torch.bfloat16
        return torch.empty_like(images, dtype=kind, memory_format=torch.channels_last)

    def loss_and_gradients(
        self,
        images: Tensor,
        loss_of: Callable[[Tensor], Tensor],
        scale: Tensor,
        sink: Sink,
        _cut: Cut,
        *,
        accumulate: bool,
    ) -> Tensor:
        """One forward and backward pass; see `FusedResNet.loss_and_gradients`."""
        kind = torch.float16 if self._precision.name == "fp16" else torch.bfloat16
        # Autocast's cache of cast weights would outlive the graph that made them.
        with (
            torch.enable_grad(),
            torch.autocast(images.device.type, dtype=kind, cache_enabled=False),
        ):
            logits = self._model(images)
        with torch.enable_grad():
            loss = loss_of(logits.float())
            gradients = torch.autograd.grad(loss * scale, self._parameters)
        for parameter, gradient in zip(
            reversed(self._parameters), reversed(gradients), strict=True
        ):
            sink.weight(parameter, gradient)
        return loss.detach()
