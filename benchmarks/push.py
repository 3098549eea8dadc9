"""How fast `data push` sends a dataset to S3, compared with s3fs's own `put` of the same folder.

    python -m benchmarks.push [--rows N] [--write]

Both send to moto's S3, a separate process on this machine, alternately, with their default checks. `put` is
what one would write by hand: it sends, and does not check what arrived. `push` first reads each file for its
checksum, and afterwards asks the store for the store's own. The second push finds everything there.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import s3fs

from benchmarks.machine import describe_machine, today
from cloudrec.data.push import carry_out, survey
from cloudrec.data.stores import open_store
from tests.trainer.support_clouds import Clouds
from tests.trainer.support_dataset import write_dataset

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

RESULTS = Path(__file__).parent / "results"
ROUNDS = 5
_MB = 1e6


def main(argv: Sequence[str] | None = None) -> None:
    """Measure, print, and write the table if asked to."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--write", action="store_true", help="write results/push-DATE.md")
    arguments = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        dataset = Path(folder) / "prepared"
        write_dataset(dataset, train_rows=arguments.rows, num_embeddings=1000, shard_rows=262_144)
        place = Clouds(stack, Path(folder)).start("s3")
        os.environ.update(place.variables)
        os.environ["AWS_ENDPOINT_URL"] = f"http://127.0.0.1:{place.proxy.upstream_port}"  # no proxy between
        text = _report(dataset, place.new_uri)
    print(text)
    if arguments.write:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / f"push-{today()}.md").write_text(text, encoding="utf-8")


def _report(dataset: Path, new_uri: Callable[[], str]) -> str:
    size = sum(path.stat().st_size for path in dataset.rglob("*") if path.is_file())
    ways: dict[str, Callable[[str], None]] = {
        "cloudrec data push": lambda uri: _push(dataset, uri),
        "s3fs put": lambda uri: _put(dataset, uri),
    }
    seconds: dict[str, list[float]] = {name: [] for name in [*ways, "push again"]}
    for _ in range(ROUNDS):
        for name, send in ways.items():
            uri = new_uri()
            seconds[name].append(_timed(send, uri))
            if name == "cloudrec data push":
                seconds["push again"].append(_timed(send, uri))
            s3fs.S3FileSystem(skip_instance_cache=True).rm(uri, recursive=True)
    ratios = [
        put / push for push, put in zip(seconds["cloudrec data push"], seconds["s3fs put"], strict=True)
    ]
    lines = [f"{describe_machine()} {size / _MB:,.0f} MB, {ROUNDS} rounds in turns, medians.", ""]
    lines += ["| way | s | MB/s |", "|---|---|---|"]
    for name, times in seconds.items():
        middle = statistics.median(times)
        lines.append(f"| {name} | {middle:.2f} | {size / middle / _MB:,.0f} |")
    lines += ["", f"put takes {statistics.median(ratios):.2f} times as long as push "]
    lines[-1] += f"({min(ratios):.2f} to {max(ratios):.2f}).\n"
    return "\n".join(lines)


def _timed(send: Callable[[str], None], uri: str) -> float:
    start = time.perf_counter()
    send(uri)
    return time.perf_counter() - start


def _push(dataset: Path, uri: str) -> None:
    store = open_store(uri)
    carry_out(survey(dataset, store), store, progress=lambda _done, _total: None)


def _put(dataset: Path, uri: str) -> None:
    files = s3fs.S3FileSystem(skip_instance_cache=True, use_listings_cache=False)
    files.put(f"{dataset}/", uri, recursive=True)


if __name__ == "__main__":
    main()
