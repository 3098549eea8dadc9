"""The cost of checkpoints, beside torch.save, torch.distributed.checkpoint and a plain read of the disk.

    python -m benchmarks.checkpoint [--rows N] [--dim D] [--steps S] [--rounds N] [--folder DIR] [--write]

A DLRM with tables of the Criteo Kaggle data's proportions trains on Zipf ids, and saves as a run does. Memory
is the private memory of the saver's processes, including copies of pages that training has changed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
import threading
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil
import torch

from benchmarks.dcp_saves import KINDS, AsyncSaver, save_plainly
from benchmarks.machine import describe_machine
from trainer.base.arguments import make_config
from trainer.base.distributed import join_world
from trainer.checkpoint import Checkpointer
from trainer.checkpoint.save.saves import SavingOptions
from trainer.data.batch import Batch
from trainer.loop.learner import Learner
from trainer.models.model import ModelShape

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from benchmarks.dcp_saves import AsyncSaved, Kind
    from trainer.base.distributed import World
    from trainer.checkpoint.format.coding import Quantization
    from trainer.checkpoint.save.saves import CheckpointReport

RESULTS = Path(__file__).parent / "results"
KAGGLE = (
    *(1460, 583, 10131227, 2202608, 305, 24, 12517, 633, 3, 93145, 5683, 8351593, 3194, 27, 14992, 5461306),
    *(10, 5652, 2173, 4, 7046547, 18, 15, 286181, 105, 142572),
)
BATCH = 1024
ZIPF = 1.1
SPREAD = 2654435761  # ids that are often seen lie anywhere in a table
QUIET_STEPS = 100
BUFFER = 8 << 20


@dataclass(slots=True)
class Saved:
    """One save, and the steps during it."""

    label: str
    report: CheckpointReport
    touched: float  # share of the rows
    own_bytes: int  # of what was touched, and of all that is small
    step_s: float  # median during the write
    quiet_s: float  # median before it
    memory: int  # of the saver, at its height


class Bench:
    """A learner with its ids, and a place for checkpoints."""

    def __init__(self, world: World, folder: Path, *, rows: int, dim: int) -> None:
        factor = rows / sum(KAGGLE)
        sizes = [max(size, int(size * factor) if size > 10_000 else size) for size in KAGGLE]
        tables = {f"C{index + 1}": size for index, size in enumerate(sizes)}
        self.sizes = np.array(sizes)
        self.folder = folder
        self.shape = ModelShape(
            num_dense=13,
            num_embeddings=tables,
            embedding_dim=dim,
            dense_arch_layer_sizes=(512, 256, dim),
            over_arch_layer_sizes=(512, 256, 1),
        )
        config = make_config(
            {
                "embedding_dim": dim,
                "dense_arch_layer_sizes": (512, 256, dim),
                "over_arch_layer_sizes": (512, 256, 1),
                "batch_size": BATCH,
                "threads": 1,
                "device": "cpu",
            }
        )
        torch.set_num_threads(1)
        torch.set_float32_matmul_precision("medium")
        self.learner = Learner(config, self.shape, world, total_steps=1_000_000, draw=False)
        began = time.perf_counter()
        self.learner.draw_tables()
        self.draw_s = time.perf_counter() - began
        self._random = np.random.default_rng(1)
        self._steps = iter(self.learner.pipeline.steps(self._batches(), 0))
        self.step = 0

    @property
    def full_bytes(self) -> int:
        """Of the whole state."""
        entries = self.learner.entries.values()
        return sum(shard.tensor.nbytes for entry in entries for shard in entry.shards)

    def train(self, steps: int) -> list[float]:
        """Seconds of each step."""
        seconds = []
        for _ in range(steps):
            began = time.perf_counter()
            next(self._steps)
            seconds.append(time.perf_counter() - began)
            self.step += 1
        return seconds

    def interval(self, writer: Checkpointer, steps: int) -> None:
        """Train as a run does until a save is due but for the quiet steps, which `save` makes."""
        self.train(steps // 2)
        writer.foresee(self.learner.entries)
        self.train(steps - steps // 2 - QUIET_STEPS)

    def touched(self) -> tuple[int, int]:
        """Rows that the next differential holds, and their bytes with their optimizer states'."""
        rows = size = 0
        for name, entry in self.learner.entries.items():
            for shard in entry.shards:
                if shard.stamps is None:
                    size += shard.tensor.nbytes
                    continue
                count = shard.stamps.count(shard.stamps.intervals.saved)
                rows += count * name.endswith("/weight")
                size += count * shard.tensor.nbytes // max(len(shard.tensor), 1)
        return rows, size

    def open(self, **options: Any) -> Checkpointer:  # noqa: ANN401 - of SavingOptions
        """A checkpointer as a run has it."""
        settings = SavingOptions(in_background=True, chain=100, **options)
        return Checkpointer(str(self.folder / "run"), keep=2, rank=0, world_size=1, options=settings)

    def save(self, writer: Checkpointer, label: str, *, watch: bool = False) -> Saved:
        """Save during training; with `watch`, also measure the processes' memory, which takes some time."""
        quiet = statistics.median(self.train(QUIET_STEPS))
        rows, own = self.touched()
        watcher = MemoryWatch() if watch else None
        writer.save(self.step, self.learner.state, {}, {}, initial=self.learner.initial, wait=False)
        beside: list[float] = []
        reports: list[CheckpointReport] = []
        while not reports:
            beside += self.train(1)
            reports = writer.poll()
        memory = watcher.close() if watcher else 0
        share = rows / int(self.sizes.sum())
        return Saved(label, reports[0], share, own, statistics.median(beside), quiet, memory)

    def load(self, writer: Checkpointer) -> float:
        """Seconds from an empty place in memory to the first new step; files come from the disk."""
        forget(self.folder / "run")
        began = time.perf_counter()
        with self.learner.filling() as state:
            writer.load_newest(state, initial=self.learner.initial)
        self.train(1)
        return time.perf_counter() - began

    def _batches(self) -> Iterator[Batch]:
        sizes = self.sizes[:, None].astype(np.float64)
        low = sizes ** (1 - ZIPF) - 1
        numbers = torch.arange(BATCH)
        while True:
            drawn = self._random.random((len(self.sizes), BATCH))
            ranks = np.minimum((low * drawn + 1) ** (1 / (1 - ZIPF)), sizes) - 1
            ids = (ranks.astype(np.int64) * SPREAD) % self.sizes[:, None]
            yield Batch(
                torch.rand(BATCH, 13),
                torch.from_numpy(ids.astype(np.int32)),
                (torch.rand(BATCH) < 0.3).float(),
                numbers,
                BATCH,
            )


