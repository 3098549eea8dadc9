"""A model with its tables: the dense part of the DLRM (bottom MLP, interaction, top MLP), or another model.

Other models follow trainer.models.protocol. The embedding collection is created on the meta device and
sharded later (trainer.sharding.sharding). The dense part is one module, so that torchrec's pipeline has two
stages: the tables, then everything else.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from torchrec.modules.embedding_configs import DataType, EmbeddingBagConfig
from torchrec.modules.embedding_modules import EmbeddingBagCollection
from torchrec.sparse.jagged_tensor import KeyedTensor

from trainer.base.config import DLRM_MODELS
from trainer.models.compiled import CompiledDense
from trainer.models.dense_ops import CrossNet, FusedMLP, interaction, pair_indices
from trainer.models.gradients import ClippedGradient, ScaledGradient
from trainer.models.head import ModelHead, make_head
from trainer.models.inputs import keys_of
from trainer.models.kernels.graph import DenseGraph
from trainer.models.kernels.pairs import has_triton
from trainer.models.kinds import RANKING
from trainer.models.losses.batch_loss import BatchLoss
from trainer.models.positions import PositionPooling
from trainer.models.protocol import ModelInputs, SequenceSize
from trainer.models.registry import find_factory

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

    from trainer.base.config import Choice, TrainerConfig
    from trainer.models.dense_ops import PairIndices
    from trainer.models.inputs import ModelInput

DENSE_TYPES = {
    "fp32": torch.float32,
    "tf32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
}
TABLE_TYPES = {"fp32": DataType.FP32, "fp16": DataType.FP16}


# The largest sizes of a model that is read from a file.
_MOST_ROWS, _WIDEST, _MOST_PLACES, _MOST_LAYERS = 2**31 - 1, 2**16, 2**16, 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """Sizes of a model.

    Attributes:
        num_embeddings: the rows of each table.
        embedding_dim: the width of every table that `dims` does not name.
        hotness: ids per sample of each feature, if known; for the planner.
        feature_tables: the table of each feature; empty if each has its own, of its name.
        dims: the width of each table that has another.
        mean_pooled: the features whose vectors are averaged; those of the others are summed.
        weighted: the features whose ids have weights, by which their vectors are multiplied. A mean is
            divided by their sum.
        sequences: the most ids of each sequence that the model reads in order.
        positions: the most ids of each sequence whose vectors are pooled by position.
        item: the features of a sample's item.
        managed: the tables whose ids are hashes that get their rows in the training.
        dense_names: the dense features, for models of the protocol.
        model: `--model`.
        tasks: the names of several labels, for models of the protocol; empty for one.
        task_weights: the factor on each task's loss.
    """

    num_dense: int
    num_embeddings: dict[str, int]
    embedding_dim: int
    dense_arch_layer_sizes: tuple[int, ...]
    over_arch_layer_sizes: tuple[int, ...]
    interaction: str = "dot"
    dcn_num_layers: int = 3
    dcn_low_rank_dim: int = 512
    hotness: tuple[int, ...] = ()
    feature_tables: dict[str, str] = field(default_factory=dict)
    dims: dict[str, int] = field(default_factory=dict)
    mean_pooled: tuple[str, ...] = ()
    weighted: tuple[str, ...] = ()
    sequences: dict[str, int] = field(default_factory=dict)
    positions: dict[str, int] = field(default_factory=dict)
    item: tuple[str, ...] = ()
    managed: tuple[str, ...] = ()
    dense_names: tuple[str, ...] = ()
    model: str = "dlrm"
    tasks: tuple[str, ...] = ()
    task_weights: tuple[float, ...] = ()

    def check(self) -> None:
        """Raise ValueError for sizes that no model has, as those of a file that was edited by hand."""
        widths = {"embedding_dim": self.embedding_dim, **self.dims}
        layers = {"dense_arch": self.dense_arch_layer_sizes, "over_arch": self.over_arch_layer_sizes}
        counts = {
            **{f"the rows of table {name}": (rows, _MOST_ROWS) for name, rows in self.num_embeddings.items()},
            **{f"the width {name}": (width, _WIDEST) for name, width in widths.items()},
            **{
                f"layer {number} of {name}": (size, _WIDEST)
                for name, sizes in layers.items()
                for number, size in enumerate(sizes)
            },
            **{f"the length of {name}": (most, _MOST_PLACES) for name, most in self.places.items()},
            "dcn_num_layers": (self.dcn_num_layers, _MOST_LAYERS),
            "dcn_low_rank_dim": (self.dcn_low_rank_dim, _WIDEST),
        }
        for what, (value, most) in counts.items():
            if not 0 < value <= most:
                raise ValueError(f"{what} is {value}; it must be from 1 to {most:,}")
        if not 0 <= self.num_dense <= _WIDEST:
            raise ValueError(f"num_dense is {self.num_dense}; it must be from 0 to {_WIDEST:,}")
        if unknown := sorted({*self.feature_tables.values(), *self.dims} - self.num_embeddings.keys()):
            raise ValueError(f"{unknown[0]!r} is no table of the model")
        named = {*self.places, *self.mean_pooled, *self.weighted, *self.item}
        if unknown := sorted(named - set(self.features)):
            raise ValueError(f"{unknown[0]!r} is no sparse feature of the model")
        if not all(layers.values()) or not self.num_embeddings:
            raise ValueError("it has no layers, or no tables")
        ends = (self.dense_arch_layer_sizes[-1], self.over_arch_layer_sizes[-1])
        if self.model in DLRM_MODELS and ends != (self.embedding_dim, 1):
            raise ValueError(
                f"its MLPs end with {ends[0]} and {ends[1]}, not with {self.embedding_dim} and 1"
            )

    @property
    def tables_of_features(self) -> dict[str, str]:
        """The table of each feature, in the order of the features."""
        return self.feature_tables or {name: name for name in self.num_embeddings}

    @property
    def features(self) -> tuple[str, ...]:
        """The sparse features, in the order of the data."""
        return tuple(self.tables_of_features)

    @property
    def places(self) -> dict[str, int]:
        """The most ids of each feature of which torchrec gets every place as a separate key."""
        return {**self.sequences, **self.positions}

    @property
    def tables_of_keys(self) -> dict[str, str]:
        """The table of each of torchrec's keys: each place of a sequence is one."""
        return {
            key: table
            for feature, table in self.tables_of_features.items()
            for key in keys_of([feature], self.places)
        }

    @property
    def rows_of_features(self) -> dict[str, int]:
        """The rows of each feature's table."""
        return {name: self.num_embeddings[table] for name, table in self.tables_of_features.items()}

    @property
    def is_plain(self) -> bool:
        """Whether each feature has its own table, all have one width, and no weights or places matter."""
        return not (self.feature_tables or self.dims or self.places or self.weighted)

    def dim(self, table: str) -> int:
        """Return the width of a table."""
        return self.dims.get(table, self.embedding_dim)

    @property
    def interaction_size(self) -> int:
        """Width of the top MLP's input: crossed vectors, or the bottom MLP's output and one number a pair."""
        if self.interaction == "dcn":
            return self.embedding_dim * (len(self.features) + 1)
        return self.embedding_dim + math.comb(len(self.features) + 1, 2)


