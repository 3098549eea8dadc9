"""The model with everything that changes while it learns: tables, dense part, optimizers, pipeline."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torchrec.distributed.model_parallel import get_unwrapped_module

from trainer.model import ModelShape, TrainTask, initialise_dense, make_model
from trainer.optim import Optimizers, Schedule, fuse_table_optimizer, make_dense_optimizer
from trainer.pipeline import InputMaker, PlainPipeline, SparseDistPipeline
from trainer.sharding import make_plan, shard
from trainer.state import gather_state, initialise_tables

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from torch import Tensor

    from trainer.checkpoint.entry import Entry
    from trainer.config import TrainerConfig
    from trainer.data.batch import Batch
    from trainer.distributed import World
    from trainer.pipeline import Pipeline


class Learner:
    """A sharded DLRM, ready to train; the same on any number of ranks, from the same seed."""

    def __init__(self, config: TrainerConfig, shape: ModelShape, world: World, *, total_steps: int) -> None:
        self.shape = shape
        self.world = world
        task = TrainTask(make_model(config, shape, world.device))
        initialise_dense(task.model.dense, config.seed)
        fuse_table_optimizer(task.model.embeddings, config)
        self.plan = make_plan(task, config, world)
        self.model = shard(task, self.plan, config, world)
        initialise_tables(self.model, seed=config.seed, scale=config.embedding_init_scale)
        self.dense_optimizer = make_dense_optimizer(self._task.model.dense.parameters(), config)
        schedule = Schedule(config, total_steps)
        self.optimizers = Optimizers(self.model, self.dense_optimizer, config, schedule)
        self.make_input = InputMaker(tuple(shape.num_embeddings), world.size)
        self.pipeline = self._make_pipeline(config.pipeline)

    @cached_property
    def state(self) -> dict[str, Entry]:
        """What this rank holds, by canonical name: live views, good for saving and for loading."""
        return gather_state(self.model, self.dense_optimizer)

    @torch.no_grad()
    def score(self, batches: Iterable[Batch]) -> Iterator[tuple[Tensor, Tensor]]:
        """Logits and labels [B] of this rank's share, batch by batch; all ranks must call it alike."""
        self.pipeline.release()
        self.model.eval()
        for batch in batches:
            made = self.make_input(batch).to(self.world.device)
            _, (_, logits) = self._task(made)
            yield logits[: len(batch)], made.labels[: len(batch)]

    @property
    def _task(self) -> TrainTask:
        return get_unwrapped_module(self.model)

    def _make_pipeline(self, choice: str) -> Pipeline:
        on_gpu = self.world.device.type == "cuda"
        if choice == "sparse_dist" or (choice == "auto" and on_gpu):
            return SparseDistPipeline(self.model, self.optimizers, self.make_input, self.world.device)
        return PlainPipeline(self.model, self.optimizers, self.make_input, self.world.device)
