"""Splits of every kind, and the comparison of batches that were made on a device with those of the CPU."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from trainer.data.device.lane import lane_of
from trainer.data.device.stream import DeviceStream
from trainer.data.formats.multi_hot import IdColumns
from trainer.data.lists import ListArrays
from trainer.data.sample_sums import sum_samples
from trainer.data.source import ArrayParts
from trainer.data.stream import BatchStream, ShardArrays

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from trainer.data.batch import Batch

SMALL_BLOCKS: dict[str, Any] = {"block_rows": 64, "window_blocks": 3}  # few rows make several windows
KINDS = ("one_hot", "by_row", "bags", "columns", "tasks", "weights", "lists", "weighted_lists", "hashes")


HOTNESS = {"bags": (2, 1, 5, 1, 3), "columns": (3, 1)}  # of other kinds: 5 features of one id


def make_split(
    kind: str, rows: int = 1000, *, shard_rows: int = 301, dense: int = 3, ids: int = 99
) -> ArrayParts:
    """Random rows of one kind in shards; a part of the last one is short."""
    random = np.random.default_rng(0)
    starts = range(0, rows, shard_rows)
    parts = [_part(kind, min(shard_rows, rows - start), dense, ids, random) for start in starts]
    hotness = HOTNESS.get(kind, (1,) * 5)
    places = {"lists": (0, 3, 6), "weighted_lists": (1,), "hashes": (2, 5)}.get(kind, ())
    return ArrayParts(
        kind,
        tuple(parts),
        dense,
        hotness,
        places,
        tasks=2 if kind == "tasks" else 0,
        is_weighted=kind in ("weights", "lists"),
        has_hashes=kind == "hashes",
    )


def assert_same(made: Batch, expected: Batch, epoch: int) -> None:
    """The batch from a device has the tensors of the CPU's, bit for bit."""
    for name in ("dense", "sparse", "labels", "sample_ids", "lengths", "weights", "id_weights"):
        ours, theirs = getattr(made, name), getattr(expected, name)
        assert (ours is None) == (theirs is None), name
        if ours is not None:
            assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape), name
            assert ours.is_contiguous(), name
            assert torch.equal(ours.cpu(), theirs), name
    assert made.global_size == expected.global_size
    if expected.lengths is not None:
        assert made.counts == tuple(expected.lengths.sum(dim=1).tolist())
    assert made.sums is not None
    assert torch.equal(made.sums.cpu(), sum_samples(epoch, expected.sample_ids))


def streams(split: ArrayParts, device: torch.device, **part: Any) -> Iterator[tuple[Batch, Batch]]:
    """Yield each batch from the device, when it is complete, with the CPU's."""
    options: dict[str, Any] = {"seed": 1, "epoch": 0, "rank": 0, "world_size": 1, **SMALL_BLOCKS, **part}
    made = DeviceStream(split, device, **options)
    expected = BatchStream(split, **options)
    assert len(made) == len(expected)
    for ours, theirs in zip(made, expected, strict=True):
        mark = lane_of(device).mark()
        if mark is not None:
            mark.synchronize()
        yield ours, theirs


def _part(kind: str, rows: int, dense: int, ids: int, random: np.random.Generator) -> ShardArrays:
    labels: npt.NDArray[Any] = random.integers(0, 2, rows).astype(np.uint8)
    if kind == "tasks":
        labels = random.integers(-1, 2, (2, rows)).astype(np.int8).T
    lists = None
    if kind in ("lists", "weighted_lists", "hashes"):
        count = {"lists": 3, "weighted_lists": 1, "hashes": 2}[kind]
        lists = _lists(count, rows, random, weighted=kind == "weighted_lists", wide=kind == "hashes")
    weights = random.random(rows, dtype=np.float32) if kind in ("weights", "lists") else None
    numbers = random.random((rows, dense), dtype=np.float32)
    return ShardArrays(labels, numbers, _ids(kind, rows, ids, random), lists, weights)


def _ids(kind: str, rows: int, limit: int, random: np.random.Generator) -> Any:
    hotness = HOTNESS.get(kind, (1,) * 5)
    if kind == "bags":
        return IdColumns([random.integers(0, limit, (rows, hot), dtype=np.int32) for hot in hotness])
    if kind == "by_row":
        return IdColumns.of_rows(random.integers(0, limit, (rows, len(hotness)), dtype=np.int32))
    if kind == "hashes":
        return random.integers(0, 2**62, (len(hotness), rows))
    return random.integers(0, limit, (sum(hotness), rows), dtype=np.int32)


def _lists(count: int, rows: int, random: np.random.Generator, *, weighted: bool, wide: bool) -> ListArrays:
    lengths = random.integers(0, 6, (count, rows)) * (random.random((count, rows)) < 0.7)
    offsets = np.zeros((count, rows + 1), np.int64)
    bases = list(accumulate(lengths.sum(axis=1).tolist(), initial=0))
    for feature in range(count):
        offsets[feature] = bases[feature] + np.append(0, np.cumsum(lengths[feature]))
    values = random.integers(0, 2**62 if wide else 99, bases[-1]).astype(np.int64 if wide else np.int32)
    return ListArrays(offsets, values, random.random(bases[-1], dtype=np.float32) if weighted else None)