class DenseArch(nn.Module):
    """Everything behind the tables: (dense [B, num_dense], embeddings by feature) -> logits [B]."""

    def __init__(
        self,
        shape: ModelShape,
        *,
        dtype: torch.dtype,
        device: torch.device,
        recompute: bool = False,
        compiled: Choice = "off",
    ) -> None:
        super().__init__()
        self.kind = RANKING
        self.features = shape.features
        self.embedding_dim = shape.embedding_dim
        self.dtype = dtype
        self.recompute = recompute
        self.bottom = FusedMLP(shape.num_dense, shape.dense_arch_layer_sizes, relu_last=True, device=device)
        self.crosses: CrossNet | None = None
        if shape.interaction == "dcn":
            self.crosses = CrossNet(
                shape.interaction_size, shape.dcn_num_layers, shape.dcn_low_rank_dim, device=device
            )
        self.top = FusedMLP(
            shape.interaction_size, shape.over_arch_layer_sizes, relu_last=False, device=device
        )
        self.loss_scale: Tensor | None = None  # 0-d, for fp16: the factor on gradients within this module
        self.table_gradient_limit: float | None = None  # on the gradient of each vector from a table
        self.positions = PositionPooling(shape.positions, device) if shape.positions else None
        self._pairs: dict[tuple[str, ...], PairIndices] = {}
        self._compiled: CompiledDense | None = None
        if compiled != "off":
            self._compiled = CompiledDense(
                self.bottom, self.crosses, self.top, dtype, required=compiled == "on"
            )
        self.graph: DenseGraph | None = None  # see `capture`

    @property
    def way(self) -> str:
        """How the steps so far ran: eager or compiled, with `+cuda_graph` where graphs are replayed."""
        way = "compiled" if self._compiled is not None and self._compiled.is_used else "eager"
        return f"{way}+cuda_graph" if self.graph is not None and self.graph.is_captured else way

    def capture(self, batch_size: int) -> None:
        """Run the batches of this size as CUDA graphs from now on."""
        if not self.recompute:  # which saves and restores generators' states on the host
            self.graph = DenseGraph(self._compute, list(self.parameters()), batch_size)

    @property
    def losses(self) -> None:
        """The loss of each sample: binary cross-entropy."""

    def forward(self, dense: Tensor, embedded: KeyedTensor) -> Tensor:
        """Return logits [B], fp32."""
        keys = tuple(embedded.keys())
        tables = embedded.values().view(-1, len(keys), self.embedding_dim)
        if self.table_gradient_limit is not None:
            tables = ClippedGradient.apply(tables, self.table_gradient_limit)
        # Tables are updated during backward, before dense gradients are unscaled: theirs are unscaled here.
        if self.loss_scale is not None:
            tables = ScaledGradient.apply(tables, 1.0 / self.loss_scale, True)  # noqa: FBT003 - apply() takes no keywords
        if self.positions is not None:
            tables, keys = self.positions.pooled(tables, keys)
        logits = self._score(dense, tables, keys).float()
        return logits if self.loss_scale is None else ScaledGradient.apply(logits, self.loss_scale, False)  # noqa: FBT003 - as above

    def _score(self, dense: Tensor, tables: Tensor, keys: tuple[str, ...]) -> Tensor:
        if self.graph is not None and self.training:
            logits = self.graph(keys, dense, tables)
            if logits is not None:
                return logits
        return self._compute(keys, dense, tables)

    def _compute(self, keys: tuple[str, ...], dense: Tensor, tables: Tensor) -> Tensor:
        indices = self._pair_indices(keys, dense.device) if self.crosses is None else None
        if self.crosses is not None and keys != self.features:
            tables = torch.stack([tables[:, keys.index(feature)] for feature in self.features], dim=1)
        if self._compiled is not None:
            logits = self._compiled(dense, tables, indices, recompute=self.recompute and self.training)
            if logits is not None:
                return logits
        bottom = self._run(self.bottom, dense)
        if indices is not None:
            crossed = interaction(bottom, tables, indices)
        else:
            crossed = self._run(self.crosses, torch.cat([bottom, tables.flatten(1).to(bottom.dtype)], dim=1))
        return self._run(self.top, crossed).view(-1)

    def _run(self, part: nn.Module, inputs: Tensor) -> Tensor:
        if self.recompute and self.training:
            return checkpoint(part, inputs, dtype=self.dtype, use_reentrant=False)
        return part(inputs, dtype=self.dtype)

    def _pair_indices(self, keys: tuple[str, ...], device: torch.device) -> PairIndices:
        """Return the indices of the canonical pairs for tables in this order.

        A sharding plan may deliver the tables in any order, but the top MLP must always see the same order:
        otherwise its weights would fit one plan only. Selecting the pairs by index costs nothing extra.
        """
        if keys not in self._pairs:
            self._pairs[keys] = pair_indices(
                [0, *(1 + keys.index(feature) for feature in self.features)], device
            )
        return self._pairs[keys]


