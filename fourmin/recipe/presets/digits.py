"""The embedded default, which needs nothing but this machine."""

from __future__ import annotations

from fourmin.recipe.configuration import Configuration


def digits() -> Configuration:
    """ResNet-8 on scikit-learn's handwritten digits: the whole path in under a minute on a CPU.

    1,437 training and 360 validation images of 16x16 pixels in 10 classes, quality target
    0.98 top-1, batch 64 over two workers, LARS in BF16 with FP32 master weights. The settings
    were found for this project on two CPU cores; they are nobody's published recipe.
    """
    return Configuration(
        preset="digits",
        benchmark="digits",
        model="resnet8",
        procs_per_node=2,
        global_batch_size=64,
        optimizer="lars",
        base_learning_rate=16.0,
        end_learning_rate=1e-4,
        decay_epochs=16.0,
        warmup_epochs=2.0,
        weight_decay=5e-5,
        max_epochs=16,
        image_size=16,
        eval_resize=16,
        augmentation="shift",
        pixel_mean=(78.0, 78.0, 78.0),
        pixel_std=(96.0, 96.0, 96.0),
    )
