"""Reading what was written: every byte once to verify it, then what this rank holds, layer by layer."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import pairwise
from math import prod
from typing import TYPE_CHECKING, Self

import numpy as np
import torch
from isal import isal_zlib

from trainer.checkpoint.coding import decode_rows, dequantize, quantized_bytes
from trainer.checkpoint.commit import DamagedError, data_name, differences, read_manifest
from trainer.checkpoint.store import MissingError
from trainer.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import TracebackType
    from typing import Any

    from torch import Tensor

    from trainer.checkpoint.commit import Commit, Manifest, Part, Reference
    from trainer.checkpoint.entry import Entry, Initial, Shard, State
    from trainer.checkpoint.frames import Array
    from trainer.checkpoint.store import Store

_SHOWN = 5  # differences named in a message
_THREADS = min(4, len(os.sched_getaffinity(0)))  # that read at once
_CHUNK_BYTES = 8 << 20  # read at a time where it cannot go straight to its place


class Files:
    """Reads ranges of a store's objects; use it as a context."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._stack = ExitStack()
        self._open: dict[str, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def read_into(self, name: str, position: int, target: memoryview) -> None:
        """Fill `target` (bytes) from an object; DamagedError where that ends before."""
        done = 0
        path = self.store.local_file(name)
        if path is None:
            data = self.store.read(name, position, len(target))
            done = len(data)
            target[:done] = data
        else:
            if name not in self._open:
                descriptor = os.open(path, os.O_RDONLY)
                self._stack.callback(os.close, descriptor)
                self._open[name] = descriptor
            while done < len(target):
                count = os.preadv(self._open[name], [target[done:]], position + done)
                if not count:
                    break
                done += count
        if done < len(target):
            raise DamagedError(f"{self.store.uri}/{name}: ends {len(target) - done} bytes too early")

    def read(self, name: str, position: int, length: int) -> bytearray:
        """`length` bytes of an object."""
        data = bytearray(length)
        self.read_into(name, position, memoryview(data))
        return data


def verify(store: Store, reference: Reference) -> None:
    """Read a manifest and its whole file; DamagedError unless every part is what was written."""
    manifest = read_manifest(store, reference)
    where = f"{store.uri}/{manifest.file}"
    try:
        size = store.sizes(manifest.file).get(manifest.file)
        if size is None:
            raise DamagedError(f"{where}: missing")
        if size != reference.bytes:
            raise DamagedError(f"{where}: {size} bytes, {reference.bytes} were written")
        with Files(store) as files:
            _verify_parts(files, manifest)
    except (OSError, MissingError) as error:
        raise DamagedError(f"{where}: missing or unreadable: {error}") from error


def _verify_parts(files: Files, manifest: Manifest) -> None:
    runs = {(part.position, part.length, part.crc32): part for part in manifest.parts}
    runs |= {(r.position, r.length, r.crc32): part for part in manifest.parts if (r := part.rows)}

    def check(run: tuple[int, int, int]) -> None:
        position, length, checksum = run
        buffer, found = memoryview(bytearray(min(length, _CHUNK_BYTES))), 0
        for start in range(position, position + length, _CHUNK_BYTES):
            chunk = buffer[: min(_CHUNK_BYTES, position + length - start)]
            files.read_into(manifest.file, start, chunk)
            found = isal_zlib.crc32(chunk, found)
        if found != checksum:
            part = runs[position, length, checksum]
            raise DamagedError(
                f"{files.store.uri}/{manifest.file}: the bytes of {part.name} at {part.offsets} have changed"
            )

    with ThreadPoolExecutor(_THREADS) as pool:
        for _ in pool.map(check, sorted(runs)):
            pass  # the first error is raised here


class Layers:
    """The parts of a checkpoint by name, from the base up."""

    def __init__(self, store: Store, commit: Commit) -> None:
        self.store = store
        self.commit = commit
        self.named: dict[str, list[list[tuple[str, Part]]]] = {}
        for number, layer in enumerate(commit.layers):
            for reference in layer:
                for part in read_manifest(store, reference).parts:
                    its = self.named.setdefault(part.name, [[] for _ in commit.layers])
                    its[number].append((data_name(reference.name), part))

    def dtypes(self) -> dict[str, torch.dtype]:
        """The type of every tensor."""
        return {name: getattr(torch, part.dtype) for name, (_, part) in self._some()}

    def fill(self, state: State, initial: Initial | None) -> None:
        """Copy into this rank's shards, in place, from whichever files hold their elements."""
        base = self.commit.base
        for name, (_, part) in self._some():
            if name in state:
                _check_kind(name, state[name], part)
        if base is not None:
            if initial is None or initial.identity != base:
                raise CheckpointError(
                    "it tells what changed since the initial state, which is drawn otherwise here: go on "
                    "with the configuration and the version of torch that the run began with"
                )
            initial.make()
        work = [(name, shard) for name, entry in state.items() for shard in entry.shards]
        with Files(self.store) as files, ThreadPoolExecutor(_THREADS) as pool:
            for _ in pool.map(lambda each: self._fill_shard(files, *each), work):
                pass  # the first error is raised here

    def _some(self) -> Iterator[tuple[str, tuple[str, Part]]]:
        for name, layers in self.named.items():
            yield name, next(part for layer in reversed(layers) for part in layer)

    def _fill_shard(self, files: Files, name: str, shard: Shard) -> None:
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
                    f"at {shard.offsets}; it is incomplete, go on from another one"
                )


