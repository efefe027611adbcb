"""The models as an estimate sees them: gradients in order of registration, and their buckets.

The sizes are data (`models.json`, made from the real models by `make docs`), so that nothing here
needs torch.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from fourmin.base.errors import unknown
from fourmin.recipe.buckets import lay_out, partition

FP32_BYTES = 4
WIRE_BYTES = {"fp32": 4, "fp16": 2, "bf16": 2}
"""Bytes of an element as it is sent, by the configuration's `gradient_dtype`."""


@dataclass(frozen=True)
class Gradient:
    """One parameter's gradient: its elements, and the operations of an image's forward pass in
    the layer whose weight it is (0 for biases and batch normalization).
    """

    name: str
    elements: int
    operations: int


@dataclass(frozen=True)
class ModelShape:
    """A model at the image size (pixels) that its operations were counted for."""

    name: str
    image_size: int
    gradients: tuple[Gradient, ...]
    batch_norm_channels: tuple[int, ...]

    @property
    def elements(self) -> int:
        """All parameters."""
        return sum(gradient.elements for gradient in self.gradients)

    def operations(self, image_size: int) -> float:
        """Floating-point operations of one image's forward pass at another image size.

        Convolutions grow with the area; that the fully connected layers do not is left out.
        """
        counted = sum(gradient.operations for gradient in self.gradients)
        return counted * (image_size / self.image_size) ** 2


@dataclass(frozen=True)
class BucketShape:
    """Gradients that are reduced together: bytes as sent, the share of the backward pass (0 to 1)
    after which the last of them is there, and the elements of each weight among them.
    """

    nbytes: int
    ready: float
    weights: tuple[int, ...] = ()


@cache
def load_shape(model: str) -> ModelShape:
    """The shape of a model. Raises FourminError, naming the known ones."""
    table: dict[str, Any] = json.loads(Path(__file__).with_name("models.json").read_text())
    if model not in table:
        raise unknown(f"no sizes are known of the model {model!r}", model, table)
    row = table[model]
    return ModelShape(
        name=model,
        image_size=row["image_size"],
        gradients=tuple(Gradient(*parameter) for parameter in row["parameters"]),
        batch_norm_channels=tuple(row["batch_norm_channels"]),
    )


@cache
def fuse(shape: ModelShape, threshold: int, gradient_dtype: str) -> tuple[BucketShape, ...]:
    """The buckets of a model, in the order of launch, as `GradientReducer` makes them.

    The backward pass takes each layer in proportion to its operations.
    """
    sizes = [gradient.elements * FP32_BYTES for gradient in shape.gradients]
    parts = [[shape.gradients[index] for index in part] for part in partition(sizes, threshold)]
    whole = sum(gradient.operations for gradient in shape.gradients)
    done = 0
    buckets = []
    for part in parts:
        done += sum(gradient.operations for gradient in part)
        _, elements = lay_out([gradient.elements for gradient in part])
        weights = tuple(gradient.elements for gradient in part if gradient.operations)
        buckets.append(BucketShape(elements * WIRE_BYTES[gradient_dtype], done / whole, weights))
    return tuple(buckets)
