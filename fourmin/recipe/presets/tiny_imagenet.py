"""ResNet-50 on Tiny ImageNet: a benchmark for one GPU or a few."""

from __future__ import annotations

from fourmin.recipe.configuration import Configuration


def tiny_imagenet() -> Configuration:
    """ResNet-50 on Tiny ImageNet, batch 512: a minute or two on one data-centre GPU.

    100,000 training and 10,000 validation images of 64x64 pixels in 200 classes. ResNet-50 v1.5
    with a stem for small images (model `resnet50-tiny`), SGD with Nesterov momentum, a short
    schedule, images padded by 8 pixels, cropped and mirrored. The settings were found for this
    project on one H100; they are nobody's published recipe.
    """
    return Configuration(
        preset="tiny-imagenet",
        benchmark="tiny-imagenet",
        model="resnet50-tiny",
        procs_per_node=1,
        global_batch_size=512,
        optimizer="sgd",
        nesterov=True,
        base_learning_rate=0.4,
        end_learning_rate=1e-4,
        decay_poly_power=1.0,
        decay_epochs=10.0,
        warmup_epochs=2.0,
        weight_decay=5e-4,
        label_smoothing=0.1,
        max_epochs=10,
        zero_last_gamma=True,
        collective_timeout_seconds=120.0,
        loader_threads=8,
        decoder="cpu",
        image_size=64,
        eval_resize=64,
        augmentation="pad-crop",
        pixel_mean=(122.5, 114.3, 101.4),
        pixel_std=(70.6, 68.6, 71.9),
    )
