"""The model with everything that changes while it learns: tables, dense part, optimizers, pipeline."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torchrec.distributed.model_parallel import get_unwrapped_module

from trainer.host_tables import find_short_way, take_over_tables
from trainer.kernels import table_pieces
from trainer.memory import keep_freed_memory
from trainer.model import ModelShape, TrainTask, initialise_dense, make_model
from trainer.optim import (
    DenseUpdate,
    LossScaler,
    Optimizers,
    Schedule,
    fuse_table_optimizer,
    make_dense_optimizer,
)
from trainer.pipeline import InputMaker, PlainPipeline, SparseDistPipeline
from trainer.replicas import ReplicaOptimizer
from trainer.sharding import make_plan, needs_equal_batches, shard
from trainer.state import InitialTables, gather_state
from trainer.touched import TouchTracker

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from torch import Tensor
    from torch.optim import Optimizer

    from trainer.checkpoint.entry import Entry
    from trainer.config import TrainerConfig
    from trainer.data.batch import Batch
    from trainer.distributed import World
    from trainer.pipeline import Pipeline


class Learner:
    """A sharded DLRM, ready to train; the same on any number of ranks, from the same seed."""

    def __init__(
        self,
        config: TrainerConfig,
        shape: ModelShape,
        world: World,
        *,
        total_steps: int,
        draw: bool = True,  # else the tables are to be loaded, or `initial` to be made
    ) -> None:
        self.config = config
        self.shape = shape
        self.world = world
        task = TrainTask(make_model(config, shape, world.device))
        initialise_dense(task.model.dense, config.seed)
        fuse_table_optimizer(task.model.embeddings, config, world.device)
        self.plan = make_plan(task, shape, config, world)
        self.model = shard(task, self.plan, config, world)
        if world.device.type == "cpu":
            take_over_tables(self.model, config)
        self.touched = TouchTracker(self.model) if config.checkpoint_mode != "full" else None
        if world.device.type == "cpu":
            keep_freed_memory()
        self.optimizers = self._make_optimizers(config, total_steps)
        self.make_input = InputMaker(
            tuple(shape.num_embeddings),
            world.size,
            equal=world.size > 1 and needs_equal_batches(self.plan),
        )
        self.pipeline = self._make_pipeline(config.pipeline)
        if draw:
            self.initial.make()

    @cached_property
    def state(self) -> dict[str, Entry]:
        """What this rank holds, by canonical name: live views, good for saving and for loading."""
        return gather_state(self.model, self.optimizers.dense, self.touched)

    @cached_property
    def initial(self) -> InitialTables:
        """The tables before the first step: where a run starts, and checkpoints tell changes from."""
        tables = {
            name.split("/")[1]: entry
            for name, entry in self.state.items()
            if name.startswith("tables/") and name.endswith("/weight")
        }
        states = [
            entry
            for name, entry in self.state.items()
            if name.startswith("tables/") and not name.endswith("/weight")
        ]
        return InitialTables(tables, states, seed=self.config.seed, scale=self.config.embedding_init_scale)

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

    def _make_optimizers(self, config: TrainerConfig, total_steps: int) -> Optimizers:
        dense = self._task.model.dense
        scaler = LossScaler(active=config.precision == "fp16", device=self.world.device)
        if scaler.active:
            dense.loss_scale = scaler.scale
        if config.table_gradient_clip_norm is not None:  # tables average the gradients of all ranks
            dense.table_gradient_limit = config.table_gradient_clip_norm * self.world.size
        replicas = ReplicaOptimizer(
            [piece for piece in table_pieces(self.model) if piece.replicated],
            kind=config.table_optimizer,
            learning_rate=config.learning_rate,
            eps=config.optimizer_eps,
            stamps=self.touched.stamps_of_replicas(self.model) if self.touched else None,
        )
        update = DenseUpdate(make_dense_optimizer(dense.parameters(), config), replicas, scaler, config)
        return Optimizers(self.model, update, config, Schedule(config, total_steps))

    @property
    def dense_optimizer(self) -> Optimizer:
        """The dense part's, without what surrounds its step."""
        return self.optimizers.dense.optimizer

    def _make_pipeline(self, choice: str) -> Pipeline:
        on_gpu = self.world.device.type == "cuda"
        if choice == "sparse_dist" or (choice == "auto" and on_gpu):
            kind: type[SparseDistPipeline | PlainPipeline] = SparseDistPipeline
        else:
            kind = PlainPipeline
            if self.world.size == 1 and not on_gpu:
                self._task.model.look_up = find_short_way(self.model, tuple(self.shape.num_embeddings))
        return kind(
            self.model,
            self.optimizers,
            self.make_input,
            self.world.device,
            read_ahead=self.config.read_ahead,
        )
