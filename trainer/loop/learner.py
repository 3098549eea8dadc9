"""The model with all its mutable parts: tables, dense part, optimizers, pipeline."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torchrec.distributed.model_parallel import get_unwrapped_module

from trainer.base.errors import ConfigError
from trainer.base.memory import keep_freed_memory
from trainer.loop.paths import ComputePaths
from trainer.loop.pipeline import WAYS, OverlappedPipeline, PlainPipeline
from trainer.loop.scored_feed import ScoredFeed
from trainer.models.inputs import InputMaker
from trainer.models.model import DenseArch, ModelShape, TrainTask, initialise_dense, make_model
from trainer.sharding.planfile import CACHING, MODULE, to_document
from trainer.sharding.sharding import make_plan, needs_equal_batches, shard
from trainer.sharding.state import InitialTables, gather_state
from trainer.sharding.topology import this_world
from trainer.tables.direct import find_direct_way
from trainer.tables.host_tables import find_short_way, take_over_tables
from trainer.tables.kernels import empty_caches, table_pieces, write_back_caches
from trainer.tables.managed import ManagedIds, ManagedTraining
from trainer.tables.optim import (
    DenseUpdate,
    LossScaler,
    Optimizers,
    Schedule,
    fuse_table_optimizer,
    make_dense_optimizer,
)
from trainer.tables.replicas import ReplicaOptimizer
from trainer.tables.touched import TouchTracker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from torch import Tensor
    from torch.optim import Optimizer
    from torchrec.distributed.types import ShardingPlan
    from torchrec.sparse.jagged_tensor import KeyedJaggedTensor, KeyedTensor

    from trainer.base.config import TrainerConfig
    from trainer.base.distributed import World
    from trainer.base.entry import State
    from trainer.data.batch import Batch
    from trainer.loop.pipeline import Pipeline
    from trainer.models.inputs import ModelInput
    from trainer.models.kinds import ModelKind


class Learner:
    """A sharded model, ready to train; the same seed gives the same model on any number of ranks."""

    def __init__(
        self,
        config: TrainerConfig,
        shape: ModelShape,
        world: World,
        *,
        total_steps: int,
        draw: bool = True,  # False if the tables will be loaded, or initialised later
        saved_plan: Mapping[str, Any] | None = None,  # a checkpoint's plan, to be used again
    ) -> None:
        self.config = config
        self.shape = shape
        self.world = world
        task = TrainTask(make_model(config, shape, world.device))
        initialise_dense(task.model.dense, config.seed)
        if task.batch_loss is not None:
            task.batch_loss.group = world.group if world.size > 1 else None
        fuse_table_optimizer(task.model.embeddings, config, world.device, ranks=world.size)
        self.plan = make_plan(task, shape, config, world, saved=saved_plan)
        _check_managed(self.plan, shape)
        self.model = shard(task, self.plan, config, world)
        if world.device.type == "cpu":
            take_over_tables(self.model, config, ranks=world.size)
        self.managed = ManagedIds(
            shape.managed,
            shape.num_embeddings,
            shape.tables_of_keys,
            eviction=config.managed_eviction,
        )
        # On a GPU, full checkpoints need the stamps, too: see trainer.checkpoint.save.table_stream.
        is_stamped = config.checkpoint_mode != "full" or world.device.type != "cpu"
        self.touched = TouchTracker(self.model) if is_stamped else None
        if self.touched is not None:
            self.managed.track(self.touched.intervals)
        if world.device.type == "cpu":
            keep_freed_memory()
        self.optimizers = self._make_optimizers(config, total_steps)
        self.make_input = InputMaker(
            shape.features,
            world.size,
            equal=world.size > 1 and needs_equal_batches(self.plan),
            sequences=shape.places,
            pinned=world.device.type == "cuda",
        )
        self.pipeline = self._make_pipeline(config.pipeline)
        is_alone_on_gpu = world.device.type == "cuda" and world.size == 1
        if is_alone_on_gpu and config.cuda_graphs == "auto" and isinstance(task.model.dense, DenseArch):
            task.model.dense.capture(config.batch_size)
        if draw:
            self.draw_tables()

    @property
    def state(self) -> State:
        """This rank's tensors by canonical name, for reading: live views, up to date.

        All code that reads values must use this property: it first writes back the rows in a GPU's cache.
        """
        write_back_caches(self.model)
        return self.entries

    @contextmanager
    def filling(self) -> Iterator[State]:
        """Provide this rank's tensors for writing; on exit, GPU caches of older values are emptied.

        Rows that are not written keep their values: what only a cache has of them is written back first.
        """
        self.pipeline.release()
        write_back_caches(self.model)
        try:
            yield self.entries
        finally:
            empty_caches(self.model)
            self.managed.reindex()

    def draw_tables(self) -> None:
        """Set the tables to their initial state."""
        with self.filling():
            self.initial.make()

    @cached_property
    def plan_document(self) -> dict[str, Any]:
        """The sharding plan in JSON types; see trainer.sharding.planfile."""
        return to_document(self.plan, self.shape, this_world(self.config, self.world))

    @cached_property
    def entries(self) -> State:
        """The views of `state` for names, shapes and stamps only: values may be older than a GPU's cache."""
        return {
            **gather_state(self.model, self.optimizers.dense, self.touched),
            **self.managed.entries(),
        }

    @cached_property
    def initial(self) -> InitialTables:
        """The tables before the first step: the start of a run, and the base of differential checkpoints."""
        tables = {
            name.split("/")[1]: entry
            for name, entry in self.entries.items()
            if name.startswith("tables/") and name.endswith("/weight")
        }
        states = [
            entry
            for name, entry in self.entries.items()
            if name.startswith(("tables/", "managed/")) and not name.endswith("/weight")
        ]
        return InitialTables(tables, states, seed=self.config.seed, scale=self.config.embedding_init_scale)

    @torch.no_grad()
    def score(self, batches: Iterable[Batch]) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield logits and labels [B] of this rank's share, batch by batch, on the device; collective.

        Batches are read ahead. On a GPU nothing waits for the scores.
        """
        for batch, made, outputs in self._scored(batches):
            yield self.kind.scores(outputs)[: len(batch)], made.labels[: len(batch)]

    @torch.no_grad()
    def outputs(self, batches: Iterable[Batch]) -> Iterator[tuple[Batch, Tensor]]:
        """Yield this rank's share of each batch, and what the model's forward returns for it; collective."""
        for batch, _, outputs in self._scored(batches):
            yield batch, outputs[: len(batch)]

    def _scored(self, batches: Iterable[Batch]) -> Iterator[tuple[Batch, ModelInput, Tensor]]:
        self.pipeline.release()
        self.optimizers.count_again()
        self.model.eval()
        device, ahead = self.world.device, self.config.read_ahead
        with ScoredFeed(batches, self._scored_input, device, ahead=ahead) as feed:
            for batch, made in feed:
                yield batch, made, self._task.model(made.dense, made.sparse)

    def _scored_input(self, batch: Batch) -> ModelInput:
        made = self.make_input(batch)
        if self.managed.tables:
            made = replace(made, sparse=self.managed.apply(made.sparse))
        return made

    @property
    def kind(self) -> ModelKind:
        """What the model's outputs are."""
        return self._task.model.dense.kind

    @property
    def paths(self) -> ComputePaths:
        """The ways that the steps so far took."""
        dense = self._task.model.dense
        return ComputePaths(
            look_up="torchrec" if self._task.model.look_up is None else "direct",
            pipeline=self.pipeline.name,
            dense=dense.way if isinstance(dense, DenseArch) else "eager",
        )

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
            eps=config.table_eps(self.world.size),
            stamps=self.touched.stamps_of_replicas(self.model) if self.touched else None,
        )
        update = DenseUpdate(make_dense_optimizer(dense.parameters(), config), replicas, scaler, config)
        return Optimizers(self.model, update, config, Schedule(config, total_steps))

    @property
    def dense_optimizer(self) -> Optimizer:
        """The dense part's torch optimizer, without loss scaling, clipping and accumulation."""
        return self.optimizers.dense.optimizer

    def _make_pipeline(self, choice: str) -> Pipeline:
        on_gpu = self.world.device.type == "cuda"
        is_managed = bool(self.managed.tables)
        self._check_pipeline(choice)
        # One GPU exchanges nothing with others, so it needs none of the pipeline's waits for sizes.
        overlaps = choice == "auto" and on_gpu and self.world.size > 1 and not is_managed
        if choice in WAYS or overlaps:
            kind: type[OverlappedPipeline | PlainPipeline] = OverlappedPipeline
        else:
            kind = PlainPipeline
            self._task.model.look_up = self._find_way()
        made = kind(
            self.model,
            self.optimizers,
            self.make_input,
            self.world.device,
            read_ahead=self.config.read_ahead,
        )
        if isinstance(made, OverlappedPipeline):
            made.way = WAYS.get(choice, made.way)
        if is_managed:
            made.managed = ManagedTraining(
                self.managed,
                self.world,
                self.entries,
                seed=self.config.seed,
                scale=self.config.embedding_init_scale,
            )
        return made

    def _check_pipeline(self, choice: str) -> None:
        if self.managed.tables and choice in WAYS:
            raise ConfigError(
                f"pipeline is {choice}, which looks up ids before the step before has ended, but a feature "
                "has encoding managed_collision, whose rows each step may change; take auto or plain"
            )
        if choice in WAYS and WAYS[choice].restarts and self.world.device.type != "cuda":
            raise ConfigError(
                f"pipeline is {choice}, which torchrec has for GPUs only; on CPUs take auto, plain or "
                "sparse_dist"
            )
        kernels = {parameter.compute_kernel for parameter in self.plan.plan[MODULE].values()}
        if choice == "prefetch" and CACHING not in kernels:
            raise ConfigError(
                "pipeline is prefetch, which fills the caches of tables in host memory, but no table has "
                f"the compute kernel {CACHING}; allow it in compute_kernels, or take auto"
            )

    def _find_way(self) -> Callable[[KeyedJaggedTensor], KeyedTensor] | None:
        """Return the look-up of a world of one, without torchrec's exchanges, if the tables allow it."""
        if self.world.size > 1:
            return None
        if self.world.device.type == "cpu":
            return find_short_way(self.model, self.shape.features)
        return find_direct_way(self.model, self.make_input.features)


def _check_managed(plan: ShardingPlan, shape: ModelShape) -> None:
    """Refuse a GPU's cache for tables whose rows change in memory while the cache has older ones."""
    for table, parameter in plan.plan[MODULE].items():
        if table in shape.managed and parameter.compute_kernel == CACHING:
            raise ConfigError(
                f"the table {table} has encoding managed_collision and the compute kernel {CACHING}; give it "
                "fused or fused_uvm by table_constraints"
            )
