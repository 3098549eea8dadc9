"""The model's inputs: one rank's share of a step, in the types that torchrec's modules take."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor
from torch.nn import functional
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor
from torchrec.streamable import Pipelineable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trainer.data.batch import Batch, DrawnItems


class Negatives(Protocol):
    """Adds rows of drawn items to batches."""

    def extend(self, batch: Batch, step: int, /) -> tuple[Batch, DrawnItems]:
        """Return a step's batch with rows behind its own."""
        ...


@dataclass(slots=True)
class ModelInput(Pipelineable):
    """One rank's share of a step, as the model takes it."""

    dense: Tensor
    sparse: KeyedJaggedTensor
    labels: Tensor
    loss_scale: Tensor
    samples: int
    weights: Tensor | None = None
    total: int = 0  # samples of all ranks
    drawn: DrawnItems | None = None  # as negatives; their rows are behind the samples

    def to(self, device: torch.device, non_blocking: bool = False) -> ModelInput:  # noqa: FBT001, FBT002 - its protocol
        """Copy to a device."""
        return ModelInput(
            dense=self.dense.to(device, non_blocking=non_blocking),
            sparse=self.sparse.to(device, non_blocking=non_blocking),
            labels=self.labels.to(device, non_blocking=non_blocking),
            loss_scale=self.loss_scale.to(device, non_blocking=non_blocking),
            samples=self.samples,
            weights=None if self.weights is None else self.weights.to(device, non_blocking=non_blocking),
            total=self.total,
            drawn=_moved(self.drawn, device),
        )

    def record_stream(self, stream: Any) -> None:  # noqa: ANN401 - torch.Stream, torchrec's protocol
        """Keep the memory until a CUDA stream has used it."""
        for part in (self.dense, self.sparse, self.labels, self.loss_scale, self.weights):
            if part is not None:
                part.record_stream(stream)

    def pin_memory(self) -> ModelInput:
        """Move to page-locked memory, from which a GPU copies without waiting."""
        return ModelInput(
            dense=self.dense.pin_memory(),
            sparse=self.sparse.pin_memory(),
            labels=self.labels.pin_memory(),
            loss_scale=self.loss_scale,
            samples=self.samples,
            weights=None if self.weights is None else self.weights.pin_memory(),
            total=self.total,
            drawn=self.drawn,
        )


def _moved(drawn: DrawnItems | None, device: torch.device) -> DrawnItems | None:
    return None if drawn is None else replace(drawn, ids=drawn.ids.to(device))


def keys_of(features: Sequence[str], sequences: Mapping[str, int]) -> list[str]:
    """Return the keys under which torchrec knows the features: a sequence has one for every place."""
    keys: list[str] = []
    for feature in features:
        length = sequences.get(feature)
        keys += [feature] if length is None else [f"{feature}#{place}" for place in range(length)]
    return keys


