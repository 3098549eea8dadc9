"""The pipeline of `data prepare`: chunks are parsed in parallel and written to shards in order."""

from __future__ import annotations

import os
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from cloudrec.data.format import manifest, tsv
from cloudrec.data.format.shards import Disk
from cloudrec.data.hashes import mix64
from cloudrec.data.prepare.encode import make_encoder
from cloudrec.data.prepare.folder import BadRow
from cloudrec.data.prepare.sources import SourceProgress, read_chunks
from cloudrec.errors import DataError
from cloudrec.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy.typing as npt

    from cloudrec.data.format.encoding import Encoding
    from cloudrec.data.format.shards import OpenShard
    from cloudrec.data.format.tsv import BadLine, Parsed
    from cloudrec.data.prepare.folder import Workspace
    from cloudrec.data.prepare.options import PrepareOptions
    from cloudrec.data.prepare.sources import SourceFile
    from cloudrec.data.vocabulary import KnownVocabulary

SPLITS = ("train", "test")
_KEPT_BAD_ROWS = 10_000


class BadRows:
    """The skipped rows: their number, and the first ones."""

    def __init__(self, most: int) -> None:
        self.count = 0
        self.kept: list[BadRow] = []
        self._most = most

    def add(self, source: SourceFile, bad: list[BadLine]) -> None:
        """Add bad lines; DataError if there are more than allowed."""
        for line in bad:
            self.count += 1
            row = BadRow(path=str(source.path), **line._asdict())
            if len(self.kept) < _KEPT_BAD_ROWS:
                self.kept.append(row)
            if self.count > self._most:
                limit = f" (more than the {self._most:,} allowed)" if self._most else ""
                raise DataError(
                    f"{row}{limit}",
                    remedy="fix the file, or let --max-bad-rows N skip such rows; columns other than "
                    "Criteo's need --features FILE (docs/features.md)",
                )


@dataclass
class _Split:
    """A split while it is being written."""

    name: str
    shards: list[OpenShard] = field(default_factory=list)
    files: list[dict[str, manifest.ShardFile]] = field(default_factory=list)  # of full shards, but the ids
    room: int = 0  # rows that the last shard still takes
    positives: int = 0


