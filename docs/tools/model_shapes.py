"""What an estimate needs to know of each model, as data that it reads without torch.

For after a model has changed.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from fourmin import estimate
from fourmin.training.models import build_model

SIZES = {
    "alexnet": (227, 1000),
    "resnet20": (32, 10),
    "resnet50": (224, 1000),
    "resnet50-small": (64, 200),
    "resnet50-tiny": (64, 200),
    "resnet8": (16, 10),
}
"""Height and width (pixels) and number of classes with which each model is described."""


def describe(name: str) -> dict[str, Any]:
    """Parameters of a model in order of registration, each with its elements and operations.

    The operations are those of one image's forward pass in the layer whose weight it is, a
    multiply-add as two; 0 for biases and batch normalization. Runs on the meta device.
    """
    image_size, classes = SIZES[name]
    with torch.device("meta"):
        model = build_model(name, num_classes=classes, bn_momentum=0.1, bn_epsilon=1e-5)
        images = torch.empty(1, 3, image_size, image_size)
    operations: dict[int, int] = {}

    def count(module: nn.Module, _inputs: Any, output: Tensor) -> None:
        weight = module.weight
        assert isinstance(weight, Tensor)
        operations[id(weight)] = 2 * output.numel() * (weight.numel() // weight.shape[0])

    for module in model.modules():
        if isinstance(module, (nn.Conv2d, nn.Linear)):
            module.register_forward_hook(count)
    with torch.no_grad():
        model.eval()(images)
    return {
        "image_size": image_size,
        "classes": classes,
        "batch_norm_channels": [
            module.num_features for module in model.modules() if isinstance(module, _BatchNorm)
        ],
        "parameters": [
            [parameter_name, parameter.numel(), operations.get(id(parameter), 0)]
            for parameter_name, parameter in model.named_parameters()
        ],
    }


def table() -> str:
    """Every model's description as JSON text, a line a parameter."""
    parts = []
    for name in sorted(SIZES):
        described = describe(name)
        rows = ",\n".join(f"      {json.dumps(row)}" for row in described.pop("parameters"))
        head = json.dumps(described)[1:-1]
        parts.append(f'  "{name}": {{{head}, "parameters": [\n{rows}\n    ]}}')
    return "{\n" + ",\n".join(parts) + "\n}\n"


def main() -> None:
    path = Path(estimate.__file__).with_name("models.json")
    path.write_text(table(), encoding="utf-8")
    sys.stdout.write(f"{path}\n")


if __name__ == "__main__":
    main()
