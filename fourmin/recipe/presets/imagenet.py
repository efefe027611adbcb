"""What the ImageNet presets share."""

from __future__ import annotations

TRAIN_IMAGES = 1_281_167
"""Training images of ILSVRC-2012, which turn published steps into epochs."""

FUSION_THRESHOLD = 32 << 20
"""Bytes of FP32 gradients that fill a bucket of the ImageNet presets.

ResNet-50's 102 MB make three buckets and a tail. Each bucket costs a pause in the backward pass
and rounds on the network, whatever its size (measured on two GPUs: benchmarks/README.md).
"""

HYBRID_THRESHOLD = 64 << 20
"""Bytes from which the hybrid all-reduce of the presets after Jia et al. 2018 takes a ring.

The paper switches by the size of a tensor and does not publish its eta; here the size is that of
a fused buffer, since that is what is sent. Below the fusion threshold it would be no switch: every
full buffer would take the ring, 4,094 rounds on 2,048 workers. With this the buffers of
convolutions (at most 32 MiB and one more layer) go through the hierarchy, and those of AlexNet's
two large layers (80 MiB, with the last layer, and 144 MiB) around the ring.
"""
