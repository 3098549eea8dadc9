"""How fast data is read: into the buffers of a GPU, into batches on the CPU, and during training.

    python -m benchmarks.reading [--rows N] [--multi-hot-rows N] [--dataset DIR] [--write]

For a GPU: samples/s that threads copy from the page cache into the buffers from which the GPU takes them,
as stored, of one id a feature and of MLPerf's 214 ids a sample; beside a copy of as many bytes from memory
to the same buffers, in turns. Where there is a GPU, also the whole path: pinned buffers, copies, and the
checked inputs of the model on the device. On the CPU: samples/s of one thread with and without the checks
and the layout of the model's inputs. During training: the trainer's own
steps (benchmarks/work.py, one thread) over the same files, shuffled, and the part of their time that
was spent waiting for a batch, including reading, checking and making the model's input. Without a
dataset a random one is written to a temporary folder.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from benchmarks.input_path import BATCH, cpu_lines, gpu_lines, staging_lines, write_days
from benchmarks.machine import describe_machine, today
from benchmarks.ours import open_learner
from benchmarks.work import Work
from tests.trainer.support_dataset import write_dataset
from trainer.data.checks import BatchChecks
from trainer.data.formats.npy_days import open_days
from trainer.data.formats.prepared import PreparedDataset, PreparedSource
from trainer.data.prefetch import Prefetcher
from trainer.data.stream import BatchStream

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from trainer.data.batch import Batch
    from trainer.data.formats.prepared import Split
    from trainer.data.source import ArraySource, SampleSource

RESULTS = Path(__file__).parent / "results"
BATCH_SIZES = (1024, 8192)
ROUNDS = 5
STEPS = 150


def main(argv: Sequence[str] | None = None) -> None:
    """Measure, print, and write the table if asked to."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--multi-hot-rows", type=int, default=500_000)
    parser.add_argument("--dataset", type=Path)
    parser.add_argument("--write", action="store_true", help="write results/reading-DATE.md")
    arguments = parser.parse_args(argv)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        directory = arguments.dataset or Path(folder)
        if arguments.dataset is None:
            rows = Work().rows
            write_dataset(directory, train_rows=arguments.rows, num_embeddings=rows, shard_rows=262_144)
        split = PreparedDataset.open(str(directory), verify=True).train
        source = PreparedSource(str(directory))
        multi_hot = Path(folder) / "multi_hot"
        multi_hot.mkdir()
        write_days(multi_hot, arguments.multi_hot_rows)
        days = open_days(multi_hot, None)
        table = "\n".join([*_input_path(source, days), "", *_alone(split), "", *_beside_training(source)])
    page = f"# Reading prepared data\n\n{table}\n\nMeasured {today()}. {describe_machine()}"
    print(page)
    if arguments.write:
        (RESULTS / f"reading-{today()}.md").write_text(page + "\n", encoding="utf-8")


def _input_path(one_hot: ArraySource, multi_hot: ArraySource) -> list[str]:
    sources = {"26 ids": one_hot, "214 ids": multi_hot}
    about = (
        f"For a GPU: {one_hot.train.rows:,} prepared samples of 26 ids, and {multi_hot.train.rows:,} of "
        f"MLPerf's days with 214, in shuffled windows; median of {ROUNDS} passes, slowest to fastest, with "
        f"the copies in turn. Load of the machine at the start: {os.getloadavg()[0]:.1f}."
    )
    lines = [
        about,
        "",
        "| into staging buffers | million samples/s | GB/s | of the copies' speed |",
        "| --- | ---: | ---: | ---: |",
    ]
    for name, source in sources.items():
        lines += staging_lines(source.split("train"), name)
    if torch.cuda.is_available():
        for name, source in sources.items():
            lines += gpu_lines(source, name)
    lines += [
        "",
        f"The same by the CPU alone, in one thread, batches of {BATCH:,}.",
        "",
        "| shuffled, on the CPU | million samples/s | GB/s | |",
        "| --- | ---: | ---: | ---: |",
    ]
    for name, source in sources.items():
        lines += cpu_lines(source, name)
    return lines


def _alone(split: Split) -> list[str]:
    lines = [
        f"Alone: {split.rows:,} samples, one thread; median of {ROUNDS} passes, slowest to fastest.",
        "",
        "| batch | order | samples/s |",
        "| ---: | --- | ---: |",
    ]
    for batch_size in BATCH_SIZES:
        for shuffle in (False, True):
            speeds = [
                _samples_per_second(split, _stream(split, batch_size, shuffle=shuffle)) for _ in range(ROUNDS)
            ]
            order = "shuffled" if shuffle else "as stored"
            lines.append(f"| {batch_size} | {order} | {_spread(speeds)} |")
    speeds = []
    for _ in range(ROUNDS):
        with Prefetcher(_stream(split, BATCH_SIZES[-1], shuffle=True)) as batches:
            speeds.append(_samples_per_second(split, batches))
    lines.append(f"| {BATCH_SIZES[-1]} | shuffled, read ahead by a thread | {_spread(speeds)} |")
    return lines


def _beside_training(dataset: SampleSource) -> list[str]:
    work = Work()
    with open_learner(work) as (learner, _):
        checks = BatchChecks(dataset, learner.shape.num_embeddings, hash_overflow=False)
        shares, step_times = [], []
        for number in range(ROUNDS):
            stream = dataset.batches(
                "train", batch_size=work.batch_size, rank=0, world_size=1, seed=1, epoch=number, shuffle=True
            )
            steps = learner.pipeline.steps(checks.stream(islice(stream, STEPS)), number * STEPS)
            wait, start = learner.pipeline.data_wait_s, time.perf_counter()
            count = sum(1 for _ in steps)
            seconds = time.perf_counter() - start
            shares.append((learner.pipeline.data_wait_s - wait) / seconds)
            step_times.append(seconds / count)
    return [
        (
            f"Beside training: {STEPS} steps of {work.batch_size} samples at "
            f"{work.batch_size / statistics.median(step_times):,.0f} samples/s, fp32; of a step's "
            f"{1e3 * statistics.median(step_times):.1f} ms {statistics.median(shares):.2%} went to its batch "
            f"({min(shares):.2%} to {max(shares):.2%} over {ROUNDS} rounds)."
        )
    ]


def _stream(split: Split, batch_size: int, *, shuffle: bool) -> BatchStream:
    return BatchStream(split, batch_size=batch_size, rank=0, world_size=1, seed=1, epoch=0, shuffle=shuffle)


def _samples_per_second(split: Split, batches: Iterable[Batch]) -> float:
    start = time.perf_counter()
    samples = sum(len(batch) for batch in batches)
    if samples != split.rows:
        raise RuntimeError(f"read {samples} of {split.rows} samples")
    return samples / (time.perf_counter() - start)


def _spread(speeds: Sequence[float]) -> str:
    return f"{statistics.median(speeds):,.0f} ({min(speeds):,.0f} to {max(speeds):,.0f})"


if __name__ == "__main__":
    main()
