"""The work that throughput is measured on: the same for every candidate."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Sizes of the model and of the measurement.

    `python -m trainer` makes `settling_steps` before those that are timed: meanwhile a child process writes
    its first checkpoint, on one of the cores.
    """

    num_dense: int = 13
    tables: int = 26
    rows: int = 100_000
    embedding_dim: int = 64
    batch_size: int = 1024
    dense_arch_layer_sizes: tuple[int, ...] = (512, 256, 64)
    over_arch_layer_sizes: tuple[int, ...] = (512, 256, 1)
    learning_rate: float = 0.02
    batches_in_memory: int = 10
    warmup_steps: int = 20
    timed_steps: int = 120
    settling_steps: int = 300
