"""What the ImageNet presets share."""

from __future__ import annotations

TRAIN_IMAGES = 1_281_167
"""Training images of ILSVRC-2012, which turn published steps into epochs."""

FUSION_THRESHOLD = 32 << 20
"""Bytes of FP32 gradients that fill a bucket of the ImageNet presets.

ResNet-50's 102 MB make three buckets and a tail. Each bucket costs a pause in the backward pass
and rounds on the network, whatever its size (measured on two GPUs: benchmarks/README.md).
"""

HYBRID_THRESHOLD = 1 << 20
"""Bytes from which the hybrid all-reduce of the presets after Jia et al. 2018 takes the torus.

The paper switches by the size of a tensor and does not publish its eta; here the size is that of
a fused buffer as it is sent, since that is what latency and bandwidth meet. Full buffers (13 MiB or
more in FP16) are a matter of bandwidth, the tail that is left for last (0.5 MiB) is one of latency.
"""
