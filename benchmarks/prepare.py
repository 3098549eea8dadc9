"""`cloudrec data prepare` compared with a plain Polars pipeline that does the same work on the same file.

    python -m benchmarks.prepare [ROWS] [PAIRS] [Criteo|Parquet]

The reference is what one would write with Polars: scan the file, parse its columns, count the values of each
category in the training rows, give those above the minimum frequency their ids by falling frequency (or hash
all of them), transform the numbers, and save the arrays. It keeps the whole table in memory, which `prepare`
does not, and computes no checksums. Both are new processes, from their start to their end, `prepare` through
its command line. They alternate, and a first pair is discarded. Both write through to the page cache of one
disk, `prepare` also to the disk itself.
"""

from __future__ import annotations

import gzip
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import polars as pl

RESULTS = Path(__file__).parent / "results"
BUCKETS = 100_000
MIN_FREQUENCY = 3
_POLL_S = 0.02
SIZES = {"device": 5, "hour": 24, "category": 300, "shop": 20_000, "item": 300_000, "user": 1_000_000}
_INTEGERS = tuple(f"I{each}" for each in range(1, 14))
_CATEGORIES = tuple(f"C{each}" for each in range(1, 27))
DENSE = ("price", "age", "ctr", "depth")


class Work(NamedTuple):
    """A file, and how it is prepared."""

    name: str
    file: Path
    encoding: str  # vocabulary or hash
    options: tuple[str, ...]  # of the command


def write_parquet(path: Path, rows: int, *, append: int = 1, is_plain: bool = False) -> None:
    """Write made-up rows with numbers, texts, whole numbers and a list; `append` times the same ones.

    A plain file is neither packed nor has dictionaries.
    """
    import numpy as np  # noqa: PLC0415 - each measured process loads what it measures
    import pyarrow as pa  # noqa: PLC0415 - likewise
    import pyarrow.parquet as pq  # noqa: PLC0415 - likewise

    random = np.random.default_rng(1)
    columns: dict[str, Any] = {"clicked": random.random(rows) < 0.3}
    columns |= {name: random.lognormal(1, 1, rows) for name in DENSE}
    for name, size in SIZES.items():
        ids = (size * random.random(rows) ** 3).astype(np.int64)  # few frequent values, many rare ones
        columns[name] = ids if name in ("hour", "user") else [f"{name}-{each}" for each in ids.tolist()]
    lengths = random.integers(0, 6, rows)
    tags = pa.array([f"tag {each}" for each in random.integers(0, 5_000, int(lengths.sum())).tolist()])
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    columns["tags"] = pa.ListArray.from_arrays(pa.array(offsets), tags)
    table = pa.table(columns)
    packing: dict[str, Any] = {"compression": "NONE", "use_dictionary": False} if is_plain else {}
    with pq.ParquetWriter(path, table.schema, **packing) as writer:
        for _ in range(append):
            writer.write_table(table, row_group_size=250_000)


def write_schema(path: Path, encoding: str) -> None:
    """Write the schema of such a file, as JSON, which is YAML."""
    how = {"encoding": "hash", "buckets": BUCKETS} if encoding == "hash" else {"min_frequency": MIN_FREQUENCY}
    sparse = [{"name": name, **how} for name in SIZES]
    dense = [
        {"name": DENSE[0], "transform": "log1p"},
        {"name": DENSE[1], "transform": "normalise"},
        *DENSE[2:],
    ]
    tags = {"name": "tags", "kind": "multi_hot", **how}
    path.write_text(json.dumps({"label": "clicked", "dense": dense, "sparse": [*sparse, tags]}))


