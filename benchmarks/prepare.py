"""`cloudrec data prepare` compared with Polars' own scan of the same file: rows per second, and memory.

    python -m benchmarks.prepare [ROWS] [REPETITIONS]

Both read one gzipped Criteo-format file of synthetic rows. Polars' scan parses its 40 columns (Int64 and
String) in its streaming engine and counts the empty fields, so nothing is written; prepare parses, checks,
splits, counts categories, assigns ids and writes checksummed shards through to the disk. Each measurement is
a new process, the kinds alternate, and a warm-up of each is discarded.
"""

from __future__ import annotations

import json
import os
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

RESULTS = Path(__file__).parent / "results"


def scan(path: Path) -> int:
    """Read the file by Polars alone; return its rows."""
    import polars as pl  # noqa: PLC0415 - each measured process loads what it measures

    from cloudrec.data.format.tsv import COLUMNS, INTEGERS, LABEL  # noqa: PLC0415 - likewise

    schema = {name: pl.Int64 if name in (LABEL, *INTEGERS) else pl.String for name in COLUMNS}
    lazy = pl.scan_csv(path, has_header=False, separator="\t", quote_char=None, schema=schema)
    nulls = lazy.select(pl.len().alias("rows"), pl.all().null_count()).collect(engine="streaming")
    return int(nulls["rows"][0])


def prepare(path: Path, encoding: str) -> int:
    """Prepare the file; return its rows."""
    from cloudrec.data.prepare.options import PrepareOptions  # noqa: PLC0415 - likewise
    from cloudrec.data.prepare.prepare import prepare as run  # noqa: PLC0415 - likewise

    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        out = Path(folder) / "dataset"
        return run(str(path), out, options=PrepareOptions(encoding=encoding)).rows


def measure(kind: str, path: Path) -> dict[str, float]:
    """Run one kind of work in a fresh process; return rows a second and peak memory."""
    command = [sys.executable, "-m", "benchmarks.prepare", "--one", kind, str(path)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def _one(kind: str, path: Path) -> None:
    import polars as pl  # noqa: PLC0415 - loading it is no one's work

    import cloudrec.data.prepare.pipeline  # noqa: PLC0415 - likewise

    del cloudrec, pl
    loaded = time.process_time()
    started = time.perf_counter()
    rows = scan(path) if kind == "polars" else prepare(path, kind)
    seconds = time.perf_counter() - started
    usage = resource.getrusage(resource.RUSAGE_SELF)
    processor = usage.ru_utime + usage.ru_stime - loaded
    print(
        json.dumps(
            {
                "rows_per_s": rows / seconds,
                "peak_mib": _peak_mib(),
                "processor_us": 1e6 * processor / rows,
            }
        )
    )


def _peak_mib() -> float:
    """Return this process's peak memory; getrusage would count its parent's from before the exec."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def _gather(path: Path, repetitions: int) -> dict[str, list[dict[str, float]]]:
    kinds = ("polars", "vocabulary", "hash")
    results: dict[str, list[dict[str, float]]] = {kind: [] for kind in kinds}
    for repetition in range(repetitions + 1):
        for kind in kinds:
            result = measure(kind, path)
            if repetition:
                results[kind].append(result)
    return results


def _table(rows: int, size: int, results: dict[str, list[dict[str, float]]]) -> str:
    lines = [
        f"# data prepare beside Polars' scan, {datetime.now(UTC):%Y-%m-%d}",
        "",
        f"{rows:,} rows, {size / 2**20:.0f} MiB gzipped; {os.cpu_count()} processors ({platform.machine()})",
        f"Python {platform.python_version()}; median of {len(results['polars'])} alternating processes.",
        "",
        "| work | rows/s | lowest - highest | of the scan, pairwise | processor a row | peak memory |",
        "|---|---|---|---|---|---|",
    ]
    names = {"polars": "Polars' scan", "vocabulary": "prepare, vocabulary", "hash": "prepare, hash"}
    base = [r["rows_per_s"] for r in results["polars"]]
    for kind, runs in results.items():
        speeds = [r["rows_per_s"] for r in runs]
        ratio = statistics.median(s / b for s, b in zip(speeds, base, strict=True))
        processor = statistics.median(r["processor_us"] for r in runs)
        peak = max(r["peak_mib"] for r in runs)
        lines.append(
            f"| {names[kind]} | {statistics.median(speeds):,.0f} | {min(speeds):,.0f} - {max(speeds):,.0f} "
            f"| {ratio:.2f} | {processor:.2f} us | {peak:,.0f} MiB |"
        )
    return "\n".join(lines) + "\n"


def main(rows: int = 2_000_000, repetitions: int = 5) -> None:
    """Measure, print the table and keep it in benchmarks/results."""
    from cloudrec.data.synth.synth import synthesize  # noqa: PLC0415 - likewise

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        started = time.perf_counter()
        synthesize(folder / "synth", rows=rows, test_rows=1000, seed=1)
        synth_speed = rows / (time.perf_counter() - started)
        path = folder / "rows.tsv.gz"
        with path.open("wb") as whole:  # gzip members may follow each other
            for part in sorted((folder / "synth" / "train").iterdir()):
                whole.write(part.read_bytes())
        shutil.rmtree(folder / "synth")
        results = _gather(path, repetitions)
        table = _table(rows, path.stat().st_size, results)
    table += f"\nsynth wrote these rows at {synth_speed:,.0f} rows/s, its model fit included.\n"
    print(table)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"prepare-{datetime.now(UTC):%Y-%m-%d}.md").write_text(table, encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        _one(sys.argv[2], Path(sys.argv[3]))
    else:
        main(*(int(argument) for argument in sys.argv[1:]))
