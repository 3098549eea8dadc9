"""One rank's share of one global step."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    import torch
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class DrawnItems:
    """The items that a step drew as negatives, of which each rank has a part."""

    ids: Tensor  # int64, those of all ranks' items in the order of ranks
    sizes: tuple[int, ...]  # the items of each rank
    own: int  # rows of this rank's items, behind those of its samples
    among: int  # the items that were drawn from


@dataclass(frozen=True, slots=True)
class Batch:
    """The samples of one rank in one global step; B may be 0 on the last step of an epoch.

    Ids are int32: embedding kernels take them without a copy (with int64 offsets) on CPUs and GPUs, and they
    are half as many bytes to read, to gather and to send as int64. Where some are hashes that get their rows
    in the step, all are int64.
    """

    dense: Tensor  # float32 [B, D]
    sparse: Tensor  # int32 or int64 [F, B], feature-major; with lengths: [sum of lengths], likewise
    labels: Tensor  # float32 [B], 0 or 1; of T tasks [B, T], where -1 means that the sample has no label
    sample_ids: Tensor  # int64 [B], the row within the split; on the CPU unless the batch was made elsewhere
    global_size: int  # samples of this step over all ranks
    lengths: Tensor | None = None  # int32 [F, B], ids of each feature in each sample; None: one each
    weights: Tensor | None = None  # float32 [B], factors on the samples' losses, from 0; None: 1 each
    id_weights: Tensor | None = None  # float32, of each id in `sparse`, as flat; None: 1 each
    counts: tuple[int, ...] | None = None  # ids of each feature, if it is known without `lengths`
    sums: Tensor | None = None  # int64 [2], see trainer.data.sample_sums, if they were computed already

    def __len__(self) -> int:
        return int(self.labels.shape[0])

    def to(self, device: torch.device, *, non_blocking: bool = False) -> Self:
        """Return the same batch on a device; sample ids stay on the CPU, where the digest is computed."""
        return self._map(lambda tensor: tensor.to(device=device, non_blocking=non_blocking))

    def pin_memory(self) -> Self:
        """Return the same batch in page-locked memory, from which copies to a GPU are asynchronous."""
        return self._map(lambda tensor: tensor.pin_memory())

    def record_stream(self, stream: Any) -> None:  # noqa: ANN401 - torch.Stream has no typed base
        """Record for the allocator that a stream uses these tensors (torchrec's pipelines call this)."""
        for name in (*sorted(_MOVED), "sample_ids", "sums"):
            tensor = getattr(self, name)
            if tensor is not None and tensor.device.type != "cpu":
                tensor.record_stream(stream)

    def _map(self, function: Any) -> Self:  # noqa: ANN401 - Tensor is seen as Any
        tensors = {f.name: getattr(self, f.name) for f in fields(self) if f.name in _MOVED}
        moved = {name: function(tensor) for name, tensor in tensors.items() if tensor is not None}
        return replace(self, **moved)


_MOVED = frozenset({"dense", "sparse", "labels", "lengths", "weights", "id_weights"})