class InputMaker:
    """Converts batches to model inputs; the lengths of one-hot ids are computed once per batch size.

    With `equal`, every rank is padded to the same number of samples, for sharding types that sum over ranks.
    """

    def __init__(
        self,
        features: Sequence[str],
        world_size: int,
        *,
        equal: bool = False,
        sequences: Mapping[str, int] | None = None,
        pinned: bool = False,
    ) -> None:
        """`sequences` are the most ids of each feature of which every place is a separate key.

        With `pinned`, what is kept on the CPU is in page-locked memory, which is not pinned again each step.
        """
        self._places = [(sequences or {}).get(feature) for feature in features]
        self.features = keys_of(features, sequences or {})
        self.world_size = world_size
        self.equal = equal
        self._pinned = pinned
        self._has_sequences = any(each is not None for each in self._places)
        self._layouts: dict[tuple[int, torch.device], tuple[Tensor, Tensor]] = {}
        self._scales: dict[tuple[float, torch.device], Tensor] = {}
        self.negatives: Negatives | None = None  # of the steps of a training

    def __call__(self, batch: Batch, step: int | None = None) -> ModelInput:
        """Return the input for a batch; an empty batch becomes one sample of weight 0.

        The collectives of a step need every rank, so a rank without samples must take part, too.

        Args:
            batch: this rank's samples.
            step: the step of the training, which decides its negatives; None outside of it.
        """
        drawn, samples, most = None, len(batch.labels), -(-batch.global_size // self.world_size)
        if step is not None and self.negatives is not None:
            batch, drawn = self.negatives.extend(batch, step)
            most += max(drawn.sizes)
        if self._has_sequences:
            batch = self._spread(batch)
        rows = len(batch.labels)
        missing = max(1, most if self.equal else 0) - rows
        if samples and missing <= 0:
            return ModelInput(
                dense=batch.dense,
                sparse=self._keyed(batch, batch.sparse, batch.lengths, rows),
                labels=batch.labels,
                loss_scale=self._scale(self.world_size / batch.global_size, batch.labels.device),
                samples=samples,
                weights=batch.weights,
                total=batch.global_size,
                drawn=drawn,
            )
        return self._padded(batch, max(missing, 0), samples, drawn)

    def _spread(self, batch: Batch) -> Batch:
        """Return the batch with each place of a sequence as a separate feature, of no or one id."""
        assert batch.lengths is not None  # noqa: S101 - for the type checker: a sequence has lengths
        counts = batch.lengths.long()
        ids = batch.sparse.split(counts.sum(dim=1).tolist())
        values: list[Tensor] = []
        lengths: list[Tensor] = []
        given = None if batch.id_weights is None else batch.id_weights.split(counts.sum(dim=1).tolist())
        weights: list[Tensor] = []
        for place, (each, count, most) in enumerate(zip(ids, counts, self._places, strict=True)):
            if most is None:
                values.append(each)
                lengths.append(count[None])
                weights += [] if given is None else [given[place]]
                continue
            places = torch.arange(most)[:, None]
            taken = places < count  # [most, samples]
            first = count.cumsum(0) - count.clamp_max(most)  # of the newest ids
            values.append(each[(first + places)[taken]])
            lengths.append(taken.long())
            weights += [] if given is None else [torch.ones(len(values[-1]))]  # a sequence's ids have none
        return replace(
            batch,
            sparse=torch.cat(values),
            lengths=torch.cat(lengths),
            id_weights=torch.cat(weights) if weights else None,
        )

    def _padded(self, batch: Batch, missing: int, samples: int, drawn: DrawnItems | None) -> ModelInput:
        """Append samples of id 0 to the batch; the loss ignores them."""
        count = len(batch.labels) + missing
        if batch.lengths is None:
            sparse = self._keyed(batch, functional.pad(batch.sparse, (0, missing)), None, count)
        else:
            lengths = functional.pad(batch.lengths, (0, missing))
            sparse = self._keyed(batch, batch.sparse, lengths, count)
        return ModelInput(
            dense=functional.pad(batch.dense, (0, 0, 0, missing)),
            sparse=sparse,
            labels=functional.pad(batch.labels, (*(0, 0) * (batch.labels.dim() - 1), 0, missing)),
            loss_scale=self._scale(
                self.world_size / batch.global_size if samples else 0.0, batch.labels.device
            ),
            samples=samples,
            weights=None if batch.weights is None else functional.pad(batch.weights, (0, missing)),
            total=batch.global_size,
            drawn=drawn,
        )

    def _keyed(self, batch: Batch, ids: Tensor, lengths: Tensor | None, samples: int) -> KeyedJaggedTensor:
        """Return ids with what torchrec would otherwise read from the device: the ids of each key."""
        if lengths is not None:  # multi-hot: ids are flat, feature by feature
            flat = lengths.reshape(-1).to(torch.int64)
            offsets = functional.pad(flat.cumsum(0), (1, 0))
            counts = lengths.sum(dim=1).tolist() if batch.counts is None else list(batch.counts)
            return KeyedJaggedTensor(
                keys=self.features,
                values=ids.reshape(-1),
                weights=batch.id_weights,
                lengths=flat,
                offsets=offsets,
                stride=samples,
                length_per_key=counts,
                offset_per_key=list(accumulate(counts, initial=0)),
            )
        lengths, offsets = self._layout(samples, ids.device)
        count = len(self.features)
        return KeyedJaggedTensor(
            keys=self.features,
            values=ids.reshape(-1),
            lengths=lengths,
            offsets=offsets,
            stride=samples,
            length_per_key=[samples] * count,
            offset_per_key=list(range(0, samples * count + 1, samples)),
        )

    def _layout(self, samples: int, device: torch.device) -> tuple[Tensor, Tensor]:
        """Return the lengths and offsets of one id each, which stay on the device of the batches."""
        key = samples, device
        if key not in self._layouts:
            total = samples * len(self.features)
            lengths = torch.ones(total, dtype=torch.int64, device=device)
            offsets = torch.arange(total + 1, device=device)
            self._layouts[key] = (self._kept(lengths), self._kept(offsets))
        return self._layouts[key]

    def _scale(self, scale: float, device: torch.device) -> Tensor:
        key = scale, device
        if key not in self._scales:
            self._scales[key] = self._kept(torch.full((), scale, device=device))
        return self._scales[key]

    def _kept(self, tensor: Tensor) -> Tensor:
        return tensor.pin_memory() if self._pinned and tensor.device.type == "cpu" else tensor
