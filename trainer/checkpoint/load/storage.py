"""Filling this rank's shards from a checkpoint's files, layer by layer."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import chain, pairwise
from math import prod
from typing import TYPE_CHECKING

import numpy as np
import torch

from trainer.base.errors import CheckpointError
from trainer.checkpoint.format.coding import decode_rows, dequantize, quantized_bytes
from trainer.checkpoint.format.commit import DamagedError, data_name, differences, read_manifest
from trainer.checkpoint.format.runs import CHUNK_BYTES, THREADS, Files, rows_run, runs_of, values_run

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

    from torch import Tensor

    from trainer.base.entry import Entry, Initial, State, TensorShard
    from trainer.checkpoint.format.commit import Commit, Part
    from trainer.checkpoint.format.frames import Array
    from trainer.checkpoint.format.runs import Run, RunReader
    from trainer.checkpoint.store.base import Store

_SHOWN = 5  # differences named in a message


class Layers:
    """The parts of a checkpoint by name, from the base up."""

    def __init__(self, store: Store, commit: Commit) -> None:
        self.store = store
        self.commit = commit
        self.named: dict[str, list[list[tuple[str, Part]]]] = {}
        for number, layer in enumerate(commit.layers):
            for reference in layer:
                file = data_name(reference.name)
                parts = read_manifest(store, reference).parts
                if store.near is not None:
                    runs = runs_of((file, part) for part in parts)
                    described = ((run.position, run.length, run.crc32) for run in runs)
                    store.near.describe(file, reference.bytes, described)
                for part in parts:
                    its = self.named.setdefault(part.name, [[] for _ in commit.layers])
                    its[number].append((file, part))

    def dtypes(self) -> dict[str, torch.dtype]:
        """Return the type of every tensor, by name."""
        return {name: dtype_of(part) for name, (_, part) in self._some()}

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shape of every tensor, by name."""
        return {name: tuple(part.shape) for name, (_, part) in self._some()}

    def runs(self) -> list[Run]:
        """Return every run that has a checksum, in an order that is the same on every rank."""
        return runs_of(chain.from_iterable(chain.from_iterable(self.named.values())))

    def fill(self, state: State, initial: Initial | None, checked: set[Run] | None = None) -> None:
        """Copy into this rank's shards, in place, from the files that hold their elements.

        With `checked`, every run that is read whole is verified and added to it; other runs are not verified.

        Raises:
            DamagedError: the checksum of such a run does not match.
            CheckpointError: a type or shape differs, elements are missing, or `initial` is another state.
        """
        base = self.commit.base
        for name, (_, part) in self._some():
            if name in state:
                _check_kind(name, state[name], part)
        if base is not None:
            drawn = None if initial is None else initial.known_as(base)
            if drawn is None:
                raise CheckpointError(
                    "it holds what changed since the initial state, which is drawn otherwise here: resume "
                    "with the configuration and the version of torch that the run began with"
                )
            drawn.make()
        work = [(name, shard) for name, entry in state.items() for shard in entry.shards]
        with Files(self.store, checked) as files, ThreadPoolExecutor(THREADS) as pool:
            for _ in pool.map(lambda each: self._fill_shard(files, *each), work):
                pass  # the first error is raised here

    def _some(self) -> Iterator[tuple[str, tuple[str, Part]]]:
        for name, layers in self.named.items():
            yield name, next(part for layer in reversed(layers) for part in layer)

    def _fill_shard(self, files: Files, name: str, shard: TensorShard) -> None:
        for number, layer in enumerate(self.named[name]):
            covered = 0
            for file, part in layer:
                overlap = _overlap(part, shard)
                covered += prod(stop - start for start, stop in overlap)
                if all(stop > start for start, stop in overlap):
                    _apply(files, file, part, shard, overlap, is_base=self.commit.base is None and not number)
            if covered != shard.tensor.numel():
                raise CheckpointError(
                    f"{name}: the checkpoint has {covered} of the {shard.tensor.numel()} elements "
                    f"at {shard.offsets}; it is incomplete, resume from another one"
                )


def _check_kind(name: str, entry: Entry, part: Part) -> None:
    for shard in entry.shards:
        kind = str(shard.tensor.dtype).removeprefix("torch.")
        if (kind, tuple(entry.shape)) != (part.dtype, part.shape):
            raise CheckpointError(
                f"{name}: {part.dtype} {list(part.shape)} in the checkpoint, {kind} {list(entry.shape)} in "
                "this run; continue with the configuration that wrote it, or use another checkpoint_dir"
            )


def _overlap(part: Part, shard: TensorShard) -> list[tuple[int, int]]:
    """Return the intersection of a part's extent and a shard: (start, stop) in every dimension."""
    ranges = []
    its = zip(part.offsets, part.sizes, shard.offsets, shard.tensor.shape, strict=True)
    for part_at, part_size, shard_at, shard_size in its:
        low = max(part_at, shard_at)
        ranges.append((low, max(low, min(part_at + part_size, shard_at + shard_size))))
    return ranges


