"""How fast prepared data is read back: samples/s of one thread, from the page cache.

    python -m benchmarks.reading [--rows N] [--batch-size B] [--dataset DIR]

Without a dataset a random one is written to a temporary folder.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from tests.trainer.support_dataset import write_dataset
from trainer.data.prefetch import Prefetcher
from trainer.data.prepared import PreparedDataset
from trainer.data.stream import BatchStream

if TYPE_CHECKING:
    from collections.abc import Iterable

    from trainer.data.batch import Batch
    from trainer.data.prepared import Split


def main() -> None:
    """Measure and print one line for each way of reading."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--batch-size", type=int, default=8192)
    parser.add_argument("--dataset", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        directory = arguments.dataset or Path(folder)
        if arguments.dataset is None:
            write_dataset(directory, train_rows=arguments.rows, num_embeddings=100_000, shard_rows=262_144)
        _report(directory, arguments.batch_size)


def _report(directory: Path, batch_size: int) -> None:
    start = time.perf_counter()
    split = PreparedDataset.open(str(directory), verify=True).train
    print(f"verify: {split.rows / (time.perf_counter() - start) / 1e6:.1f}M rows/s")
    for shuffle in (False, True):
        best = max(_samples_per_second(split, _stream(split, batch_size, shuffle=shuffle)) for _ in range(5))
        print(f"batch {batch_size}, shuffle={shuffle}: {best / 1e6:.1f}M samples/s")
    with Prefetcher(_stream(split, batch_size, shuffle=True)) as batches:
        print(f"  read ahead by a thread: {_samples_per_second(split, batches) / 1e6:.1f}M samples/s")


def _stream(split: Split, batch_size: int, *, shuffle: bool) -> BatchStream:
    return BatchStream(split, batch_size=batch_size, rank=0, world_size=1, seed=1, epoch=0, shuffle=shuffle)


def _samples_per_second(split: Split, batches: Iterable[Batch]) -> float:
    start = time.perf_counter()
    samples = sum(len(batch) for batch in batches)
    if samples != split.rows:
        raise RuntimeError(f"read {samples} of {split.rows} samples")
    return samples / (time.perf_counter() - start)


if __name__ == "__main__":
    main()
