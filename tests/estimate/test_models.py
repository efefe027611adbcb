"""The sizes that estimates read are those of the real models, and so are their buckets."""

from __future__ import annotations

from pathlib import Path

import model_shapes as shapes
import pytest

from fourmin import estimate
from fourmin.estimate.models import fuse, load_shape
from fourmin.training.models import MODEL_NAMES, build_model, forward_flops


def test_the_table_is_that_of_the_models() -> None:
    assert set(shapes.SIZES) == set(MODEL_NAMES)
    written = Path(estimate.__file__).with_name("models.json").read_text()
    assert written == shapes.table(), "run `make docs`"


@pytest.mark.parametrize("name", MODEL_NAMES)
def test_operations_are_those_of_the_forward_pass(name: str) -> None:
    shape = load_shape(name)
    size, classes = shapes.SIZES[name]
    assert shape.operations(size) == forward_flops(name, size, classes)
    assert shape.operations(2 * size) == 4 * shape.operations(size)


@pytest.mark.parametrize("gradient_dtype", ["fp32", "fp16"])
@pytest.mark.parametrize("threshold", [0, 1000, 4 << 20, 1 << 40])
@pytest.mark.parametrize("name", ["resnet8", "resnet50"])
def test_buckets_are_those_of_the_reducer(name: str, threshold: int, gradient_dtype: str) -> None:
    import torch

    from fourmin.recipe.topology import Topology
    from fourmin.training.comm.base import build_all_reduce
    from fourmin.training.comm.fusion import GradientReducer

    model = build_model(name, num_classes=shapes.SIZES[name][1], bn_momentum=0.1, bn_epsilon=1e-5)
    native = build_all_reduce(
        "native", Topology.build(0, 1, 1), hybrid_threshold=0, timeout_seconds=60.0
    )
    dtype = {"fp32": None, "fp16": torch.float16}[gradient_dtype]
    reducer = GradientReducer(model.named_parameters(), native, 1, threshold, bucket_dtype=dtype)
    try:
        expected = reducer.counters.bucket_bytes
    finally:
        reducer.close()
    buckets = fuse(load_shape(name), threshold, gradient_dtype)
    assert tuple(bucket.nbytes for bucket in buckets) == expected
    ready = [bucket.ready for bucket in buckets]
    assert ready == sorted(ready)
    assert ready[-1] == 1.0
    assert all(0 <= share <= 1 for share in ready)
