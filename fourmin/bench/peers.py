"""Training steps as people write them in plain PyTorch, to hold fourmin's against.

Nothing here is shared with what fourmin trains with: torchvision's ResNet-50, torch's SGD in one
fused kernel, autocast, GradScaler, channels-last, torch.compile and DistributedDataParallel, as
torch's documentation advises. Only a model that torchvision has not is the project's own module.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass

import torch
import torchvision
from torch import Tensor, nn

Step = Callable[[], Tensor]
"""Trains once on images that lie on the device; gives the loss, and waits for nothing."""

PLAIN: dict[str, str] = {
    "plain": "autocast, channels-last, GradScaler, torch's fused SGD: the usual training script",
    "compile": "the plain script around torch.compile(model)",
    "max-autotune": 'the same with mode="max-autotune"',
}
"""The ways of a plain script, and what each is."""

_MODES = {"compile": "default", "max-autotune": "max-autotune"}
_HALVES = {"fp16": torch.float16, "bf16": torch.bfloat16}


@dataclass(frozen=True)
class Plain:
    """What a plain script trains: `make` builds its model, on the CPU and in FP32.

    `precision` is fp32, bf16 or fp16; `images` (n, 3, height, width) and `labels` (n,) lie on the
    device; where `gpu` is given, torch's default process group trains together, each rank on that.
    """

    make: Callable[[], nn.Module]
    precision: str
    images: Tensor
    labels: Tensor
    gpu: int | None = None

    def step(self, kind: str) -> Step:
        """A step of one of `PLAIN`'s kinds. What is to be compiled is compiled by its first
        calls. Raises what torch raises where it cannot.
        """
        device = self.images.device
        model = self.make().to(device).to(memory_format=torch.channels_last)
        if kind in _MODES:
            torch._dynamo.reset()
            model.compile(mode=_MODES[kind])
        if self.gpu is not None:
            model = nn.parallel.DistributedDataParallel(
                model, device_ids=[self.gpu], gradient_as_bucket_view=True, static_graph=True
            )
        optimizer = torch.optim.SGD(
            model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-5, fused=True
        )
        scaler = torch.amp.GradScaler(device.type, enabled=self.precision == "fp16")
        criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
        half = _HALVES.get(self.precision)
        images, labels = self.images.contiguous(memory_format=torch.channels_last), self.labels

        def step() -> Tensor:
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast(device.type, dtype=half) if half else nullcontext():
                loss: Tensor = criterion(model(images), labels)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            return loss.detach()

        return step


def resnet50(classes: int) -> nn.Module:
    """torchvision's ResNet-50, which has its strides where v1.5 has them."""
    model: nn.Module = torchvision.models.resnet50(num_classes=classes)
    return model
