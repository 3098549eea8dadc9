"""The cost of checkpoints, compared with torch.save of the same state and with a plain read from the disk.

    python -m benchmarks.checkpoint [--rows N] [--dim D] [--steps S] [--folder DIR] [--write]

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

from benchmarks.machine import describe_machine
from trainer.base.arguments import make_config
from trainer.base.distributed import join_world
from trainer.checkpoint import Checkpointer
from trainer.checkpoint.save.saves import SavingOptions
from trainer.data.batch import Batch
from trainer.loop.learner import Learner
from trainer.models.model import ModelShape

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from trainer.base.distributed import World
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
            if writer.load_newest(state, initial=self.learner.initial) is None:
                raise RuntimeError("nothing was saved")
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


def timed(action: Callable[[], object]) -> float:
    """Seconds."""
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def measure(bench: Bench, steps: int) -> list[str]:
    """The lines of the report."""
    saves: list[Saved] = []
    bench.train(QUIET_STEPS)
    with bench.open(mode="incremental") as writer:
        for _ in range(2):  # the second begins a chain, so that no file is in both
            bench.train(1)
            writer.save(bench.step, bench.learner.state, {}, {}, initial=bench.learner.initial)
        bench.interval(writer, steps)
        saves.append(bench.save(writer, "differential, fp32"))
        bench.interval(writer, steps)
        saves.append(bench.save(writer, "differential, fp32, memory watched", watch=True))
    with bench.open(mode="incremental") as writer:
        from_initial_s = bench.load(writer)
    for kind in ("int8", "int4"):
        with bench.open(mode="incremental", quantization=kind) as writer:
            bench.load(writer)
            writer.save(bench.step, bench.learner.state, {}, {}, initial=bench.learner.initial)
            bench.interval(writer, steps)
            saves.append(bench.save(writer, f"differential, {kind}"))
    with bench.open(mode="full") as writer:
        bench.load(writer)
        saves.append(bench.save(writer, "full"))
    with bench.open(mode="full") as writer:
        from_full_s = bench.load(writer)
    state = {name: [shard.tensor for shard in entry.shards] for name, entry in bench.learner.state.items()}
    plain = bench.folder / "plain" / "state.pt"
    plain.parent.mkdir()
    torch_save_s = timed(lambda: torch.save(state, plain))
    read_s = read_plainly(plain)
    return [
        *_table(saves, full_bytes=saves[-1].report.bytes, torch_save_s=torch_save_s),
        "",
        (
            f"torch.save of the same state ({bench.full_bytes / 1e9:.2f} GB) to the page cache takes "
            f"{torch_save_s:.2f} s."
        ),
        "",
        (
            f"Recovery, to the first new step: {from_full_s:.2f} s from a full checkpoint, "
            f"{from_full_s / read_s:.2f} of the {read_s:.2f} s that a plain read of the state takes; "
            f"{from_initial_s:.2f} s, {from_initial_s / read_s:.2f} of it, from the initial state (drawn in "
            f"{bench.draw_s:.2f} s) and differentials. All is verified."
        ),
    ]


def _table(saves: list[Saved], *, full_bytes: int, torch_save_s: float) -> list[str]:
    lines = [
        (
            "| checkpoint | rows touched | MB | of the touched rows' own | below full | stall ms | "
            "below torch.save | write s | step ms before / beside | memory MB |"
        ),
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for each in saves:
        report = each.report
        own = report.bytes / (each.own_bytes if each.label != "full" else report.bytes)
        lines.append(
            f"| {each.label} | {each.touched:.2%} | {report.bytes / 1e6:.1f} | {own:.3f} | "
            f"{full_bytes / report.bytes:.1f}x | {report.seconds * 1e3:.1f} | "
            f"{torch_save_s / report.seconds:.0f}x | {report.write_s:.2f} | "
            f"{each.quiet_s * 1e3:.1f} / {each.step_s * 1e3:.1f} ({each.step_s / each.quiet_s - 1:+.0%}) | "
            f"{f'{each.memory / 1e6:.0f}' if each.memory else ''} |"
        )
    return lines


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
    parser.add_argument("--folder", type=Path, help="on the disk to measure [the temporary folder]")
    parser.add_argument("--write", action="store_true", help="keep the table in benchmarks/results")
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(dir=arguments.folder))
    try:
        with join_world("cpu") as world:
            bench = Bench(world, folder, rows=arguments.rows, dim=arguments.dim)
            lines = measure(bench, arguments.steps)
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
