"""Embedding tables: kernels, optimizers and quantised tables."""