class MemoryWatch:
    """Samples the private memory of this process's children, until it is closed."""

    def __init__(self) -> None:
        self._highest = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def close(self) -> int:
        """The most bytes at one time."""
        self._over.set()
        self._thread.join()
        return self._highest

    def _watch(self) -> None:
        me = psutil.Process()
        while not self._over.wait(0.02):
            held = 0
            for child in me.children():
                try:
                    held += child.memory_full_info().uss
                except psutil.Error:  # it has ended
                    continue
            self._highest = max(self._highest, held)


def forget(folder: Path) -> None:
    """Have the next reads come from the disk."""
    os.sync()
    for path in folder.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


def read_plainly(path: Path) -> float:
    """Seconds that a read of a file from the disk takes."""
    forget(path.parent)
    buffer = bytearray(BUFFER)
    began = time.perf_counter()
    with path.open("rb", buffering=0) as file:
        while file.readinto(buffer):
            pass
    return time.perf_counter() - began


@dataclass(frozen=True, slots=True)
class Spread:
    """Measured values."""

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        """The median."""
        return statistics.median(self.values)

    def text(self, digits: int = 1, factor: float = 1.0) -> str:
        """Return "median (least to largest)"."""
        shown = (self.median, min(self.values), max(self.values))
        median, least, largest = (f"{value * factor:.{digits}f}" for value in shown)
        return f"{median} ({least} to {largest})" if len(self.values) > 1 else median


