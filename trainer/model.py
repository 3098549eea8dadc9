"""The DLRM: bottom MLP, one embedding table a categorical feature, pairwise dot interaction, top MLP.

The embedding collection is made on the meta device and sharded later (trainer.sharding); the dense
part is one module, so that a pipeline sees two stages: tables, then everything else.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional
from torchrec.modules.embedding_configs import EmbeddingBagConfig
from torchrec.modules.embedding_modules import EmbeddingBagCollection

from trainer.dense_ops import DotInteraction, FusedMLP

if TYPE_CHECKING:
    from torchrec.sparse.jagged_tensor import KeyedJaggedTensor, KeyedTensor

    from trainer.config import TrainerConfig
    from trainer.pipeline import ModelInput


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """Sizes of a DLRM; a table is named like the feature that it embeds."""

    num_dense: int
    num_embeddings: dict[str, int]
    embedding_dim: int
    dense_arch_layer_sizes: tuple[int, ...]
    over_arch_layer_sizes: tuple[int, ...]

    @property
    def interaction_size(self) -> int:
        """Width of the top MLP's input: the bottom MLP's output and one dot product a pair of vectors."""
        return self.embedding_dim + math.comb(len(self.num_embeddings) + 1, 2)


class DenseArch(nn.Module):
    """Everything behind the tables: (dense [B, num_dense], embeddings by feature) -> logits [B]."""

    def __init__(self, shape: ModelShape, *, bf16: bool, device: torch.device) -> None:
        super().__init__()
        self.features = tuple(shape.num_embeddings)
        self.embedding_dim = shape.embedding_dim
        self.bf16 = bf16
        self.bottom = FusedMLP(shape.num_dense, shape.dense_arch_layer_sizes, relu_last=True, device=device)
        self.top = FusedMLP(
            shape.interaction_size, shape.over_arch_layer_sizes, relu_last=False, device=device
        )
        self._pairs: dict[tuple[str, ...], tuple[Tensor, Tensor]] = {}

    def forward(self, dense: Tensor, embedded: KeyedTensor) -> Tensor:
        """Logits [B], fp32."""
        bottom = self.bottom(dense, bf16=self.bf16)
        tables = embedded.values().view(-1, len(self.features), self.embedding_dim)
        forward_index, backward_index = self._pair_indices(tuple(embedded.keys()), dense.device)
        crossed = DotInteraction.apply(bottom, tables, forward_index, backward_index)
        return self.top(crossed, bf16=self.bf16).view(-1).float()

    def _pair_indices(self, keys: tuple[str, ...], device: torch.device) -> tuple[Tensor, Tensor]:
        """Where each pair stands in the flat square of dot products, given the order the tables came in.

        A sharding plan may deliver the tables in any order; the top MLP must see one order, or its
        weights would mean something else under another plan. Choosing the index makes that free.
        """
        if keys not in self._pairs:
            self._pairs[keys] = DotInteraction.make_indices(
                [0, *(1 + keys.index(feature) for feature in self.features)], device
            )
        return self._pairs[keys]


class DLRM(nn.Module):
    """Scores a batch: (dense [B, num_dense], ids) -> logits [B]."""

    def __init__(self, shape: ModelShape, *, bf16: bool, device: torch.device) -> None:
        super().__init__()
        self.embeddings = EmbeddingBagCollection(
            tables=[
                EmbeddingBagConfig(
                    name=name,
                    embedding_dim=shape.embedding_dim,
                    num_embeddings=rows,
                    feature_names=[name],
                )
                for name, rows in shape.num_embeddings.items()
            ],
            device=torch.device("meta"),
        )
        self.dense = DenseArch(shape, bf16=bf16, device=device)

    def forward(self, dense: Tensor, sparse: KeyedJaggedTensor) -> Tensor:
        """Logits [B]."""
        embedded = self.embeddings(sparse)
        return self.dense(dense, embedded)


def make_model(config: TrainerConfig, shape: ModelShape, device: torch.device) -> DLRM:
    """Make the model that is configured, tables on the meta device: to train it, or to score with it."""
    return DLRM(shape, bf16=config.precision == "bf16", device=device)


class GlobalMeanLoss(nn.Module):
    """Binary cross-entropy whose gradients, averaged over the ranks, are those of the mean over ALL samples.

    Data parallelism and the tables' all-to-all both divide gradients by the number of ranks; ranks
    may hold different numbers of samples. So each rank's SUM is scaled by ranks / samples of the step.
    """

    def forward(self, logits: Tensor, labels: Tensor, scale: Tensor) -> Tensor:
        """scale: 0-d, world_size / global samples, or 0 where this rank only pads."""
        return functional.binary_cross_entropy_with_logits(logits, labels, reduction="sum") * scale


class TrainTask(nn.Module):
    """What a training pipeline runs: batch -> (loss to go backward from, (its value, logits [B]))."""

    def __init__(self, model: DLRM) -> None:
        super().__init__()
        self.model = model
        self.loss = GlobalMeanLoss()

    def forward(self, batch: ModelInput) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Shaped as torchrec's pipelines want it; they hand on the second part only."""
        logits = self.model(batch.dense, batch.sparse)
        loss = self.loss(logits, batch.labels, batch.loss_scale)
        return loss, (loss.detach(), logits.detach())


def seeded_generator(*parts: object) -> torch.Generator:
    """Make a CPU generator whose stream depends on the parts alone, on every machine and version."""
    digest = hashlib.sha256("/".join(map(str, parts)).encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "little") >> 1)


@torch.no_grad()
def initialise_dense(dense: DenseArch, seed: int) -> None:
    """Set every dense weight from (seed, its name) alone, so that all ranks and world sizes agree."""
    for name, parameter in dense.named_parameters():
        generator = seeded_generator(seed, "dense", name)
        if parameter.dim() == 1:
            bound = 1.0 / math.sqrt(parameter.numel())
            values = torch.empty(parameter.shape).uniform_(-bound, bound, generator=generator)
        else:
            deviation = math.sqrt(2.0 / sum(parameter.shape))
            values = torch.empty(parameter.shape).normal_(0.0, deviation, generator=generator)
        parameter.copy_(values)
