"""ResNet-50 v1.5 on ImageNet: Goyal et al.'s recipes and MLPerf's reference points."""

from __future__ import annotations

from dataclasses import replace

from fourmin.recipe.configuration import Configuration
from fourmin.recipe.presets.imagenet import FUSION_THRESHOLD, HYBRID_THRESHOLD, TRAIN_IMAGES


def resnet50_256() -> Configuration:
    """ResNet-50, batch 256 on 8 GPUs: the baseline of Goyal et al. 2017 (23.60% error).

    Source: arXiv 1706.02677, sections 4 and 5.1. SGD with Nesterov momentum 0.9, learning rate
    0.1, divided by 10 after epochs 30, 60 and 80 of 90; weight decay 1e-4; 32 images a worker,
    which have their batch statistics to themselves; He's initialization with the last gamma of
    each block 0; random crops of 8 to 100% of the area; images normalised by channel.

    Differs from the source: Goyal et al. take weight decay off batch normalization only; here it
    is off the 1,000 biases of the last layer too, the only other biases there are.
    Chosen here: evaluation after epochs 2, 6, ... 90, so that the last epoch is one of them;
    FP16 with a dynamic loss scale on a GPU (theirs was FP32); threads and time limits.

    Never run here on ImageNet; what was run is practice on a few photographs.
    """
    return Configuration(
        preset="resnet50-256",
        benchmark="resnet50",
        model="resnet50",
        procs_per_node=8,
        global_batch_size=256,
        optimizer="sgd",
        nesterov=True,
        base_learning_rate=0.1,
        end_learning_rate=1e-4,
        learning_rate_decay="step",
        decay_epochs=90.0,
        decay_milestones=(30.0, 60.0, 80.0),
        decay_factor=0.1,
        weight_decay=1e-4,
        max_epochs=90,
        eval_offset=2,
        zero_last_gamma=True,
        collective_timeout_seconds=300.0,
        fusion_threshold=FUSION_THRESHOLD,
        loader_threads=8,
        image_size=224,
        eval_resize=256,
        pixel_mean=(123.675, 116.28, 103.53),
        pixel_std=(58.395, 57.12, 57.375),
    )


def resnet50_8k() -> Configuration:
    """ResNet-50, batch 8,192 on 256 GPUs: "ImageNet in 1 Hour" (Goyal et al. 2017, 23.74% error).

    Source: arXiv 1706.02677. `resnet50-256` with the linear scaling rule and gradual warmup:
    learning rate 0.1 * 8192 / 256 = 3.2, reached in a straight line from 0.1 over the first 5
    epochs. 32 images a worker, so 32 nodes of 8.

    Differs from the source, and chosen here: as in `resnet50-256`. The learning rate is outside
    the momentum (v = m * v + g; w -= lr * v), which needs no momentum correction when it changes.

    Never run here on ImageNet, nor on 256 GPUs.
    """
    return replace(
        resnet50_256(),
        preset="resnet50-8k",
        device="cuda",
        nodes=32,
        global_batch_size=8192,
        base_learning_rate=0.1 * 8192 / 256,
        warmup_epochs=5.0,
        warmup_start_learning_rate=0.1,
    )


def resnet50_32k() -> Configuration:
    """ResNet-50, batch 32,768 on 1,024 GPUs: MLPerf's reference convergence point.

    Source: MLPerf Training's reference convergence points, batch 32768 (mean 56.0 epochs to
    75.9%): LARS, learning rate 21.2, 16 warmup epochs, momentum 0.94, weight decay 2.5e-5, 2,267
    decay steps, batch statistics over 128 images (4 workers of 32). From MLPerf's rules: LARS
    with epsilon 0 and eta 0.001, no weight decay and no adaptation on biases and batch
    normalization, polynomial decay of power 2 to 1e-4. From its TensorFlow reference: the +1 in
    the number of decay steps, the dropped last batch (39 steps an epoch), and a truncated normal
    initialization.

    Chosen here, because the point does not say it: label smoothing 0.1 (the rules allow 0 and
    0.1); gammas start at 1; normalisation of the images, evaluation offset 0 and at most 76
    epochs, the first multiple of 4 after the decay ends (74.1); 128 nodes of 8.

    Never run here.
    """
    return replace(
        resnet50_256(),
        preset="resnet50-32k",
        device="cuda",
        nodes=128,
        global_batch_size=32768,
        optimizer="lars",
        nesterov=False,
        momentum=0.94,
        base_learning_rate=21.2,
        end_learning_rate=1e-4,
        learning_rate_decay="poly",
        decay_epochs=_decay_epochs(2267, warmup_epochs=16, global_batch_size=32768),
        decay_milestones=(),
        warmup_epochs=16.0,
        weight_decay=2.5e-5,
        label_smoothing=0.1,
        max_epochs=76,
        eval_offset=0,
        initialization="truncated-normal",
        zero_last_gamma=False,
        bn_span=4,
    )