class Measurement:
    """All that is measured, in rounds; torch.save is timed between the groups.

    Args:
        bench: what is saved.
        steps: between two checkpoints.
        rounds: saves of each kind.
    """

    def __init__(self, bench: Bench, steps: int, rounds: int) -> None:
        self._bench = bench
        self._steps = steps
        self._rounds = rounds
        self._plain = bench.folder / "plain" / "state.pt"
        self.torch_saves: list[float] = []
        self.saves: list[list[Saved]] = []
        self.asynchronous: dict[Kind, tuple[float, list[AsyncSaved]]] = {}
        self.recoveries: dict[str, list[tuple[float, float]]] = {}  # seconds, and those of a plain read

    def make(self) -> None:
        """Measure."""
        self._save_plainly()
        self._differentials("none", "differential, fp32")
        self._recover("the initial state and differentials", mode="incremental")
        self._save_plainly()
        self._differentials("int8", "differential, int8")
        self._full()
        self._recover("a full checkpoint", mode="full")
        self._save_plainly()
        for kind in KINDS:
            self._asynchronous(kind)

    @property
    def _state(self) -> dict[str, Tensor]:
        entries = self._bench.learner.state.items()
        return {
            f"{name}/{number}": shard.tensor
            for name, entry in entries
            for number, shard in enumerate(entry.shards)
        }

    def _save_plainly(self) -> None:
        self.torch_saves.append(save_plainly(self._state, self._plain))

    def _differentials(self, quantization: Quantization, label: str) -> None:
        bench = self._bench
        with bench.open(mode="incremental", quantization=quantization) as writer:
            bench.load(writer)
            for _ in range(2):  # the second begins a chain, so that no file is in both
                bench.train(1)
                writer.save(bench.step, bench.learner.state, {}, {}, initial=bench.learner.initial)
            its = []
            for _ in range(self._rounds):
                bench.interval(writer, self._steps)
                its.append(bench.save(writer, label))
            bench.interval(writer, self._steps)
            its[-1].memory = bench.save(writer, label, watch=True).memory
        self.saves.append(its)

    def _full(self) -> None:
        with self._bench.open(mode="full") as writer:
            self._bench.load(writer)
            self.saves.append([self._bench.save(writer, "full") for _ in range(self._rounds)])

    def _recover(self, base: str, **options: Any) -> None:  # noqa: ANN401 - of SavingOptions
        pairs = []
        for _ in range(self._rounds):
            with self._bench.open(**options) as writer:
                pairs.append((self._bench.load(writer), read_plainly(self._plain)))
        self.recoveries[base] = pairs

    def _asynchronous(self, kind: Kind) -> None:
        bench = self._bench
        folder = bench.folder / "dcp"

        def step() -> float:
            return bench.train(1)[0]

        saver = AsyncSaver(kind)
        try:
            saver.save(self._state, folder, step)  # starts what writes, and allocates
            quiet = statistics.median(bench.train(QUIET_STEPS))
            saves = [saver.save(self._state, folder, step) for _ in range(self._rounds)]
        finally:
            saver.close()
        self.asynchronous[kind] = quiet, saves

    def lines(self) -> list[str]:
        """The lines of the report."""
        plain = Spread(tuple(self.torch_saves))
        return [
            *_table(self.saves, plain.median),
            "",
            (
                f"torch.save of the same state ({self._bench.full_bytes / 1e9:.2f} GB) to the page cache "
                f"takes {plain.text(2)} s; training waits for all of it."
            ),
            "",
            *_asynchronous_table(self.asynchronous, plain.median),
            "",
            *(_recovery(base, pairs) for base, pairs in self.recoveries.items()),
            f"The initial state is drawn in {self._bench.draw_s:.2f} s. All bytes are verified.",
        ]