def reference(file: Path, encoding: str, out: Path) -> None:
    """Prepare a file with Polars alone."""
    import numpy as np  # noqa: PLC0415 - likewise
    import polars as pl  # noqa: PLC0415 - likewise

    out.mkdir()
    is_table = file.suffix == ".parquet"
    if is_table:
        label, numbers, categories, lists = "clicked", list(DENSE), list(SIZES), ["tags"]
    else:
        label, numbers, categories, lists = "label", list(_INTEGERS), list(_CATEGORIES), []
    lazy = _scanned(file)
    frame = lazy.with_columns(test=pl.int_range(pl.len()).hash(0) % 10 == 0).collect()
    train = ~frame["test"]
    ids = {name: _ids(frame[name], train, encoding) for name in categories}
    for name in lists:
        values = frame[name].explode(empty_as_null=False)
        lengths = frame[name].list.len()
        of_train = frame.select(pl.col("test").repeat_by(pl.col(name).list.len()).explode())
        ids[name] = _ids(values, ~of_train["test"].drop_nulls(), encoding)
        np.save(out / f"{name}.lengths.npy", lengths.to_numpy())
    dense = [_number(frame[name], train, is_normal=is_table and name == DENSE[1]) for name in numbers]
    for split, chosen in (("train", train), ("test", frame["test"])):
        np.save(out / f"{split}.labels.npy", frame[label].filter(chosen).cast(pl.UInt8).to_numpy())
        array = pl.DataFrame([each.filter(chosen) for each in dense]).to_numpy()
        np.save(out / f"{split}.dense.npy", array)
        for name in categories:
            np.save(out / f"{split}.{name}.npy", ids[name].filter(chosen).to_numpy())
    for name in lists:
        np.save(out / f"{name}.npy", ids[name].to_numpy())


def scan(file: Path) -> None:
    """Read a file with Polars into memory, and do nothing with it."""
    _scanned(file).collect()


def _scanned(file: Path) -> pl.LazyFrame:
    import polars as pl  # noqa: PLC0415 - likewise

    if file.suffix == ".parquet":
        return pl.scan_parquet(file)
    kinds: dict[str, Any] = dict.fromkeys(("label", *_INTEGERS), pl.Int64)
    kinds |= dict.fromkeys(_CATEGORIES, pl.String)
    return pl.scan_csv(file, has_header=False, separator="\t", quote_char=None, schema=kinds)


def _ids(values: pl.Series, train: pl.Series, encoding: str) -> pl.Series:
    import polars as pl  # noqa: PLC0415 - likewise

    if encoding == "hash":
        return (values.hash(0) % (BUCKETS - 1) + 1).cast(pl.Int32)
    counts = values.filter(train).drop_nulls().value_counts(name="n").filter(pl.col("n") >= MIN_FREQUENCY)
    order = counts.sort(["n", values.name], descending=[True, False]).with_row_index("id", offset=2)
    known = order.select(values.name, pl.col("id").cast(pl.Int32))
    joined = values.to_frame().join(known, on=values.name, how="left", maintain_order="left")
    missing = pl.when(pl.col(values.name).is_null()).then(0).otherwise(1).cast(pl.Int32)
    return joined.select(pl.coalesce("id", missing)).to_series()


def _number(values: pl.Series, train: pl.Series, *, is_normal: bool) -> pl.Series:
    import polars as pl  # noqa: PLC0415 - likewise

    filled = values.fill_null(0).cast(pl.Float64)
    if is_normal:
        known = filled.filter(train)
        return ((filled - known.mean()) / known.std()).cast(pl.Float32)
    return filled.clip(0).log1p().cast(pl.Float32)


def measure(command: list[str]) -> tuple[float, float]:
    """Run a command; return its seconds, and its peak memory in MiB."""
    started = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    peak = _Peak(process.pid)
    _, errors = process.communicate()
    seconds = time.perf_counter() - started
    if process.returncode:
        raise RuntimeError(errors)
    return seconds, peak.mib


