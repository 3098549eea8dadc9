"""Digests that show whether two runs saw the same samples and ended with the same model.

Both are sums, modulo 2**64, of mixed values, so they depend neither on the order nor on how the work is split
between ranks. They detect mistakes; they do not resist an attacker.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from torch import distributed

from trainer.base.errors import TrainerError
from trainer.data.mixing import signed, split_mix
from trainer.data.sample_sums import SAMPLE_KEYS
from trainer.data.splitmix import MASK64, mix_key, splitmix64

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import Tensor

    from trainer.base.entry import Entry, State, TensorShard

_ROW_KEYS = (0x30DE_1D16_0000_0001, 0x30DE_1D16_0000_0002)
_COLUMN_KEYS = (0x30DE_1D16_0000_0003, 0x30DE_1D16_0000_0004)
_CHUNK, _CHUNK_ROWS = 1 << 19, 1 << 13  # elements and rows at a time on a CPU: they stay in its cache
_CHUNK_ON_DEVICE = 1 << 24  # at a time elsewhere: two buffers of eight bytes for each
_BITS = {1: torch.uint8, 2: torch.uint16, 4: torch.uint32, 8: torch.int64}


class SampleDigest:
    """A hash of the multiset of (epoch, sample) pairs trained on, independent of order and world size.

    It consists of the sums of two independent 64-bit hashes of every pair, and the count.
    """

    def __init__(self) -> None:
        self._sums = (0, 0)
        self._count = 0
        self._on_device: Tensor | None = None  # int64 [2], to be added to the sums

    @property
    def count(self) -> int:
        """The samples seen so far, repeats included."""
        return self._count

    def update(self, epoch: int, sample_ids: Tensor) -> None:
        """Add the samples of a batch (int64 [B], on the CPU)."""
        ids = sample_ids.numpy().view(np.uint64)
        keys = (np.uint64(mix_key(key, epoch)) for key in SAMPLE_KEYS)
        added = [int(splitmix64(splitmix64(ids ^ key)).sum()) for key in keys]
        self._add(added[0], added[1], len(ids))

    def add_sums(self, sums: Tensor, count: int) -> None:
        """Add the sums of some samples (see trainer.data.sample_sums); a device is not waited for."""
        self._on_device = sums.clone() if self._on_device is None else self._on_device + sums
        self._count += count

    def merge(self, group: distributed.ProcessGroup | None = None) -> SampleDigest:
        """Return the digest over all ranks; collective, and this object is not changed."""
        merged = SampleDigest()
        for state in _gather_objects(self.state(), group):
            merged._add_state(state)
        return merged

    def state(self) -> dict[str, Any]:
        """Return JSON for a checkpoint; on resume, give it to one rank and start the others empty."""
        self._settle()
        return {"sums": [f"{value:016x}" for value in self._sums], "count": self._count}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Self:
        """Return the digest whose `state` this is."""
        digest = cls()
        digest._add_state(state)
        return digest

    def hex(self) -> str:
        """Return 32 hexadecimal digits and the count; equal digests mean equal samples."""
        self._settle()
        return "".join(f"{value:016x}" for value in self._sums) + f"-{self._count}"

    def _settle(self) -> None:
        """Read the sums that are on a device; this waits for it."""
        if self._on_device is not None:
            first, second = self._on_device.tolist()
            self._on_device = None
            self._add(first & MASK64, second & MASK64, 0)

    def _add_state(self, state: dict[str, Any]) -> None:
        first, second = (int(value, 16) for value in state["sums"])
        self._add(first, second, int(state["count"]))

    def _add(self, first: int, second: int, count: int) -> None:
        self._sums = ((self._sums[0] + first) & MASK64, (self._sums[1] + second) & MASK64)
        self._count += count


def model_digest(state: State, group: distributed.ProcessGroup | None = None) -> str:
    """Return a hash (hex sha256) of all named tensors, independent of how they are split between ranks.

    Collective; the result is the same on all ranks.

    Raises:
        TrainerError: some elements are held by no rank, or by several.
    """
    rank = distributed.get_rank(group) if distributed.is_initialized() else 0
    local = {
        name: _fingerprint(entry, counted=rank == 0 or not entry.replicated) for name, entry in state.items()
    }
    merged: dict[str, _Fingerprint] = {}
    for part in _gather_objects(local, group):
        for name, fingerprint in part.items():
            merged[name] = merged[name].plus(fingerprint) if name in merged else fingerprint
    for name, fingerprint in merged.items():
        fingerprint.check_complete(name)
    document = {name: fingerprint.document() for name, fingerprint in merged.items()}
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class _Fingerprint:
    """Hash sums over some elements of one tensor."""

    dtype: str  # "" if a rank has no part of the tensor
    shape: tuple[int, ...]
    elements: int
    sums: tuple[int, int]

    def plus(self, other: _Fingerprint) -> _Fingerprint:
        sums = ((self.sums[0] + other.sums[0]) & MASK64, (self.sums[1] + other.sums[1]) & MASK64)
        return _Fingerprint(self.dtype or other.dtype, self.shape, self.elements + other.elements, sums)

    def check_complete(self, name: str) -> None:
        expected = int(np.prod(self.shape, dtype=np.int64))
        if self.elements != expected:
            raise TrainerError(
                f"{name}: all ranks together hold {self.elements} of its {expected} elements; "
                "a shard is missing or held twice"
            )

    def document(self) -> list[Any]:
        return [self.dtype, list(self.shape), *(f"{value:016x}" for value in self.sums)]


def _fingerprint(entry: Entry, *, counted: bool) -> _Fingerprint:
    total = _Fingerprint("", entry.shape, 0, (0, 0))
    for shard in entry.shards if counted else ():
        dtype = str(shard.tensor.dtype).removeprefix("torch.")
        total = total.plus(_Fingerprint(dtype, entry.shape, shard.tensor.numel(), _shard_sums(entry, shard)))
    return total


def _shard_sums(entry: Entry, shard: TensorShard) -> tuple[int, int]:
    """Sum bits(i, j) * a(i) * b(j) over a shard's elements, modulo 2**64, for two pairs (a, b).

    i counts the tensor's first dimension and j all others; a and b are random odd numbers. The sum of
    products is linear in the bits, so that every split by rows or columns gives the same total. One flipped
    bit adds a power of two times an odd number, which is never 0. All is computed on the tensor's device.
    """
    rows, width, first_row, first_column = _as_matrix(entry, shard)
    if rows * width == 0:
        return (0, 0)
    tensor = shard.tensor.detach().reshape(rows, width)
    device = tensor.device
    column_factors = _factors(_COLUMN_KEYS, first_column, width, device)
    sums = torch.zeros(2, dtype=torch.int64, device=device)
    elements, most = (_CHUNK, _CHUNK_ROWS) if device.type == "cpu" else (_CHUNK_ON_DEVICE,) * 2
    step = min(max(elements // width, 1), most)
    wide = torch.empty(min(step, rows), width, dtype=torch.int64, device=device)
    for start in range(0, rows, step):
        bits = _bits(tensor[start : start + step], wide)
        row_factors = _factors(_ROW_KEYS, first_row + start, len(bits), device)
        for which, (of_rows, of_columns) in enumerate(zip(row_factors, column_factors, strict=True)):
            # The product of integer matrices is for CPUs only, where it is faster.
            by_row = bits.mv(of_columns) if device.type == "cpu" else (bits * of_columns).sum(dim=1)
            sums[which] += (by_row * of_rows).sum()
    first, second = sums.tolist()
    return (first & MASK64, second & MASK64)


def _as_matrix(entry: Entry, shard: TensorShard) -> tuple[int, int, int, int]:
    """Return a shard's rows, width, first row and first column as a part of a matrix."""
    local = tuple(shard.tensor.shape)
    if any(shard.offsets[2:]) or local[2:] != entry.shape[2:]:
        raise TrainerError(f"a shard at {shard.offsets} of a tensor {entry.shape}: cut beyond two dimensions")
    if not local:
        return 1, 1, 0, 0
    inner = int(np.prod(local[2:], dtype=np.int64))
    width = inner * (local[1] if len(local) > 1 else 1)
    first_column = inner * (shard.offsets[1] if len(local) > 1 else 0)
    return local[0], width, shard.offsets[0], first_column


def _factors(keys: tuple[int, ...], start: int, size: int, device: torch.device) -> list[Tensor]:
    """Return a random odd number for each row or column from `start`, for each key."""
    mixed = split_mix(torch.arange(start, start + size, dtype=torch.int64, device=device))
    return [split_mix(mixed ^ signed(key, 64)).bitwise_or_(1) for key in keys]


def _bits(tensor: Tensor, wide: Tensor) -> Tensor:
    """Return the bits of elements as numbers from 0, int64, in the first rows of a buffer."""
    return wide[: len(tensor)].copy_(tensor.contiguous().view(_BITS[tensor.element_size()]))


def _gather_objects(value: Any, group: distributed.ProcessGroup | None) -> Iterable[Any]:  # noqa: ANN401 - any JSON
    if not distributed.is_initialized():
        return [value]
    gathered: list[Any] = [None] * distributed.get_world_size(group)
    distributed.all_gather_object(gathered, value, group=group)
    return gathered
