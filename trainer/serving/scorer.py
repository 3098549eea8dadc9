"""Scoring batches with a trained model from a checkpoint or an export, on one device and without ranks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from cloudrec_contract.safe_json import record_of
from trainer.base.arguments import make_config
from trainer.base.entry import Entry, TensorShard
from trainer.base.errors import CheckpointError, ConfigError
from trainer.checkpoint.vocabulary import kept_in
from trainer.data.encoding import of_model
from trainer.models.inputs import InputMaker
from trainer.models.model import EmbeddingModel, ModelShape, make_model
from trainer.report.task_metrics import TaskMetrics
from trainer.sharding.state import InitialTables
from trainer.tables.managed import ManagedIds
from trainer.tables.tables import BITS, Quantization, QuantizedTables, quantize_rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from torch import Tensor

    from trainer.base.config import TrainerConfig
    from trainer.checkpoint.load.reading import CommittedCheckpoint
    from trainer.checkpoint.vocabulary import Vocabulary
    from trainer.data.batch import Batch
    from trainer.models.inputs import ModelInput
    from trainer.models.protocol import RetrievalModel
    from trainer.serving.items import ServedItems

_SHARDING = ("sharding_types", "table_constraints", "sharding_plan")


@dataclass(frozen=True, slots=True)
class TrainedModel:
    """A trained model for scoring, as plain tensors."""

    config: TrainerConfig
    shape: ModelShape
    step: int
    quantization: Quantization
    tables: Mapping[str, Tensor]  # float32 [rows, dim], or quantised rows (trainer.tables.tables)
    dense: Mapping[str, Tensor]  # by parameter
    managed: Mapping[str, Tensor]  # the id of each row of tables whose ids are hashes
    vocabulary: Vocabulary | None  # how the training's values got their ids; None: unknown
    items: ServedItems | None = None  # of a retrieval model, if its export has them

    def quantized(self, kind: Quantization) -> TrainedModel:
        """Return the model with quantised tables; CheckpointError if they are quantised in another way."""
        if kind in ("none", self.quantization):
            return self
        if self.quantization != "none":
            raise CheckpointError(
                f"the export's tables are {self.quantization} already and cannot become {kind}; "
                "start from the checkpoint"
            )
        tables = {name: quantize_rows(weight, kind) for name, weight in self.tables.items()}
        return replace(self, quantization=kind, tables=tables)


def scoring_config(values: Mapping[str, Any]) -> TrainerConfig:
    """Return a run's configuration without sharding, which scoring ignores and this version may refuse.

    Code in a checkpoint or an export is not run, since it may come from anyone who may write there.
    """
    kept = {name: value for name, value in values.items() if name not in {*_SHARDING, "model_source"}}
    return make_config(kept | {"compile": "off"})


def read_checkpoint(checkpoint: CommittedCheckpoint) -> TrainedModel:
    """Return the model of a checkpoint, built from the configuration and sizes in it."""
    extra = checkpoint.commit.extra
    config, shape = model_of(extra, checkpoint.place)
    model = make_model(config, shape, torch.device("cpu"))
    dense = {name: parameter.detach() for name, parameter in model.dense.named_parameters()}
    stored = checkpoint.dtypes()
    tables = {
        name: torch.empty(rows, shape.dim(name), dtype=stored.get(f"tables/{name}/weight"))
        for name, rows in shape.num_embeddings.items()
    }
    named = {f"dense/{name}": value for name, value in dense.items()}
    named |= {f"tables/{name}/weight": value for name, value in tables.items()}
    managed = {name: torch.zeros(shape.num_embeddings[name], dtype=torch.int64) for name in shape.managed}
    named |= {f"managed/{name}/ids": value for name, value in managed.items()}
    state = {name: _whole(value) for name, value in named.items()}
    entries = {name: state[f"tables/{name}/weight"] for name in tables}
    initial = InitialTables(entries, (), seed=config.seed, scale=config.embedding_init_scale)
    checkpoint.fill(state, initial)
    tables = {name: weight.float() for name, weight in tables.items()}
    encoding = of_model(extra, checkpoint.place)
    return TrainedModel(
        config=config,
        shape=shape,
        step=checkpoint.commit.step,
        quantization="none",
        tables=tables,
        dense=dense,
        managed=managed,
        vocabulary=None if encoding is None else kept_in(checkpoint.store, encoding),
    )


def check_quantization(shape: ModelShape, kind: Quantization) -> None:
    """Refuse a kind of tables with which a model cannot be scored; ConfigError has the remedy."""
    if kind in BITS and not shape.is_plain:
        raise ConfigError(
            f"quantize is {kind}, but the model shares tables, has some of different widths, or has ids with "
            "weights, which such tables cannot be scored with; take fp16, or leave it out"
        )
    if kind == "int4" and shape.embedding_dim % 2:
        raise ConfigError(f"embedding_dim is {shape.embedding_dim}; int4 needs an even one")


def parse_shape(values: object) -> ModelShape:
    """Return the model's sizes from JSON values; ValueError if they are none of a model."""
    shape = record_of(ModelShape, values, where="model")
    shape.check()
    return shape