class _Peak(threading.Thread):
    """Reads the highest memory of a process while it runs."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.mib = 0.0
        self._status = Path(f"/proc/{pid}/status")
        self.start()

    def run(self) -> None:
        """Read it until the process has ended."""
        while True:
            try:
                text = self._status.read_text(encoding="ascii")
            except OSError:
                return
            if "VmHWM:" not in text:  # it has ended
                return
            self.mib = max(self.mib, int(text.partition("VmHWM:")[2].split()[0]) / 1024)
            time.sleep(_POLL_S)


def prepare_command(work: Work, out: Path) -> list[str]:
    """Return the command that prepares a file."""
    return [sys.executable, "-m", "cloudrec", "data", "prepare", str(work.file), str(out), *work.options]


def _rounds(work: Work, rounds: int, folder: Path) -> list[tuple[tuple[float, float], ...]]:
    """Return the seconds and MiB of Polars' pipeline, of `prepare`, and of Polars' scan, in each round."""
    found: list[tuple[tuple[float, float], ...]] = []
    for number in range(rounds + 1):
        out = [folder / "reference", folder / "prepared"]
        plain = [sys.executable, "-m", "benchmarks.prepare"]
        measured = (
            measure([*plain, "--reference", str(work.file), work.encoding, str(out[0])]),
            measure(prepare_command(work, out[1])),
            measure([*plain, "--scan", str(work.file)]),
        )
        for each in out:
            shutil.rmtree(each)
        if number:
            found.append(measured)
    return found


def _works(folder: Path, rows: int, only: str) -> list[Work]:
    packed, plain, parquet = folder / "rows.tsv.gz", folder / "rows.tsv", folder / "rows.parquet"
    works = []
    for encoding in ("vocabulary", "hash"):
        write_schema(folder / f"{encoding}.yaml", encoding)
        features = ("--features", str(folder / f"{encoding}.yaml"))
        works += [
            Work("Criteo TSV", plain, encoding, ("--encoding", encoding)),
            Work("Criteo TSV, gzip", packed, encoding, ("--encoding", encoding)),
            Work("Parquet, 4 + 7 columns", parquet, encoding, features),
        ]
    works = [each for each in works if each.name.startswith(only)]
    if any(each.file == plain for each in works):
        _write_tsv(folder, rows)
    if any(each.file == parquet for each in works):
        write_parquet(parquet, rows)
    return works


def _write_tsv(folder: Path, rows: int) -> None:
    from cloudrec.data.synth.synth import synthesize  # noqa: PLC0415 - likewise

    synthesize(folder / "synth", rows=rows, test_rows=1000, seed=1)
    with (folder / "rows.tsv.gz").open("wb") as whole:  # gzip members may follow each other
        for part in sorted((folder / "synth" / "train").iterdir()):
            whole.write(part.read_bytes())
    shutil.rmtree(folder / "synth")
    with gzip.open(folder / "rows.tsv.gz") as source, (folder / "rows.tsv").open("wb") as target:
        shutil.copyfileobj(source, target)


def main(rows: int = 2_000_000, pairs: int = 5, only: str = "") -> None:
    """Measure, print the table and keep it in benchmarks/results; `only` begins the names of files."""
    versions = ", ".join(f"{name} {version(name)}" for name in ("polars", "pyarrow", "numpy"))
    lines = [
        f"# data prepare beside a Polars pipeline, {datetime.now(UTC):%Y-%m-%d}",
        "",
        (
            f"{rows:,} rows; {os.cpu_count()} processors ({platform.machine()}), "
            f"Python {platform.python_version()}, {versions}."
        ),
        f"Median of {pairs} rounds of processes; `python -m benchmarks.prepare`.",
        "A bare scan only reads the file into memory.",
        "",
        (
            "| file | encoding | Polars, s | prepare, s | times Polars' speed, pairwise | lowest - highest "
            "| Polars, peak MiB | prepare, peak MiB | Polars' bare scan, s | times its speed |"
        ),
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for work in _works(folder, rows, only):
            found = _rounds(work, pairs, folder)
            ratios = [plain[0] / ours[0] for plain, ours, _ in found]
            bare = statistics.median(bare[0] / ours[0] for _, ours, bare in found)
            seconds = [statistics.median(each[side][0] for each in found) for side in (0, 1, 2)]
            peaks = [max(each[side][1] for each in found) for side in (0, 1)]
            lines.append(
                f"| {work.name} | {work.encoding} | {seconds[0]:.2f} | {seconds[1]:.2f} "
                f"| {statistics.median(ratios):.2f} | {min(ratios):.2f} - {max(ratios):.2f} "
                f"| {peaks[0]:,.0f} | {peaks[1]:,.0f} | {seconds[2]:.2f} | {bare:.2f} |"
            )
            print(lines[-1], flush=True)
    text = "\n".join(lines) + "\n"
    print(text)
    name = f"prepare-{only.lower()}-" if only else "prepare-"
    (RESULTS / f"{name}{datetime.now(UTC):%Y-%m-%d}.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--scan"]:
        scan(Path(sys.argv[2]))
    elif sys.argv[1:2] == ["--reference"]:
        reference(Path(sys.argv[2]), sys.argv[3], Path(sys.argv[4]))
    else:
        rows, pairs, only, *_ = [*sys.argv[1:], *("2_000_000", "5", "")[len(sys.argv) - 1 :]]
        main(int(rows), int(pairs), only)
