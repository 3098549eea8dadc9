"""The bytes of one rank's file: written from live tensors, verified, and read by rectangle."""

from __future__ import annotations

import mmap
import os
import zlib
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, BinaryIO

import torch

from trainer.checkpoint.commit import Commit, DamagedError, Part
from trainer.errors import CheckpointError

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

    from trainer.checkpoint.entry import Entry, Shard, State

_ALIGNMENT = 64  # bytes; parts can be mapped as tensors of any type
_CHUNK_BYTES = 16 << 20  # what is copied from a GPU, checksummed and written at a time


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """One rank's file, on stable storage."""

    name: str
    size: int  # bytes
    parts: tuple[Part, ...]


def write_file(path: Path, state: State, *, first_rank: bool) -> WrittenFile:
    """Write this rank's shards to disk; replicated tensors are the first rank's to write.

    When it returns the bytes are on stable storage, and the tensors may change again.
    """
    parts: list[Part] = []
    try:
        with path.open("wb") as file:
            for name, entry in sorted(state.items()):
                shards = entry.shards if first_rank or not entry.replicated else ()
                parts.extend(_write_part(file, path.name, name, entry, shard) for shard in shards)
            size = file.tell()
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        error.filename = str(path)  # a failing write does not tell which file it was
        raise
    return WrittenFile(path.name, size, tuple(parts))


def verify_file(directory: Path, commit: Commit, name: str) -> None:
    """Read a whole file and refuse it unless every part is what was written."""
    path = directory / name
    try:
        size = path.stat().st_size
    except OSError as error:
        raise DamagedError(f"{path}: missing or unreadable: {error.strerror}") from error
    if size != commit.files[name]:
        raise DamagedError(f"{path}: {size} bytes, {commit.files[name]} were written")
    if not size:
        return
    with (
        path.open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
        memoryview(mapped) as view,
    ):
        for part in commit.parts:
            if (
                part.file == name
                and zlib.crc32(view[part.position : part.position + part.length]) != part.crc32
            ):
                raise DamagedError(f"{path}: the bytes of {part.name} at {part.offsets} have changed")


def fill(directory: Path, commit: Commit, state: State) -> None:
    """Copy into this rank's shards, in place, from whichever files hold their elements."""
    named = commit.by_name()
    mapped: dict[str, mmap.mmap] = {}
    for name, entry in state.items():
        for shard in entry.shards:
            _check_kind(name, entry, shard, named[name][0])
            copied = sum(_copy(directory, part, shard, mapped) for part in named[name])
            if copied != shard.tensor.numel():
                raise CheckpointError(
                    f"{name}: the checkpoint has {copied} of the {shard.tensor.numel()} elements "
                    f"at {shard.offsets}; it is incomplete, go on from another one"
                )


def dtype_name(tensor: Tensor) -> str:
    """A tensor's type as commit files name it."""
    return str(tensor.dtype).removeprefix("torch.")


def _write_part(file: BinaryIO, file_name: str, name: str, entry: Entry, shard: Shard) -> Part:
    file.write(b"\0" * (-file.tell() % _ALIGNMENT))
    position = file.tell()
    checksum = 0
    flat = shard.tensor.detach().reshape(-1)
    step = max(_CHUNK_BYTES // max(flat.element_size(), 1), 1)
    for start in range(0, len(flat), step):
        chunk = flat[start : start + step].cpu().contiguous().view(torch.uint8).numpy()
        checksum = zlib.crc32(chunk, checksum)
        file.write(chunk.data)
    return Part(
        name=name,
        dtype=dtype_name(flat),
        shape=tuple(entry.shape),
        offsets=tuple(shard.offsets),
        sizes=tuple(shard.tensor.shape),
        file=file_name,
        position=position,
        length=file.tell() - position,
        crc32=checksum,
    )


def _check_kind(name: str, entry: Entry, shard: Shard, part: Part) -> None:
    here, there = (dtype_name(shard.tensor), tuple(entry.shape)), (part.dtype, part.shape)
    if here != there:
        raise CheckpointError(
            f"{name}: {there[0]} {list(there[1])} in the checkpoint, {here[0]} {list(here[1])} in this run; "
            "go on with the configuration that wrote it, or use another checkpoint_dir"
        )


def _copy(directory: Path, part: Part, shard: Shard, mapped: dict[str, mmap.mmap]) -> int:
    """Copy what a part and a shard have in common; the number of elements."""
    tensor = shard.tensor.detach()
    low = [max(pair) for pair in zip(part.offsets, shard.offsets, strict=True)]
    part_end = (start + size for start, size in zip(part.offsets, part.sizes, strict=True))
    shard_end = (start + size for start, size in zip(shard.offsets, tensor.shape, strict=True))
    high = [min(pair) for pair in zip(part_end, shard_end, strict=True)]
    ranges = list(zip(low, high, strict=True))
    count = prod(max(stop - start, 0) for start, stop in ranges)
    if count:
        source = _stored(directory, part, mapped)[_slices(ranges, part.offsets)]
        tensor[_slices(ranges, shard.offsets)].copy_(source)
    return count


def _slices(ranges: list[tuple[int, int]], offsets: tuple[int, ...]) -> tuple[slice, ...]:
    return tuple(slice(start - at, stop - at) for (start, stop), at in zip(ranges, offsets, strict=True))


def _stored(directory: Path, part: Part, mapped: dict[str, mmap.mmap]) -> Tensor:
    if part.file not in mapped:
        with (directory / part.file).open("rb") as file:
            # a private copy-on-write mapping: torch wants writable memory, the file stays as it is
            mapped[part.file] = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    dtype = getattr(torch, part.dtype)
    flat = torch.frombuffer(mapped[part.file], dtype=dtype, count=prod(part.sizes), offset=part.position)
    return flat.reshape(part.sizes)
