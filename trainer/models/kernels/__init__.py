"""Kernels for GPUs, in Triton; each has the same arithmetic in torch operations beside it."""
