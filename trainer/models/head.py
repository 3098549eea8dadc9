"""A model of trainer.models.protocol behind the tables: precision, scaled gradients, checks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from trainer.base.errors import ConfigError
from trainer.models.gradients import ClippedGradient, ScaledGradient
from trainer.models.inputs import keys_of
from trainer.models.kinds import kind_of
from trainer.models.positions import PositionPooling
from trainer.models.protocol import Sequence
from trainer.models.tasks import TaskLosses

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from torchrec.sparse.jagged_tensor import KeyedTensor

    from trainer.models.protocol import ModelFactory, ModelInputs, SequenceSize


class ModelHead(nn.Module):
    """All behind the tables: (dense [B, num_dense], embeddings by feature) -> logits [B] or [B, tasks]."""

    def __init__(
        self,
        net: nn.Module,
        features: Iterable[str],
        sequences: Mapping[str, SequenceSize],
        *,
        name: str,
        dtype: torch.dtype,
        recompute: bool,
        task_weights: Mapping[str, float],
        positions: PositionPooling | None = None,
    ) -> None:
        """`task_weights` are those of several labels, by name; empty for one."""
        super().__init__()
        self.positions = positions
        self.task_weights = dict(task_weights)
        self.net = net
        self.kind = kind_of(net, name)
        self.features = tuple(features)
        self.sequences = dict(sequences)
        self.name = name
        self.dtype = dtype
        self.recompute = recompute
        self.loss_scale: Tensor | None = None  # 0-d, for fp16: the factor on gradients within this module
        self.table_gradient_limit: float | None = None  # on the gradient of each vector from a table

    @property
    def losses(self) -> Callable[[Tensor, Tensor], Tensor] | None:
        """The loss of each sample; None for binary cross-entropy of one label."""
        own = None if self.kind.loss is None else self.kind.loss.loss
        if not self.task_weights:
            return own
        return TaskLosses(list(self.task_weights.values()), own, model=self.name)

    def forward(
        self, dense: Tensor, embedded: KeyedTensor, lengths: Mapping[str, Tensor] | None = None
    ) -> Tensor:
        """Return logits [B] or [B, tasks], fp32; `lengths` are those of the sequences."""
        values = embedded.values()
        if self.loss_scale is not None:  # tables are updated during backward, before gradients are unscaled
            values = ScaledGradient.apply(values, 1.0 / self.loss_scale, True)  # noqa: FBT003 - apply() takes no keywords
        by_key = dict(zip(embedded.keys(), values.split(embedded.length_per_key(), dim=1), strict=True))
        vectors: dict[str, Tensor | Sequence] = {
            feature: self._pooled(feature, by_key) for feature in self.features
        }
        for feature, size in self.sequences.items():
            places = torch.stack([by_key[key] for key in keys_of([feature], {feature: size.length})], dim=1)
            vectors[feature] = Sequence(self._clipped(places), (lengths or {})[feature])
        logits = self._run(dense, vectors)
        return logits if self.loss_scale is None else ScaledGradient.apply(logits, self.loss_scale, False)  # noqa: FBT003 - as above

    def _pooled(self, feature: str, by_key: Mapping[str, Tensor]) -> Tensor:
        if self.positions is None or feature not in self.positions.lengths:
            return self._clipped(by_key[feature])
        keys = keys_of([feature], self.positions.lengths)
        return self.positions.pool(feature, self._clipped(torch.stack([by_key[key] for key in keys], dim=1)))

    def _clipped(self, vectors: Tensor) -> Tensor:
        limit = self.table_gradient_limit
        return vectors if limit is None else ClippedGradient.apply(vectors, limit)

    def _run(self, dense: Tensor, vectors: Mapping[str, Tensor | Sequence]) -> Tensor:
        reduced = self.dtype != torch.float32
        with torch.autocast(dense.device.type, dtype=self.dtype, enabled=reduced):
            if self.recompute and self.training:
                logits = checkpoint(self.net, dense, vectors, use_reentrant=False)
            else:
                logits = self.net(dense, vectors)
        if self.task_weights:
            return self._of_tasks(logits, dense.shape[0])
        is_compared = self.kind.comparing is not None and isinstance(logits, Tensor)
        if is_compared and logits.shape[:1] == dense.shape[:1]:
            return logits.float()
        samples = dense.shape[0]
        if not isinstance(logits, Tensor) or logits.numel() != samples:
            found = list(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
            raise ConfigError(
                f"model {self.name}: its forward returned {found} for {samples} samples; it must return "
                "one logit a sample, as a tensor [B]"
            )
        return logits.reshape(-1).float()

    def _of_tasks(self, logits: object, samples: int) -> Tensor:
        wanted = (samples, len(self.task_weights))
        if not isinstance(logits, Tensor) or logits.shape != wanted:
            found = list(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
            raise ConfigError(
                f"model {self.name}: its forward returned {found} for {samples} samples with the labels "
                f"{', '.join(self.task_weights)}; it must return one logit for each, as a tensor "
                f"{list(wanted)}"
            )
        return logits.float()


def make_head(
    factory: ModelFactory,
    inputs: ModelInputs,
    *,
    name: str,
    seed: int,
    device: torch.device,
    dtype: torch.dtype,
    recompute: bool,
    task_weights: Mapping[str, float],
    positions: Mapping[str, int] | None = None,
) -> ModelHead:
    """Return a model with weights that depend on the seed only, so that all ranks agree.

    Raises:
        ConfigError: the factory made no module, or one whose state checkpoints would not contain.
    """
    on_meta = device.type == "meta"
    with torch.random.fork_rng(devices=[]), torch.device("meta" if on_meta else "cpu"):
        torch.manual_seed(seed)
        net = factory(inputs)
    if not isinstance(net, nn.Module):
        raise ConfigError(f"model {name}: the factory returned a {type(net).__name__}, not a torch.nn.Module")
    if buffers := sorted(
        set(net.state_dict()) - {key for key, _ in net.named_parameters(remove_duplicate=False)}
    ):
        raise ConfigError(
            f"model {name}: it has the buffer {buffers[0]}, and checkpoints keep parameters only; take a "
            "layer without running statistics (LayerNorm for BatchNorm), or register it with persistent=False"
        )
    for key, parameter in net.named_parameters():
        if parameter.dtype != torch.float32:
            raise ConfigError(f"model {name}: its weight {key} is {parameter.dtype}; weights must be float32")
    return ModelHead(
        net.to(device),
        tuple(inputs.sparse),
        inputs.sequences,
        name=name,
        dtype=dtype,
        recompute=recompute,
        task_weights=task_weights,
        positions=PositionPooling(positions, device) if positions else None,
    )