def _table(groups: list[list[Saved]], torch_save_s: float) -> list[str]:
    full_bytes = groups[-1][0].report.bytes
    lines = [
        (
            "| checkpoint | rows touched | MB | of the touched rows' own | below full | stall ms | "
            "below torch.save | write s | step before / beside | memory MB |"
        ),
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for saves in groups:
        last = saves[-1]
        size = last.report.bytes
        own = size / (last.own_bytes if last.label != "full" else size)
        stall = Spread(tuple(each.report.seconds for each in saves))
        slower = Spread(tuple(each.step_s / each.quiet_s - 1 for each in saves))
        lines.append(
            f"| {last.label} | {last.touched:.2%} | {size / 1e6:.1f} | {own:.3f} | "
            f"{full_bytes / size:.1f}x | {stall.text(1, 1e3)} | {torch_save_s / stall.median:.0f}x | "
            f"{Spread(tuple(each.report.write_s for each in saves)).text(2)} | {slower.median:+.0%} | "
            f"{f'{last.memory / 1e6:.0f}' if last.memory else ''} |"
        )
    return lines


def _asynchronous_table(found: dict[Kind, tuple[float, list[AsyncSaved]]], torch_save_s: float) -> list[str]:
    lines = [
        "| torch.distributed.checkpoint.async_save | stall ms | below torch.save | write s | step beside |",
        "|---|---|---|---|---|",
    ]
    for kind, (quiet, saves) in found.items():
        stall = Spread(tuple(each.stall_s for each in saves))
        slower = statistics.median(each.step_s / quiet - 1 for each in saves)
        lines.append(
            f"| by a {kind} | {stall.text(0, 1e3)} | {torch_save_s / stall.median:.1f}x | "
            f"{Spread(tuple(each.write_s for each in saves)).text(2)} | {slower:+.0%} |"
        )
    return lines


def _recovery(base: str, pairs: list[tuple[float, float]]) -> str:
    ratio = Spread(tuple(seconds / plain for seconds, plain in pairs))
    seconds, plain = (Spread(values) for values in zip(*pairs, strict=True))
    return (
        f"Recovery from {base}, to the first new step: {seconds.text(2)} s, {ratio.text(2)} of a plain read "
        f"of as many bytes ({plain.text(2)} s) beside it."
    )


def _describe(bench: Bench, dim: int, steps: int) -> str:
    load = os.getloadavg()[2]
    return (
        f"{describe_machine()} {int(bench.sizes.sum()):,} rows of {dim} in 26 tables, row-wise Adagrad; "
        f"Zipf {ZIPF} ids, {steps} steps of {BATCH} between checkpoints; one process, one thread, but for a "
        f"stall's copy, which all cores make. The load average was {load:.1f}: others used the machine too. "
        "Memory is that of the saver's processes; the trainer's copy of the touched rows comes on top."
    )


def main() -> None:
    """Measure, print, and keep."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=50_000_000)
    parser.add_argument("--dim", type=int, default=32)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3, help="saves of each kind")
    parser.add_argument("--folder", type=Path, help="on the disk to measure [the temporary folder]")
    parser.add_argument("--write", action="store_true", help="keep the table in benchmarks/results")
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(dir=arguments.folder))
    try:
        with join_world("cpu") as world:
            bench = Bench(world, folder, rows=arguments.rows, dim=arguments.dim)
            measurement = Measurement(bench, arguments.steps, arguments.rounds)
            bench.train(QUIET_STEPS)
            measurement.make()
            lines = measurement.lines()
    finally:
        shutil.rmtree(folder)
    text = "\n".join(
        [
            "# What checkpoints cost",
            "",
            _describe(bench, arguments.dim, arguments.steps),
            "",
            *lines,
            "",
        ]
    )
    print(text)
    if arguments.write:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / f"checkpoint-{datetime.now(UTC):%Y-%m-%d}.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
