"""ResNet-50 on generated images of ImageNet's shape, which nobody has to ask for."""

from __future__ import annotations

from fourmin.recipe.configuration import Configuration


def fractals_resnet50() -> Configuration:
    """ResNet-50 v1.5 on generated fractals of ImageNet's shape, batch 256 on one GPU.

    130,000 training and 5,000 validation JPEGs in 100 classes, which `fourmin data generate
    fractals DIR` makes. SGD with Nesterov momentum, 12 epochs, random crops of 8 to 100% of the
    area. On one H200 seven runs reached 93.0 to 93.5% after 11 epochs, in 2 min 35 s to 2 min 42 s,
    and one 94.7% after 12.
    """
    return Configuration(
        preset="fractals-resnet50",
        benchmark="fractals-resnet50",
        model="resnet50",
        procs_per_node=1,
        global_batch_size=256,
        optimizer="sgd",
        nesterov=True,
        base_learning_rate=0.6,
        end_learning_rate=1e-4,
        decay_poly_power=1.0,
        decay_epochs=12.0,
        warmup_epochs=2.0,
        weight_decay=5e-5,
        label_smoothing=0.1,
        max_epochs=12,
        zero_last_gamma=True,
        collective_timeout_seconds=120.0,
        loader_threads=8,
        image_size=224,
        eval_resize=256,
        pixel_mean=(112.0, 112.0, 112.0),
        pixel_std=(46.0, 46.0, 46.0),
    )