class MeanPooling(nn.Module):
    """Divides the sums of some features' vectors by the numbers of their ids; without ids they are 0.

    With weights, it divides by their sums, as torchrec does; where that is 0, the vector is 0.
    """

    def __init__(self, features: Sequence[str]) -> None:
        super().__init__()
        self.features = frozenset(features)

    def forward(self, embedded: KeyedTensor, sparse: KeyedJaggedTensor) -> KeyedTensor:
        """Return the vectors, averaged."""
        keys, widths, values = embedded.keys(), embedded.length_per_key(), embedded.values()
        weights = sparse.weights_or_none()
        if weights is None:
            divisors = sparse.lengths().clamp_min(1)
        else:
            sums = torch.ops.fbgemm.segment_sum_csr(1, sparse.offsets(), weights)
            divisors = torch.where(sums > 0, sums, 1.0)
        rows = dict(zip(sparse.keys(), divisors.view(len(sparse.keys()), -1), strict=True))
        parts = [
            part / rows[key].to(part.dtype)[:, None] if key in self.features else part
            for key, part in zip(keys, values.split(widths, dim=1), strict=True)
        ]
        return KeyedTensor(keys, widths, torch.cat(parts, dim=1))


class SequenceLengths(nn.Module):
    """Finds the lengths of sequences, whose places are separate keys."""

    def __init__(self, sequences: Mapping[str, int]) -> None:
        super().__init__()
        self.sequences = dict(sequences)

    def forward(self, sparse: KeyedJaggedTensor) -> dict[str, Tensor]:
        """Return the lengths [B] of each sequence."""
        counts = sparse.lengths().view(len(sparse.keys()), -1)
        firsts = {key: place for place, key in enumerate(sparse.keys())}
        found = {}
        for feature, length in self.sequences.items():
            first = firsts[f"{feature}#0"]
            found[feature] = counts[first : first + length].sum(dim=0)
        return found


