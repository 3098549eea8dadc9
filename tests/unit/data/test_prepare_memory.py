"""`data prepare` of tables needs no more memory for more rows: measured in new processes, by its command."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.prepare import Work, write_schema
from benchmarks.prepare_memory import peak_mib, write_table

SIZES = (300_000_000, 800_000_000)  # both have more than is kept in memory
MARGIN_MIB = 60  # of about 450: what allocators keep differs from run to run


@pytest.mark.parametrize("encoding", ["vocabulary", "hash"])
def test_the_peak_does_not_grow_with_the_file(tmp_path: Path, encoding: str) -> None:
    write_schema(tmp_path / "features.yaml", encoding)
    file, peaks = tmp_path / "rows.parquet", []
    for size in SIZES:
        write_table(file, size, rows=200_000)
        assert file.stat().st_size > 0.9 * size
        work = Work("rows", file, encoding, ("--features", str(tmp_path / "features.yaml")))
        peaks.append(peak_mib(work, tmp_path)[1])
    assert peaks[1] < peaks[0] + MARGIN_MIB, f"the peaks are {peaks} MiB"
