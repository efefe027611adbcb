"""AlexNet with batch normalization on ImageNet: NVCaffe's recipes, and Jia et al.'s batch.

NVCaffe's files are those of models/alexnet_bn in the repository borisgin/nvcaffe.
"""

from __future__ import annotations

from dataclasses import replace

from fourmin.recipe.configuration import Configuration
from fourmin.recipe.presets.imagenet import FUSION_THRESHOLD, HYBRID_THRESHOLD


def alexnet_512() -> Configuration:
    """AlexNet with batch normalization, batch 512 on 8 GPUs: NVCaffe's small-batch recipe.

    Source: NVCaffe's solver.prototxt: SGD, momentum 0.9, learning rate 0.01, polynomial decay of
    power 2 to 0 over 60 epochs without warmup, weight decay 5e-4. From train_val2.prototxt: crop
    227, the mean subtracted and the rest divided by 256, moving average 0.9 and epsilon 1e-4 in
    batch normalization.

    Differs from the source: its network has batch normalization before each ReLU, ours (see
    `fourmin.training.models.alexnet`) where NVCaffe's large-batch recipes and Jia et al. 2018
    have it; no weight decay on biases and batch normalization (Jia et al.); random resized crops
    instead of random crops of a 256x256 image; the mean of each channel, not a mean image; He's
    initialization.
    Chosen here: evaluation after epochs 4, 8, ... 60.

    Never run here on ImageNet, and not known to reach the target: no accuracy was published with
    these files. What was run is practice on a few photographs.
    """
    return Configuration(
        preset="alexnet-512",
        benchmark="alexnet",
        model="alexnet",
        procs_per_node=8,
        global_batch_size=512,
        optimizer="sgd",
        base_learning_rate=0.01,
        end_learning_rate=0.0,
        decay_epochs=60.0,
        weight_decay=5e-4,
        max_epochs=60,
        bn_epsilon=1e-4,
        collective_timeout_seconds=300.0,
        fusion_threshold=FUSION_THRESHOLD,
        loader_threads=8,
        image_size=227,
        eval_resize=256,
        pixel_mean=(123.675, 116.28, 103.53),
        pixel_std=(256.0, 256.0, 256.0),
    )


def alexnet_32k() -> Configuration:
    """AlexNet with batch normalization, batch 32,768 on 8 GPUs: NVCaffe's LARC recipe.

    Source: NVCaffe's solver_32k.prototxt and train_val2.prototxt: learning rate 32, a quadratic
    ramp from 1 over the first 10 of 100 epochs, polynomial decay of power 2 to 0, momentum 0.9,
    weight decay 5e-4, LARC with eta 0.001 in clip mode (min(local rate, learning rate), which
    solver_8K.prototxt names), gradients scaled by 1000 (here 1,024, a power of two, to begin
    with), 4 accumulation steps.

    Differs from the source, beside what `alexnet-512` says:
    - NVCaffe counts its decay from the first iteration, so that the rate falls from 32 to 25.9
      where the ramp ends; here the decay begins there at 32 and is (100/90)^2 = 1.23 times
      NVCaffe's rate all the way down;
    - an epoch has 39 steps (NVCaffe: 40 iterations), so the ramp takes 390 and the run 3,900;
    - weight decay is part of the local rate's denominator (the LARS paper's form);
    - biases and batch normalization are not adapted: they take the learning rate itself.
    Chosen here: one node of 8 GPUs with 1,024 images in each pass, evaluation offset 0.

    Never run here on ImageNet.
    """
    return replace(
        alexnet_512(),
        preset="alexnet-32k",
        global_batch_size=32768,
        gradient_accumulation_steps=4,
        optimizer="lars",
        lars_clip=True,
        base_learning_rate=32.0,
        decay_epochs=100.0,
        warmup_epochs=10.0,
        warmup_start_learning_rate=1.0,
        warmup_shape="quadratic",
        max_epochs=100,
        loss_scale=1024.0,
    )


def alexnet_64k() -> Configuration:
    """AlexNet with batch normalization, batch 65,536 on 1,024 GPUs: the batch of Jia et al. 2018.

    From Jia et al. 2018 (arXiv 1807.11205): the batch, 64 images on each of 1,024 GPUs, 95
    epochs (58.7% top-1), FP16 with FP32 master weights, gradients sent in FP16, no weight decay on
    biases and batch normalization, batch normalization after pool5, tensor fusion, and the hybrid
    all-reduce with groups of one node. The paper publishes no learning rate, warmup, momentum or
    weight decay, and neither the fusion nor the hybrid threshold.

    Differs from the source: large tensors take the torus, as in `resnet50-64k`.

    So this extends NVCaffe's 32K recipe, `alexnet-32k`, to twice its batch, unchanged but for
    the length: learning rate 32, a quadratic ramp over 10 epochs, decay over all 95. Nobody is
    known to have published these settings at this batch. Both thresholds are this project's
    (`presets.imagenet`), and 128 nodes of 8 GPUs are an assumption about the paper's machine.
    Evaluated after epochs 3, 7, ... 95, so that the paper's last epoch is one of them.

    Never run here.
    """
    return replace(
        alexnet_32k(),
        preset="alexnet-64k",
        device="cuda",
        nodes=128,
        global_batch_size=65536,
        gradient_accumulation_steps=1,
        decay_epochs=95.0,
        max_epochs=95,
        eval_offset=3,
        allreduce="hybrid",
        hybrid_large="torus",
        gradient_dtype="fp16",
        hybrid_threshold=HYBRID_THRESHOLD,
    )