class EmbeddingModel(nn.Module):
    """Scores a batch: (dense [B, num_dense], ids) -> logits [B]."""

    def __init__(
        self, shape: ModelShape, dense: DenseArch | ModelHead, table_type: DataType = DataType.FP32
    ) -> None:
        super().__init__()
        features: dict[str, list[str]] = {table: [] for table in shape.num_embeddings}
        for key, table in shape.tables_of_keys.items():
            features[table].append(key)
        self.embeddings = EmbeddingBagCollection(
            tables=[
                EmbeddingBagConfig(
                    name=name,
                    embedding_dim=shape.dim(name),
                    num_embeddings=rows,
                    feature_names=features[name],
                    data_type=table_type,
                )
                for name, rows in shape.num_embeddings.items()
            ],
            is_weighted=bool(shape.weighted),  # of all tables: the ids of other features weigh 1
            device=torch.device("meta"),
        )
        self.dense = dense
        self.mean = MeanPooling(shape.mean_pooled) if shape.mean_pooled else None
        self.lengths = SequenceLengths(shape.sequences) if shape.sequences else None
        self.look_up: Callable[[KeyedJaggedTensor], KeyedTensor] | None = None  # replaces the tables' forward

    def forward(self, dense: Tensor, sparse: KeyedJaggedTensor) -> Tensor:
        """Return logits [B]."""
        embedded = self.embeddings(sparse) if self.look_up is None else self.look_up(sparse)
        embedded = embedded if self.mean is None else self.mean(embedded, sparse)
        if self.lengths is None:
            return self.dense(dense, embedded)
        return self.dense(dense, embedded, self.lengths(sparse))


def make_model(config: TrainerConfig, shape: ModelShape, device: torch.device) -> EmbeddingModel:
    """Return the model of a shape, with its tables on the meta device, for training or scoring."""
    table_type = TABLE_TYPES[config.embedding_weight_precision]
    factory = find_factory(shape.model, config.model_source)
    if factory is not None:
        head = make_head(
            factory,
            ModelInputs(
                dense=shape.dense_names,
                sparse={
                    feature: shape.dim(table)
                    for feature, table in shape.tables_of_features.items()
                    if feature not in shape.sequences
                },
                hidden=shape.over_arch_layer_sizes[:-1],
                cross_layers=shape.dcn_num_layers,
                cross_rank=shape.dcn_low_rank_dim,
                tasks=shape.tasks or ("label",),
                experts=config.num_experts,
                extraction_layers=config.num_extraction_layers,
                sequences={
                    feature: SequenceSize(length, shape.dim(shape.tables_of_features[feature]))
                    for feature, length in shape.sequences.items()
                },
                tables=shape.tables_of_features,
                attention_sizes=config.attention_layer_sizes,
                attention_layers=config.attention_num_layers,
                attention_heads=config.attention_num_heads,
                item=shape.item,
                temperature=config.temperature,
                negatives=config.negatives,
            ),
            name=shape.model,
            seed=seed_of(config.seed, "dense"),
            device=device,
            dtype=DENSE_TYPES[config.precision],
            recompute=config.activation_checkpointing,
            task_weights=dict(zip(shape.tasks, shape.task_weights, strict=True)),
            positions=shape.positions,
        )
        return EmbeddingModel(shape, head, table_type)
    dense = DenseArch(
        shape,
        dtype=DENSE_TYPES[config.precision],
        device=device,
        recompute=config.activation_checkpointing,
        compiled=_compiles(config, device),
    )
    return EmbeddingModel(shape, dense, table_type)