def model_of(extra: Mapping[str, Any], place: str) -> tuple[TrainerConfig, ModelShape]:
    """Return the configuration and the sizes of a checkpoint's model.

    Args:
        extra: the run's own state in the checkpoint.
        place: where the checkpoint is, for errors.

    Raises:
        CheckpointError: it has none, or they are malformed.
    """
    if "config" not in extra or "model" not in extra:
        raise CheckpointError(
            f"{place}: has no model configuration: an older version wrote it; continue with the run for a "
            "step, which writes one that does"
        )
    try:
        return scoring_config(extra["config"]), parse_shape(extra["model"])
    except (ValueError, AttributeError) as error:
        raise CheckpointError(
            f"{place}: its model configuration cannot be read: {error}; use the version of cloudrec that "
            "wrote it"
        ) from error


class Scorer:
    """Scores batches on one device."""

    def __init__(self, trained: TrainedModel, device: torch.device) -> None:
        self.device = device
        self.tasks = trained.shape.tasks
        self.model = make_model(trained.config, trained.shape, device)
        copy_dense(self.model, trained.dense)
        self.model.embeddings = _make_tables(self.model, trained, device)
        self.model.eval()
        self.make_input = InputMaker(trained.shape.features, world_size=1, sequences=trained.shape.places)
        shape = trained.shape
        self.managed = ManagedIds(shape.managed, shape.num_embeddings, shape.tables_of_keys)
        for name, table in self.managed.tables.items():
            _copy(f"managed/{name}", table.ids, trained.managed.get(name))
        self.managed.reindex()

    @torch.no_grad()
    def score(self, batches: Iterable[Batch]) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield logits and labels [B] or [B, tasks], batch by batch, on the CPU."""
        for batch in batches:
            made = self._input(batch)
            outputs = self.model(made.dense, made.sparse)
            yield self.model.dense.kind.scores(outputs).cpu(), batch.labels

    def _input(self, batch: Batch) -> ModelInput:
        made = self.make_input(batch)
        if self.managed.tables:
            made = replace(made, sparse=self.managed.apply(made.sparse))
        return made.to(self.device)

    @property
    def retrieval(self) -> RetrievalModel | None:
        """The model, if it is for retrieval."""
        return self.model.dense.kind.retrieval

    @torch.no_grad()
    def towers(
        self, model: RetrievalModel, batches: Iterable[Batch]
    ) -> Iterator[tuple[Batch, Tensor, Tensor]]:
        """Yield each batch with its vectors of users and of items, on the CPU; `model` is `retrieval`."""
        for batch in batches:
            made = self._input(batch)
            users, items = model.towers(self.model(made.dense, made.sparse))
            yield batch, users.cpu(), items.cpu()

    def evaluate(self, batches: Iterable[Batch]) -> tuple[Tensor, dict[str, Any]]:
        """Return all logits in the order of the batches, and the same metrics as a run's evaluation."""
        metrics = TaskMetrics(self.tasks)
        logits = [torch.empty(0, len(self.tasks)) if self.tasks else torch.empty(0)]
        for scores, labels in self.score(batches):
            metrics.update(scores, labels)
            logits.append(scores)
        return torch.cat(logits), metrics.compute()


def _make_tables(model: EmbeddingModel, trained: TrainedModel, device: torch.device) -> torch.nn.Module:
    if trained.quantization in BITS:
        return QuantizedTables(trained.tables, dim=trained.shape.embedding_dim, kind=trained.quantization)
    for name, weight in trained.tables.items():
        model.embeddings.embedding_bags[name].weight = torch.nn.Parameter(weight.to(device).float())
    return model.embeddings


@torch.no_grad()
def copy_dense(model: EmbeddingModel, dense: Mapping[str, Tensor]) -> None:
    """Copy the weights behind the tables into a model.

    Raises:
        CheckpointError: an array is missing, or has another shape than the model's.
    """
    for name, parameter in model.dense.named_parameters():
        _copy(f"dense/{name}", parameter, dense.get(name))


def _copy(name: str, into: Tensor, found: Tensor | None) -> None:
    if found is None or found.shape != into.shape:
        has = "missing" if found is None else str(tuple(found.shape))
        raise CheckpointError(
            f"the model's array {name} is {has}, not {tuple(into.shape)}; export or publish the model again"
        )
    into.copy_(found)


def _whole(tensor: Tensor) -> Entry:
    shape = tuple(tensor.shape)
    return Entry(shape=shape, shards=(TensorShard(tensor, (0,) * len(shape)),), replicated=True)
