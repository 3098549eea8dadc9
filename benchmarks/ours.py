"""The trainer's own step, measured: the learner and the pipeline that a run uses, on batches in memory."""

from __future__ import annotations

import time
from contextlib import contextmanager
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any

from trainer.base.arguments import make_config
from trainer.base.distributed import join_world
from trainer.data.formats.synthetic import SyntheticStream
from trainer.loop.learner import Learner
from trainer.loop.setup import set_numerics
from trainer.models.model import ModelShape

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.work import Work


def measure(work: Work, *, precision: str, threads: int = 1) -> list[float]:
    """Seconds of each timed step."""
    steps = work.warmup_steps + work.timed_steps
    with open_learner(work, precision=precision, threads=threads) as (learner, stream):
        ends = [time.perf_counter() for _ in learner.pipeline.steps(islice(stream, steps), 0)]
    return [after - before for before, after in pairwise(ends)][work.warmup_steps - 1 :]


@contextmanager
def open_learner(
    work: Work,
    *,
    precision: str = "fp32",
    threads: int = 1,
    device: str = "cpu",
    **settings: Any,  # noqa: ANN401 - the trainer's
) -> Iterator[tuple[Learner, SyntheticStream]]:
    """A learner of this work, and batches for it; `settings` are others of the trainer."""
    config = make_config(
        {
            "precision": precision,
            "threads": threads,
            "batch_size": work.batch_size,
            "embedding_dim": work.embedding_dim,
            "dense_arch_layer_sizes": work.dense_arch_layer_sizes,
            "over_arch_layer_sizes": work.over_arch_layer_sizes,
            "learning_rate": work.learning_rate,
            "dense_learning_rate": work.learning_rate,
            "dense_optimizer": "adagrad",
            "lr_decay": "none",
            "device": device,
            **settings,
        }
    )
    shape = ModelShape(
        num_dense=work.num_dense,
        num_embeddings={f"C{index + 1}": work.rows for index in range(work.tables)},
        embedding_dim=work.embedding_dim,
        dense_arch_layer_sizes=work.dense_arch_layer_sizes,
        over_arch_layer_sizes=work.over_arch_layer_sizes,
    )
    stream = SyntheticStream(
        work.num_dense,
        tuple(shape.num_embeddings.values()),
        work.batch_size,
        seed=0,
        num_batches_in_memory=work.batches_in_memory,
    )
    with join_world(device) as world:
        set_numerics(config, world)
        yield Learner(config, shape, world, total_steps=work.warmup_steps + work.timed_steps), stream