def _compiles(config: TrainerConfig, device: torch.device) -> Choice:
    """Return `on`, `auto` (where it fails, the eager model runs) or `off`.

    Compiled sums may be made in another order after a restart, so deterministic runs have none by default.
    """
    if config.compile != "auto":
        return config.compile
    return "auto" if device.type == "cuda" and has_triton() and not config.deterministic else "off"


class GlobalMeanLoss(nn.Module):
    """Binary cross-entropy whose gradients, averaged over the ranks, are those of the mean over ALL samples.

    DDP and the tables' all-to-all both divide gradients by the number of ranks, and ranks may have different
    numbers of samples. So each rank's sum is multiplied by (number of ranks) / (samples of the step).
    """

    def __init__(self, losses: Callable[[Tensor, Tensor], Tensor] | None = None) -> None:
        """`losses` gives another loss of each sample, also of several labels."""
        super().__init__()
        self.losses = losses

    def forward(
        self, logits: Tensor, labels: Tensor, scale: Tensor, samples: int, weights: Tensor | None = None
    ) -> Tensor:
        """Return the loss of the first `samples` logits [B] and labels [B]; the others are padding.

        Args:
            logits: of the samples; [B, tasks] with several labels.
            labels: of the samples, likewise.
            scale: 0-d: world_size / global samples, or 0 on a rank that has padding only.
            samples: those that are no padding.
            weights: factors on the samples' losses [B]; the mean is still that over the number of samples.
        """
        if 0 < samples < len(logits):
            logits, labels = logits[:samples], labels[:samples]
            weights = None if weights is None else weights[:samples]
        if weights is not None:
            return (self._each(logits, labels) * weights).sum() * scale
        if self.losses is not None:
            return self.losses(logits, labels).sum() * scale
        return functional.binary_cross_entropy_with_logits(logits, labels, reduction="sum") * scale

    def _each(self, logits: Tensor, labels: Tensor) -> Tensor:
        if self.losses is not None:
            return self.losses(logits, labels)
        return functional.binary_cross_entropy_with_logits(logits, labels, reduction="none")


class TrainTask(nn.Module):
    """The module that a training pipeline runs: input -> (loss for backward, (its value, logits [B]))."""

    def __init__(self, model: EmbeddingModel) -> None:
        super().__init__()
        self.model = model
        self.loss = GlobalMeanLoss(model.dense.losses)
        comparing = model.dense.kind.comparing
        self.batch_loss = None if comparing is None else BatchLoss(comparing)

    def forward(self, batch: ModelInput) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Return (loss, output), as torchrec's pipelines require; they pass only the output on."""
        logits = self.model(batch.dense, batch.sparse)
        if self.batch_loss is not None:
            pair = self.batch_loss(logits, batch)
            return pair[0], (pair[0].detach(), pair[1].detach())
        loss = self.loss(logits, batch.labels, batch.loss_scale, batch.samples, batch.weights)
        return loss, (loss.detach(), logits.detach())


def seeded_generator(*parts: object) -> torch.Generator:
    """Return a CPU generator whose seed depends on the parts only, on every machine."""
    return torch.Generator().manual_seed(seed_of(*parts))


def seed_of(*parts: object) -> int:
    """Return a seed that depends on the parts only."""
    digest = hashlib.sha256("/".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1


@torch.no_grad()
def initialise_dense(dense: DenseArch | ModelHead, seed: int) -> None:
    """Initialise every dense weight from (seed, its name) only, so all ranks and world sizes agree.

    A model of the protocol has drawn its own weights, likewise from the seed alone.
    """
    if isinstance(dense, ModelHead):
        return
    for name, parameter in dense.named_parameters():
        if name.startswith("positions."):  # the weights of places begin at 1
            continue
        generator = seeded_generator(seed, "dense", name)
        if parameter.dim() == 1:
            bound = 1.0 / math.sqrt(parameter.numel())
            values = torch.empty(parameter.shape).uniform_(-bound, bound, generator=generator)
        else:
            deviation = math.sqrt(2.0 / sum(parameter.shape))
            values = torch.empty(parameter.shape).normal_(0.0, deviation, generator=generator)
        parameter.copy_(values)
