"""Triton kernels of the fast step; importing a module of this package needs Triton."""
