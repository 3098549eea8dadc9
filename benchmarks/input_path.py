"""The input path of a GPU alone: what benchmarks/reading.py measures of it."""

from __future__ import annotations

import statistics
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from trainer.data.checks import BatchChecks
from trainer.data.device.checks import DeviceChecks
from trainer.data.device.lane import lane_of
from trainer.data.device.layout import SplitLayout, size_of
from trainer.data.device.loads import ReadPlan
from trainer.data.device.reading import StagingSlot
from trainer.data.device.stream import DeviceStream
from trainer.data.order import EpochOrder
from trainer.data.stream import BatchStream
from trainer.models.inputs import InputMaker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from trainer.data.batch import Batch
    from trainer.data.source import ArraySource
    from trainer.data.stream import ArraySplit

ROUNDS = 5
BATCH = 65_536
MLPERF_HOTNESS = (3, 2, 1, 2, 6, 1, 1, 1, 1, 7, 3, 8, 1, 6, 9, 5, 1, 1, 1, 12, 100, 27, 10, 3, 1, 1)


class Rate(NamedTuple):
    """Samples/s of several passes."""

    name: str
    speeds: list[float]
    row_bytes: float

    def line(self, reference: Rate | None = None) -> str:
        """Return a row of the table; the ratio is that of passes in turn with those of the reference."""
        ratio = ""
        if reference is not None:
            ratios = [ours / theirs for ours, theirs in zip(self.speeds, reference.speeds, strict=True)]
            ratio = f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
        middle = statistics.median(self.speeds)
        spread = f"{middle / 1e6:.2f} ({min(self.speeds) / 1e6:.2f} to {max(self.speeds) / 1e6:.2f})"
        return f"| {self.name} | {spread} | {middle * self.row_bytes / 1e9:.1f} | {ratio} |"


class _Staging:
    """Fills staging buffers from a split, or from memory."""

    def __init__(self, split: ArraySplit) -> None:
        order = EpochOrder(split.rows, seed=1, epoch=0)
        plan = ReadPlan(split.rows, start=0, global_batch=BATCH, rank=0, world_size=1, epoch=0, order=order)
        self.rows = split.rows
        self._loads = list(plan.loads())
        self._layout = SplitLayout(split)
        self._local = threading.local()
        self._device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        shapes = map(self._layout.shape_of, self._loads)
        sizes = [size_of(self._layout.sections(shape)) for shape in shapes]
        self.row_bytes = sum(sizes) / split.rows
        self._memory = [np.ones(size, np.uint8) for size in sizes]

    def read(self, threads: int) -> float:
        """Return the samples/s of a pass by some threads."""
        return self._pass(threads, self._fill)

    def copy(self, threads: int) -> float:
        """Return the same of plain copies of as many bytes."""
        return self._pass(threads, self._copy)

    def _pass(self, threads: int, work: Callable[[int], None]) -> float:
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(lambda _: self._slots(), range(threads)))
            start = time.perf_counter()
            list(pool.map(work, range(len(self._loads))))
            return self.rows / (time.perf_counter() - start)

    def _fill(self, number: int) -> None:
        load = self._loads[number]
        shape = self._layout.shape_of(load)
        self._slots()[number % 2].fill(self._layout, load, shape, self._layout.sections(shape))

    def _copy(self, number: int) -> None:
        source = self._memory[number]
        np.copyto(self._slots()[number % 2].memory(len(source))[: len(source)], source)

    def _slots(self) -> list[StagingSlot]:
        """Return two buffers of this thread; the next one is filled while a GPU copies."""
        if not hasattr(self._local, "slots"):
            self._local.slots = [StagingSlot(lane_of(self._device)) for _ in range(2)]
            for slot in self._local.slots:
                slot.memory(max(map(len, self._memory)))[:] = 0
        slots: list[StagingSlot] = self._local.slots
        return slots


def staging_lines(split: ArraySplit, name: str) -> list[str]:
    """Return rows of a table: reading into the buffers of a GPU, and copies of as many bytes."""
    staging = _Staging(split)
    lines = []
    for threads in (1, 2):
        spelled = f"{threads} thread{'s' if threads > 1 else ''}"
        read, copied = Rate(f"{name}, {spelled}", [], staging.row_bytes), Rate("", [], staging.row_bytes)
        staging.read(threads)  # maps the files
        for _ in range(ROUNDS):
            read.speeds.append(staging.read(threads))
            copied.speeds.append(staging.copy(threads))
        lines += [read.line(copied), copied._replace(name=f"copies of as many bytes, {spelled}").line()]
    return lines


def cpu_lines(source: ArraySource, name: str) -> list[str]:
    """Return rows of a table: shuffled batches on the CPU, alone and with checks and inputs."""
    row_bytes = _Staging(source.split("train")).row_bytes
    source.checked = False
    checks = BatchChecks(source, source.num_embeddings, hash_overflow=False)
    make_input = InputMaker(source.sparse_features, 1)
    alone, whole = Rate(f"{name}, batches", [], row_bytes), Rate(f"{name}, checked inputs", [], row_bytes)
    for _ in range(ROUNDS):
        alone.speeds.append(_speed(_cpu_stream(source), len))
        whole.speeds.append(_speed(_cpu_stream(source), lambda batch: make_input(checks(batch))))
    return [alone.line(), whole.line()]


def gpu_lines(source: ArraySource, name: str) -> list[str]:
    """Return a row of a table: the checked inputs of the model on the GPU, from files to the last kernel."""
    device = torch.device("cuda", torch.cuda.current_device())
    source.checked = False
    checks = DeviceChecks(BatchChecks(source, source.num_embeddings, hash_overflow=False), device)
    make_input = InputMaker(source.sparse_features, 1)
    rate = Rate(f"{name}, checked inputs on the GPU", [], _Staging(source.split("train")).row_bytes)
    for number in range(ROUNDS + 1):
        with lane_of(device).work():
            speed = _speed(_gpu_stream(source, device), lambda batch: make_input(checks(batch)[0]))
        if number:  # the first loads kernels
            rate.speeds.append(speed)
    return [rate.line()]


def write_days(directory: Path, rows: int) -> None:
    """Write MLPerf's layout: a day of `rows` random rows with 214 ids each, and a small one besides."""
    random = np.random.default_rng(0)
    for day, size in enumerate((rows, 1000)):
        np.save(directory / f"day_{day}_dense.npy", random.random((size, 13), dtype=np.float32))
        np.save(directory / f"day_{day}_labels.npy", random.integers(0, 2, (size, 1), dtype=np.int32))
        ids = {
            str(index): random.integers(0, 100_000, (size, hotness), dtype=np.int32)
            for index, hotness in enumerate(MLPERF_HOTNESS)
        }
        np.savez(directory / f"day_{day}_sparse_multi_hot.npz", **ids)  # type: ignore[arg-type] # its stubs


def _cpu_stream(source: ArraySource) -> BatchStream:
    split = source.split("train")
    return BatchStream(split, batch_size=BATCH, rank=0, world_size=1, seed=1, epoch=0)


def _gpu_stream(source: ArraySource, device: torch.device) -> DeviceStream:
    split = source.split("train")
    return DeviceStream(split, device, batch_size=BATCH, rank=0, world_size=1, seed=1, epoch=0)


def _speed(batches: Iterable[Batch], work: Callable[[Batch], object]) -> float:
    start = time.perf_counter()
    samples = 0
    for batch in batches:
        work(batch)
        samples += len(batch)
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return samples / (time.perf_counter() - start)