def _apply(
    files: Files, file: str, part: Part, shard: TensorShard, overlap: list[tuple[int, int]], *, is_base: bool
) -> None:
    """Copy the overlap of a part and a shard into the shard, and stamp its rows unless it is of the base."""
    tensor = shard.tensor.detach()
    inner = [slice(a - at, b - at) for (a, b), at in zip(overlap[1:], shard.offsets[1:], strict=True)]
    outer = [slice(a - at, b - at) for (a, b), at in zip(overlap[1:], part.offsets[1:], strict=True)]
    if not overlap:  # a single number
        with files.reading(values_run(file, part), whole=True) as reader:
            tensor.copy_(_read_rows(reader, part, 0, 1).reshape(()))
        return
    first, (low, high) = part.offsets[0], overlap[0]
    target = tensor[(slice(None), *inner)]
    if part.rows is None:
        with files.reading(values_run(file, part), whole=high - low == part.sizes[0]) as reader:
            for start, stop in _steps(part, low - first, high - first):
                at = slice(first + start - shard.offsets[0], first + stop - shard.offsets[0])
                if not _read_straight(reader, part, start, target[at]):
                    target[at].copy_(_read_rows(reader, part, start, stop)[(slice(None), *outer)])
        if shard.stamps is not None and not is_base:
            held = torch.arange(low - shard.offsets[0], high - shard.offsets[0], device=tensor.device)
            shard.stamps.restore(held)
        return
    rows = _rows_of(files, file, part) + first
    begin, end = (int(found) for found in np.searchsorted(rows, [low, high]))
    numbers = torch.from_numpy(rows[begin:end] - shard.offsets[0]).to(tensor.device)
    with files.reading(values_run(file, part), whole=end - begin == len(rows)) as reader:
        for start, stop in _steps(part, begin, end):
            values = _read_rows(reader, part, start, stop)[(slice(None), *outer)]
            target.index_copy_(0, numbers[start - begin : stop - begin], values.to(tensor.device))
    if shard.stamps is not None:
        shard.stamps.restore(numbers)


def row_numbers(files: Files, file: str, part: Part) -> Array:
    """Return the numbers of the rows of the global tensor that a part holds, ascending."""
    if part.rows is None:
        return np.arange(part.offsets[0], part.offsets[0] + part.sizes[0])
    return _rows_of(files, file, part) + part.offsets[0]


def row_values(files: Files, file: str, part: Part, count: int) -> Iterator[tuple[slice, Tensor]]:
    """Yield the values of a part's `count` rows some at a time, with their places among the part's rows."""
    with files.reading(values_run(file, part), whole=True) as reader:
        for start, stop in _steps(part, 0, count):
            yield slice(start, stop), _read_rows(reader, part, start, stop)


def _steps(part: Part, begin: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of a part's stored rows of about CHUNK_BYTES each."""
    step = max(CHUNK_BYTES // max(_row_bytes(part), 1), 1)
    return pairwise([*range(begin, end, step), end]) if end > begin else iter(())


def _row_bytes(part: Part) -> int:
    if part.coding != "raw":
        return quantized_bytes(part.sizes[1], part.coding)
    return prod(part.sizes[1:]) * dtype_of(part).itemsize


def dtype_of(part: Part) -> torch.dtype:
    """Return torch's type of a part; DamagedError if it has none of this name."""
    found = getattr(torch, part.dtype, None)
    if not isinstance(found, torch.dtype):
        raise DamagedError(f"{part.name}: its type {part.dtype!r} is none of torch {torch.__version__}")
    return found


def _rows_of(files: Files, file: str, part: Part) -> Array:
    rows, run = part.rows, rows_run(file, part)
    assert rows is not None  # noqa: S101 - for the type checker: called for such parts only
    assert run is not None  # noqa: S101 - as above
    with files.reading(run, whole=True) as reader:
        data = reader.read(0, run.length)
    # Verified before use, if checksums are on: these numbers decide where values are written.
    return decode_rows(rows.coding, data, part.sizes[0])


def _read_straight(reader: RunReader, part: Part, start: int, target: Tensor) -> bool:
    """Read rows from `start` straight into a tensor of the same layout; False if its layout differs."""
    if target.device.type != "cpu" or not target.is_contiguous() or target.shape[1:] != part.sizes[1:]:
        return False
    if target.numel():
        view = memoryview(target.view(-1).view(torch.uint8).numpy())
        reader.read_into(start * _row_bytes(part), view)
    return True


def _read_rows(reader: RunReader, part: Part, start: int, stop: int) -> Tensor:
    """Read the stored rows `start` to `stop` of a part, as a tensor [rows, ...]."""
    size = _row_bytes(part)
    data = reader.read(start * size, (stop - start) * size)
    if part.coding != "raw":
        values = np.frombuffer(data, dtype=np.uint8).reshape(stop - start, size)
        return torch.from_numpy(dequantize(values, part.sizes[1], part.coding)).to(dtype_of(part))
    if not data:
        return torch.empty((stop - start, *part.sizes[1:]), dtype=dtype_of(part))
    return torch.frombuffer(data, dtype=dtype_of(part)).reshape(stop - start, *part.sizes[1:])


def check_fits(layers: Layers, wanted: set[str], fingerprint: Mapping[str, Any] | None) -> None:
    """Refuse a checkpoint of another model or dataset, or one whose names differ from those of this run."""
    found = () if fingerprint is None else differences(fingerprint, layers.commit.fingerprint)
    if unlike := list(found):
        raise CheckpointError(
            f"it belongs to something else: {_some(unlike)}; use the configuration and the dataset that "
            "it was made with, or another checkpoint_dir, where init_from can begin with this model"
        )
    stored = set(layers.named)
    if missing := sorted(wanted - stored):
        raise CheckpointError(f"it lacks {_some(missing)}; use the configuration that it was made with")
    if superfluous := sorted(stored - wanted):
        raise CheckpointError(
            f"this run has no place for {_some(superfluous)}; use the configuration that it was made with"
        )


def _some(found: list[str]) -> str:
    more = len(found) - _SHOWN
    return "; ".join(found[:_SHOWN]) + (f"; and {more} more" if more > 0 else "")
