"""The peak memory of `cloudrec data prepare` over the size of its input.

    python -m benchmarks.prepare_memory [GB...]

Files repeat made-up rows, so that the vocabulary has the same size in all of them: what is left must not
grow. Parquet is written without packing and without dictionaries. A size needs about three times its space in
TMPDIR.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from benchmarks.prepare import RESULTS, Work, measure, prepare_command, write_parquet, write_schema

_GB = 10**9
_BLOCK_ROWS = 1_000_000


def write_tsv(path: Path, size: int, *, rows: int = _BLOCK_ROWS) -> None:
    """Write Criteo-format rows until the file has a size."""
    import gzip  # noqa: PLC0415 - what each measured process loads is its own

    from cloudrec.data.synth.synth import synthesize  # noqa: PLC0415 - likewise

    with tempfile.TemporaryDirectory(dir=path.parent) as name:
        synthesize(Path(name) / "synth", rows=rows, test_rows=1000, seed=1)
        parts = sorted((Path(name) / "synth" / "train").iterdir())
        block = b"".join(gzip.decompress(part.read_bytes()) for part in parts)
    with path.open("wb") as file:
        for _ in range(max(1, round(size / len(block)))):
            file.write(block)


def write_table(path: Path, size: int, *, rows: int = _BLOCK_ROWS) -> None:
    """Write a Parquet file of about a size."""
    write_parquet(path, rows, is_plain=True)
    write_parquet(path, rows, is_plain=True, append=max(1, round(size / path.stat().st_size)))


def peak_mib(work: Work, folder: Path) -> tuple[float, float]:
    """Prepare a file; return the seconds and the peak memory in MiB."""
    out = folder / "out"
    try:
        return measure(prepare_command(work, out))
    finally:
        shutil.rmtree(out, ignore_errors=True)


def main(sizes: list[float]) -> None:
    """Measure, print the table and keep it in benchmarks/results."""
    versions = ", ".join(f"{name} {version(name)}" for name in ("polars", "pyarrow", "numpy"))
    lines = [
        f"# Peak memory of data prepare, {datetime.now(UTC):%Y-%m-%d}",
        "",
        f"{os.cpu_count()} processors, {versions}; `python -m benchmarks.prepare_memory`.",
        "Rows are repeated, so the vocabulary has the same size in all.",
        "",
        "| file | encoding | size, GB | time, s | peak memory, MiB |",
        "|---|---|---|---|---|",
    ]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for size in sizes:
            for work in _works(folder, int(size * _GB)):
                seconds, peak = peak_mib(work, folder)
                found = work.file.stat().st_size / _GB
                lines.append(f"| {work.name} | {work.encoding} | {found:.1f} | {seconds:.0f} | {peak:,.0f} |")
                print(lines[-1], flush=True)
            for file in ("rows.tsv", "rows.parquet"):
                (folder / file).unlink()
    text = "\n".join(lines) + "\n"
    (RESULTS / f"prepare-memory-{datetime.now(UTC):%Y-%m-%d}.md").write_text(text, encoding="utf-8")


def _works(folder: Path, size: int) -> list[Work]:
    tsv, parquet = folder / "rows.tsv", folder / "rows.parquet"
    write_tsv(tsv, size)
    write_table(parquet, size)
    works = [Work("Criteo TSV", tsv, "vocabulary", ())]
    for encoding in ("vocabulary", "hash"):
        write_schema(folder / f"{encoding}.yaml", encoding)
        features = ("--features", str(folder / f"{encoding}.yaml"))
        works.append(Work("Parquet, 4 + 7 columns", parquet, encoding, features))
    return works


if __name__ == "__main__":
    main([float(each) for each in sys.argv[1:]] or [1.0, 3.0, 10.0])