def _check_kind(name: str, entry: Entry, part: Part) -> None:
    for shard in entry.shards:
        kind = str(shard.tensor.dtype).removeprefix("torch.")
        if (kind, tuple(entry.shape)) != (part.dtype, part.shape):
            raise CheckpointError(
                f"{name}: {part.dtype} {list(part.shape)} in the checkpoint, {kind} {list(entry.shape)} in "
                "this run; go on with the configuration that wrote it, or use another checkpoint_dir"
            )


def _overlap(part: Part, shard: Shard) -> list[tuple[int, int]]:
    """What a part's extent and a shard have in common, from where to where in every dimension."""
    ranges = []
    its = zip(part.offsets, part.sizes, shard.offsets, shard.tensor.shape, strict=True)
    for part_at, part_size, shard_at, shard_size in its:
        low = max(part_at, shard_at)
        ranges.append((low, max(low, min(part_at + part_size, shard_at + shard_size))))
    return ranges


def _apply(
    files: Files, file: str, part: Part, shard: Shard, overlap: list[tuple[int, int]], *, is_base: bool
) -> None:
    """Copy what a part holds of the overlap into the shard."""
    tensor = shard.tensor.detach()
    inner = [slice(a - at, b - at) for (a, b), at in zip(overlap[1:], shard.offsets[1:], strict=True)]
    outer = [slice(a - at, b - at) for (a, b), at in zip(overlap[1:], part.offsets[1:], strict=True)]
    if not overlap:  # a single number
        tensor.copy_(_read_rows(files, file, part, 0, 1).reshape(()))
        return
    first, (low, high) = part.offsets[0], overlap[0]
    target = tensor[(slice(None), *inner)]
    if part.rows is None:
        for start, stop in _steps(part, low - first, high - first):
            at = slice(first + start - shard.offsets[0], first + stop - shard.offsets[0])
            if not _read_straight(files, file, part, start, target[at]):
                target[at].copy_(_read_rows(files, file, part, start, stop)[(slice(None), *outer)])
        if shard.stamps is not None and not is_base:
            held = torch.arange(low - shard.offsets[0], high - shard.offsets[0], device=tensor.device)
            shard.stamps.restore(held)
        return
    rows = _rows_of(files, file, part) + first
    begin, end = (int(found) for found in np.searchsorted(rows, [low, high]))
    numbers = torch.from_numpy(rows[begin:end] - shard.offsets[0]).to(tensor.device)
    for start, stop in _steps(part, begin, end):
        values = _read_rows(files, file, part, start, stop)[(slice(None), *outer)]
        target.index_copy_(0, numbers[start - begin : stop - begin], values.to(tensor.device))
    if shard.stamps is not None:
        shard.stamps.restore(numbers)


def _steps(part: Part, begin: int, end: int) -> Iterator[tuple[int, int]]:
    """Ranges of a part's stored rows that make about a chunk."""
    step = max(_CHUNK_BYTES // max(_row_bytes(part), 1), 1)
    return pairwise([*range(begin, end, step), end]) if end > begin else iter(())


def _row_bytes(part: Part) -> int:
    if part.coding != "raw":
        return quantized_bytes(part.sizes[1], part.coding)
    return prod(part.sizes[1:]) * _dtype(part).itemsize


def _dtype(part: Part) -> torch.dtype:
    dtype: torch.dtype = getattr(torch, part.dtype)
    return dtype


def _rows_of(files: Files, file: str, part: Part) -> Array:
    rows = part.rows
    assert rows is not None  # noqa: S101 - for the type checker: asked of such parts alone
    return decode_rows(rows.coding, files.read(file, rows.position, rows.length), part.sizes[0])


def _read_straight(files: Files, file: str, part: Part, start: int, target: Tensor) -> bool:
    """Read rows from `start` on into memory that has their very layout; False where it has not."""
    if target.device.type != "cpu" or not target.is_contiguous() or target.shape[1:] != part.sizes[1:]:
        return False
    if target.numel():
        view = memoryview(target.view(-1).view(torch.uint8).numpy())
        files.read_into(file, part.position + start * _row_bytes(part), view)
    return True


def _read_rows(files: Files, file: str, part: Part, start: int, stop: int) -> Tensor:
    """Rows `start` to `stop` of those that a part stores, [rows, ...]."""
    size = _row_bytes(part)
    data = files.read(file, part.position + start * size, (stop - start) * size)
    if part.coding != "raw":
        values = np.frombuffer(data, dtype=np.uint8).reshape(stop - start, size)
        return torch.from_numpy(dequantize(values, part.sizes[1], part.coding)).to(_dtype(part))
    if not data:
        return torch.empty((stop - start, *part.sizes[1:]), dtype=_dtype(part))
    return torch.frombuffer(data, dtype=_dtype(part)).reshape(stop - start, *part.sizes[1:])


def check_fits(layers: Layers, wanted: set[str], fingerprint: Mapping[str, Any] | None) -> None:
    """Refuse a checkpoint of something else, and one that would drop state of this run or invent it."""
    found = () if fingerprint is None else differences(fingerprint, layers.commit.fingerprint)
    if unlike := list(found):
        raise CheckpointError(
            f"it belongs to something else: {_some(unlike)}; use the configuration and the dataset that "
            "it was made with, or another checkpoint_dir"
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
