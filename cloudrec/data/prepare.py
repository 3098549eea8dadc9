"""From Criteo TSV to the training format, in bounded memory.

One pass reads, parses and writes labels and integers as they will be; categories are numbered as they are
met, the numbers written where their ids will be, and counted. A second pass over the numbers alone turns them
into ids. With hash encoding ids are known at once, and the second pass only takes checksums. Everything is
built in OUT/.tmp and moved into place at the end; dataset.json comes last, so a folder without it is no
dataset, and an earlier dataset stays until a new one is whole.

Memory: per thread a few chunks (4 MiB of text each, as much again once parsed), and what is known of the
categories (80 bytes a distinct one at most, `max_vocabulary` of them per feature).
"""

from __future__ import annotations

import time
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from cloudrec.data import require_extra
from cloudrec.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_SHOWN_BAD_ROWS = 20


@dataclass(frozen=True, kw_only=True)
class PrepareOptions:
    """How a dataset is prepared."""

    encoding: str = "vocabulary"  # or "hash"
    min_frequency: int = 3  # a category seen less often in the training rows counts as unknown
    max_vocabulary: int = (
        1 << 24
    )  # distinct categories a feature may have before counting them takes too much memory
    hash_buckets: int = 100_000  # ids of each feature with hash encoding, the missing one included
    test_fraction: float = 0.1  # held out when the source is not already split
    max_bad_rows: int = 0
    shard_rows: int = 262_144
    chunk_bytes: int = 8 << 20
    seed: int = 0  # which rows are held out
    overwrite: bool = False
    threads: int | None = None  # chunks parsed at once; by default the processors there are, at most 8

    def __post_init__(self) -> None:
        """Refuse values out of range."""
        if self.encoding not in ("vocabulary", "hash"):
            raise UsageError(f"encoding is {self.encoding!r}; it must be 'vocabulary' or 'hash'")
        limits = {
            "min_frequency": (1, 1 << 31),
            "max_vocabulary": (1, (1 << 31) - 3),
            "hash_buckets": (2, (1 << 31) - 1),
            "max_bad_rows": (0, 1 << 62),
            "shard_rows": (1, 1 << 24),
            "chunk_bytes": (1, 1 << 30),
            "seed": (0, (1 << 63) - 1),
            "threads": (1, 256),
        }
        for name, (least, most) in limits.items():
            value = getattr(self, name)
            if value is not None and not least <= value <= most:
                raise UsageError(f"{name} is {value}; it must be between {least} and {most}")
        if not 0.0 <= self.test_fraction < 1.0:
            raise UsageError(f"test_fraction is {self.test_fraction}; it must be at least 0 and less than 1")


@dataclass(frozen=True, kw_only=True)
class PrepareReport:
    """What was prepared, for a person."""

    path: str
    rows: int
    train_rows: int
    test_rows: int
    bad_rows: int
    first_bad_rows: list[dict[str, Any]]
    num_embeddings_per_feature: dict[str, int]
    digest: str
    bytes: int
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain values."""
        return {f.name: getattr(self, f.name) for f in fields(self)}


def prepare(
    source: str,
    out: Path,
    *,
    options: PrepareOptions | None = None,
    progress: Callable[[int, int | None], None] = lambda _done, _total: None,
) -> PrepareReport:
    """Prepare the TSV files that `source` names into the folder `out`.

    Args:
        source: a file, a folder (with train/ and test/ in it or not) or a glob pattern.
        out: the folder; refused when it holds a dataset, unless the options say to replace it.
        options: how.
        progress: called with the bytes read so far and their total, as they lie on disk.

    Raises:
        DataError: the source or its rows are not what they should be, or `out` holds a dataset.
        BusyError: another `prepare` is writing into `out`.
        StorageError: `out` cannot be written.
    """
    require_extra()
    from cloudrec.data.folder import claimed  # noqa: PLC0415 - they load numpy and polars
    from cloudrec.data.pipeline import Pipeline  # noqa: PLC0415 - they load numpy and polars
    from cloudrec.data.sources import find_sources  # noqa: PLC0415 - they load numpy and polars

    options = options or PrepareOptions()
    started = time.monotonic()
    files = find_sources(source)
    with claimed(out, overwrite=options.overwrite) as workspace:
        run = Pipeline(workspace, options, files, progress)
        content = run.run()
        workspace.commit(content, run.bad_rows.kept)
    return PrepareReport(
        path=str(out),
        rows=content["rows"],
        train_rows=content["splits"]["train"]["rows"],
        test_rows=content["splits"]["test"]["rows"],
        bad_rows=content["bad_rows"],
        first_bad_rows=run.bad_rows.kept[:_SHOWN_BAD_ROWS],
        num_embeddings_per_feature=content["num_embeddings_per_feature"],
        digest=content["digest"],
        bytes=sum(
            f["bytes"] for s in content["splits"].values() for h in s["shards"] for f in h["files"].values()
        ),
        seconds=time.monotonic() - started,
    )