class Preparation:
    """One preparation, from the source files to the contents of dataset.json."""

    def __init__(
        self,
        workspace: Workspace,
        options: PrepareOptions,
        files: list[SourceFile],
        progress: Callable[[int, int | None], None],
        known: KnownVocabulary | None = None,
        *,
        unlabelled: bool = False,
    ) -> None:
        """`unlabelled`: the lines have no label."""
        self.bad_rows = BadRows(options.max_bad_rows)
        self._disk = Disk(workspace.staging)
        self._options = options
        self._files = files
        self._unlabelled = unlabelled
        self._progress = progress
        self._threads = options.threads or min(os.cpu_count() or 1, 8)
        self._splits = {name: _Split(name) for name in SPLITS}
        self._sources: list[dict[str, Any]] = [
            {"path": str(f.path), "bytes": f.bytes, "rows": 0, "bad_rows": 0} for f in files
        ]
        self._encoder = make_encoder(options, known)

    def run(self) -> dict[str, Any]:
        """Write all shards, and return the contents of dataset.json."""
        with self._disk, ThreadPoolExecutor(self._threads) as parsers, ThreadPoolExecutor(1) as writer:
            writing: deque[Future[None]] = deque()
            for number, parsed in self._parsed(parsers):
                source = self._sources[number]
                self.bad_rows.add(self._files[number], parsed.bad)
                source["rows"] += len(parsed.labels)
                source["bad_rows"] += len(parsed.bad)
                writing.append(writer.submit(self._distribute, number, parsed))
                if len(writing) > 1:  # bounds the memory of parsed chunks
                    writing.popleft().result()
            for future in writing:
                future.result()
            self._require_rows()
            for split in self._splits.values():
                if split.room:
                    split.files.append(split.shards[-1].finish_rows(self._disk))
            encoding = self._encoder.finish(self._disk)
            shards = {
                name: list(parsers.map(self._finished, split.shards, split.files))
                for name, split in self._splits.items()
            }
            self._disk.finish()
        return self._content(shards, encoding)

    def _finished(self, shard: OpenShard, files: dict[str, manifest.ShardFile]) -> manifest.DatasetShard:
        ids = shard.finish_numbers(self._disk, self._encoder.turn)
        return manifest.DatasetShard(name=shard.name, rows=shard.rows, files={**files, "sparse": ids})

    def _parsed(self, pool: ThreadPoolExecutor) -> Iterator[tuple[int, Parsed]]:
        """Parse all chunks, a few in parallel, and yield (file number, rows) in the order of the files."""
        total = sum(f.bytes for f in self._files)
        chunks = self._submitted(pool)
        running: deque[tuple[int, int, Future[Parsed]]] = deque()
        try:
            while True:
                running.extend(islice(chunks, self._threads + 1 - len(running)))
                if not running:
                    return
                number, bytes_read, future = running.popleft()
                yield number, future.result()
                self._progress(bytes_read, total)
        finally:
            for _, _, future in running:
                future.cancel()

    def _submitted(self, pool: ThreadPoolExecutor) -> Iterator[tuple[int, int, Future[Parsed]]]:
        before = first_row = 0
        for number, source in enumerate(self._files):
            reading = SourceProgress(source)
            for chunk in read_chunks(reading, first_row=first_row, chunk_bytes=self._options.chunk_bytes):
                yield number, before + reading.bytes_read, pool.submit(self._parse, chunk, source.split)
            before += source.bytes
            first_row += reading.lines

    def _parse(self, chunk: tsv.Chunk, split: str | None) -> Parsed:
        chosen = None if split is not None or not self._options.test_fraction else self._held_out
        if self._unlabelled:
            text = b"0\t" + chunk.text[:-1].replace(b"\n", b"\n0\t") + b"\n"
            chunk = chunk._replace(text=text)
        return tsv.parse(chunk, self._encoder, chosen)

    def _distribute(self, number: int, parsed: Parsed) -> None:
        """Append rows to the open shard of their split, and count the training rows' categories."""
        rows = len(parsed.labels)
        trained = 0 if self._files[number].split == "test" else rows - parsed.held_out
        self._append(self._splits["train"], parsed, 0, trained)
        self._append(self._splits["test"], parsed, trained, rows)
        self._encoder.count(parsed, trained)

    def _held_out(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Return which rows are held out; depends on row number and seed only, not on the chunks."""
        key = mix64(np.array([self._options.seed], np.uint64))
        limit = np.uint64(int(self._options.test_fraction * 2**53) << 11)
        return mix64(rows.astype(np.uint64) ^ key) < limit

    def _append(self, split: _Split, parsed: Parsed, start: int, stop: int) -> None:
        split.positives += int(np.count_nonzero(parsed.labels[start:stop]))
        while start < stop:
            if not split.room:
                name = f"{split.name}/shard-{len(split.shards):05d}"
                split.room = self._options.shard_rows
                split.shards.append(self._disk.shard(name, capacity=split.room))
            count = min(stop - start, split.room)
            split.shards[-1].put(parsed, start, start + count)
            split.room -= count
            start += count
            if not split.room:
                split.files.append(split.shards[-1].finish_rows(self._disk))

    def _require_rows(self) -> None:
        if self._splits["train"].shards:
            return
        if self.bad_rows.count:
            raise DataError(
                f"there are no good training rows; of {self.bad_rows.count:,} bad ones "
                f"the first is {self.bad_rows.kept[0]}",
                remedy="a row is a label, 13 integers and 26 hexadecimal categories, with tabs between",
            )
        raise DataError("there are no training rows", remedy="add rows, or lower --test-fraction")

    def _content(self, shards: dict[str, list[manifest.DatasetShard]], encoding: Encoding) -> dict[str, Any]:
        splits = {
            name: {
                "rows": sum(s.rows for s in of_split),
                "positives": self._splits[name].positives,
                "shards": [s.to_json() for s in of_split],
            }
            for name, of_split in shards.items()
        }
        embeddings = {table.feature: table.rows for table in encoding.tables}
        return {
            "format": manifest.FORMAT,
            "schema_version": manifest.SCHEMA_VERSION,
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "cloudrec_version": __version__,
            "dense_features": list(tsv.INTEGERS),
            "sparse_features": list(tsv.CATEGORIES),
            "num_embeddings_per_feature": embeddings,
            "encoding": encoding.to_json(),
            "dense_transform": "log1p",
            **({"labels": False} if self._unlabelled else {}),
            "rows": sum(split["rows"] for split in splits.values()),
            "bad_rows": self.bad_rows.count,
            "sources": self._sources,
            "splits": splits,
            "digest": manifest.digest(splits, embeddings),
        }