def resnet50_64k() -> Configuration:
    """ResNet-50, batch 65,536 on 2,048 GPUs: the batch of Jia et al. 2018, MLPerf's settings.

    From Jia et al. 2018 (arXiv 1807.11205, "Training ImageNet in Four Minutes"): the batch, 32
    images on each of 2,048 GPUs, FP16 with FP32 master weights, gradients sent in FP16, LARS, no
    weight decay on biases and batch normalization, tensor fusion, and the hybrid all-reduce with
    groups of one node. The paper publishes no learning rate, warmup, momentum, weight decay or
    eta, and neither the fusion nor the hybrid threshold.

    Differs from the source: large tensors take the torus, not a flat ring, whose 4,094 rounds on
    2,048 workers would take longer than the step and whose sum FP16 does not hold
    (`hybrid_large=ring` asks for it, on up to 512 workers).

    So the schedule is MLPerf's reference convergence point for batch 65536 (mean 84.5 epochs to
    75.9%): learning rate 24.699, 31 warmup epochs, momentum 0.951807, weight decay 1e-4, 1,133
    decay steps, batch statistics over 128 images (4 workers of 32). What the point does not say
    is as in `resnet50-32k`. Both thresholds are this project's (`presets.imagenet`), and 256 nodes
    of 8 GPUs are an assumption about the paper's machine.

    Evaluated after epochs 4, 8, ... 92; the decay ends in epoch 91. The submission to MLPerf v0.7
    with this learning rate, warmup and momentum took 87.2 epochs in the mean.

    Never run here.
    """
    return replace(
        resnet50_32k(),
        preset="resnet50-64k",
        nodes=256,
        global_batch_size=65536,
        momentum=0.951807,
        base_learning_rate=24.699,
        decay_epochs=_decay_epochs(1133, warmup_epochs=31, global_batch_size=65536),
        warmup_epochs=31.0,
        weight_decay=1e-4,
        max_epochs=92,
        allreduce="hybrid",
        hybrid_large="torus",
        gradient_dtype="fp16",
        hybrid_threshold=HYBRID_THRESHOLD,
    )


def resnet50_fastai() -> Configuration:
    """ResNet-50, sizes and batches by epoch on 128 GPUs: fast.ai's 18 minutes (2018); open.

    Source: the schedule for 16 machines of 8 V100 that fast.ai, Yaroslav Bulatov and Andrew Shaw
    published (github.com/cybertronai/imagenet18_old, train.py): 93.0% top-5, 37 epochs planned. 128
    pixels with 64 images a GPU, from epoch 6 on 128; 224 pixels with 64 from 14 on, with 224 from
    17 on; 288 pixels with 128 from 29 on, random crops of at least half of the area, validation in
    rectangles. The learning rate rises from 1.88 to 3.76 over 6 epochs, falls back from 11 to 14,
    and then by straight lines, in proportion to the batch. SGD with momentum 0.9, weight decay
    1e-4 without batch normalization, the last gamma of each block 0.

    Differs from the source: images are decoded from the originals, where they took copies resized
    beforehand up to epoch 29; the target is the benchmark's (75.9% top-1) and not 93% top-5, the
    evaluation every fourth epoch and in the batches of training; weight decay is off the biases of
    the last layer, too; the loss scale is dynamic.

    Never run here, nor on 128 GPUs.
    """
    return replace(
        resnet50_256(),
        preset="resnet50-fastai",
        division="open",
        device="cuda",
        nodes=16,
        global_batch_size=128 * 64,
        nesterov=False,
        base_learning_rate=1.88,
        learning_rate_decay="points",
        learning_rate_points=(
            "0:1.88", "6:3.76", "11:3.76", "14:1.88", "17:1.88", "23:0.658", "29:0.0658",
            "29:0.0188", "37:0.00188",
        ),
        decay_epochs=37.0,
        decay_milestones=(),
        max_epochs=37,
        eval_offset=1,
        image_size=128,
        eval_resize=145,
        phases=(
            "6:global_batch_size=16384",
            "14:image_size=224,eval_resize=255,global_batch_size=8192,crop_area=0.087",
            "17:global_batch_size=28672",
            "29:image_size=288,eval_resize=328,global_batch_size=16384,crop_area=0.5,"
            "eval_rectangles=true",
        ),
    )  # fmt: skip


def _decay_epochs(decay_steps: int, *, warmup_epochs: int, global_batch_size: int) -> float:
    """`decay_epochs` of a point that publishes lars_opt_learning_rate_decay_steps.

    MLPerf's reference: decay_steps = train_steps - warmup_steps + 1, and `decay_epochs` is the
    number of train_steps in epochs.
    """
    steps_per_epoch = TRAIN_IMAGES // global_batch_size
    return (decay_steps - 1 + warmup_epochs * steps_per_epoch) / steps_per_epoch
