"""What publishing costs: bytes and seconds of deltas beside full versions, also for a server.

    python -m benchmarks.publishing [--rows N] [--steps N] [--write]

A run trains on ids of a Zipf distribution (exponent 1.2, modulo the tables' rows) and commits six
checkpoints. Each is published, in every precision. A server that holds the version before loads the next
one; another loads it alone.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.machine import describe_machine, today
from tests.trainer.support_dataset import Rows, write_rows
from tests.trainer.support_runs import run_here
from trainer.checkpoint.format import catalogue
from trainer.checkpoint.store.base import open_store
from trainer.publishing.publisher import Publisher, PublishingOptions
from trainer.serving.publication.format import PRECISIONS
from trainer.serving.publication.source import PublicationSource

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainer.publishing.publisher import PublishReport

RESULTS = Path(__file__).parent / "results"
CHECKPOINTS = 6
BATCH, DIM = 2_048, 32
EXPONENT = 1.2


def main(argv: Sequence[str] | None = None) -> None:
    """Measure, print, and write the table if asked to."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=2_500_000, help="of all tables")
    parser.add_argument("--steps", type=int, default=100, help="between two checkpoints")
    parser.add_argument("--write", action="store_true", help="write results/publishing-DATE.md")
    arguments = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run = _train(folder, arguments.rows, arguments.steps)
        lines = [_row(folder, run, precision) for precision in PRECISIONS]
    page = "\n".join(
        [
            "# Publishing",
            "",
            (
                f"Three tables of {arguments.rows:,} rows in all, {DIM} wide; {CHECKPOINTS} checkpoints, "
                f"{arguments.steps} steps of {BATCH:,} samples apart, ids of a Zipf distribution "
                f"({EXPONENT}). Medians of the versions after the second."
            ),
            "",
            (
                "| precision | full MB | delta MB | delta / full | rows changed | publish full s "
                "| publish delta s | load full s | load delta s |"
            ),
            "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
            *lines,
            "",
            f"Measured {today()}, files in the page cache. {describe_machine()}",
        ]
    )
    print(page)
    if arguments.write:
        (RESULTS / f"publishing-{today()}.md").write_text(page + "\n", encoding="utf-8")


def _train(folder: Path, rows: int, steps: int) -> str:
    random = np.random.default_rng(0)
    sizes = {"C1": rows * 2 // 5, "C2": rows * 2 // 5, "C3": rows // 5}

    def split(count: int) -> Rows:
        ids = np.stack([(random.zipf(EXPONENT, count) - 1) % size for size in sizes.values()])
        labels = (random.random(count) < 0.3).astype(np.uint8)
        return Rows(labels, random.random((count, 4), dtype=np.float32), ids.astype(np.int32))

    contents = {"train": split(CHECKPOINTS * steps * BATCH), "test": split(BATCH)}
    write_rows(folder / "data", contents, num_embeddings=sizes, shard_rows=262_144)
    settings: dict[str, Any] = {"embedding_dim": DIM, "dense_arch_layer_sizes": (DIM,)}
    settings |= {"batch_size": BATCH, "checkpoint_interval": steps, "keep_checkpoints": CHECKPOINTS + 1}
    run_here(folder / "data", folder / "run", **settings)
    return str(folder / "run" / "checkpoints")


def _row(folder: Path, run: str, precision: str) -> str:
    out = str(folder / precision)
    publisher = Publisher(out, PublishingOptions(precision=precision))
    store = open_store(run)
    reports: list[PublishReport] = []
    alone, above = [], []
    source, held = PublicationSource(out), None
    for listed in catalogue.list_commits(store):
        if listed.commit is None:
            raise RuntimeError(f"{listed.name} cannot be read")
        reports.append(publisher.publish(store, listed.commit))
        version = source.newest()
        start = time.perf_counter()
        held = source.load(version, held)
        middle = time.perf_counter()
        PublicationSource(out).load(version, None)
        above.append(middle - start)
        alone.append(time.perf_counter() - middle)
    deltas = reports[2:]
    size = statistics.median(each.bytes for each in deltas)
    figures = [
        f"{reports[0].bytes / 1e6:,.1f}",
        f"{size / 1e6:,.1f}",
        f"{size / reports[0].bytes:.1%}",
        f"{statistics.median(each.rows for each in deltas):,.0f}",
        f"{reports[0].seconds:.2f}",
        f"{statistics.median(each.seconds for each in deltas):.2f}",
        f"{statistics.median(alone[2:]):.2f}",
        f"{statistics.median(above[2:]):.2f}",
    ]
    return f"| {precision} | {' | '.join(figures)} |"


if __name__ == "__main__":
    main()
