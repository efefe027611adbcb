"""The larger benchmark of a CPU: minutes instead of seconds, on free data."""

from __future__ import annotations

from fourmin.recipe.configuration import Configuration


def fashion_mnist() -> Configuration:
    """ResNet-8 on Fashion-MNIST: the whole path in minutes on a CPU.

    60,000 training and 10,000 validation images of 28x28 pixels in 10 classes, quality target
    0.90 top-1, batch 256 over two workers, LARS in BF16 with FP32 master weights. The settings
    were found for this project on two CPU cores; they are nobody's published recipe.
    """
    return Configuration(
        preset="fashion-mnist",
        benchmark="fashion-mnist",
        model="resnet8",
        procs_per_node=2,
        global_batch_size=256,
        optimizer="lars",
        base_learning_rate=10.0,
        end_learning_rate=1e-4,
        decay_epochs=6.0,
        warmup_epochs=1.0,
        weight_decay=5e-5,
        max_epochs=8,
        image_size=28,
        eval_resize=28,
        augmentation="shift",
        pixel_mean=(73.0, 73.0, 73.0),
        pixel_std=(90.0, 90.0, 90.0),
    )
