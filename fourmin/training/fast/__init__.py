"""The fast training step: fused kernels, persistent half-precision weights, CUDA graphs."""
