"""The preparation of tables with a feature schema, in two passes over the files.

The first pass counts the values of vocabularies and the mean of normalised numbers, in the training rows; it
is left out if neither is needed, or if another dataset's encoding is used (`like`). The second pass writes
the shards. Memory: a few batches, the rows of one shard, and the vocabularies.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from cloudrec.data.format import encoding, manifest
from cloudrec.data.format.shards import Disk
from cloudrec.data.prepare import table_columns as columns
from cloudrec.data.prepare.encode import mix64
from cloudrec.data.prepare.folder import BadRow
from cloudrec.data.prepare.table_files import read_batches
from cloudrec.data.prepare.table_shards import EncodedRows, SplitWriter
from cloudrec.data.prepare.table_values import Ids, ValueCounter
from cloudrec.data.vocabulary import texts_in, to_lines
from cloudrec.errors import DataError, UsageError
from cloudrec.version import __version__
from cloudrec_contract import features as schemas

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy.typing as npt
    import pyarrow as pa

    from cloudrec.data.prepare.folder import Workspace
    from cloudrec.data.prepare.options import PrepareOptions
    from cloudrec.data.prepare.table_columns import Bags, Problem
    from cloudrec.data.prepare.table_files import TableFile
    from cloudrec.data.vocabulary import KnownVocabulary
    from cloudrec_contract.features import FeatureSchema

SPLITS = ("train", "test")
_KEPT_BAD_ROWS = 10_000


def schema_like(known: KnownVocabulary, own: FeatureSchema | None) -> FeatureSchema:
    """Return the schema of another dataset, with the columns of `own` if it names them.

    Raises:
        DataError: that dataset has no schema, or `own` gives other numbers or ids.
    """
    given = known.encoding.features
    if given is None:
        raise DataError(
            "the encoding to use is that of Criteo's columns, not of a feature schema",
            remedy="leave --features out, or name a dataset that was prepared with a schema",
        )
    try:
        theirs = schemas.parse(given)
    except schemas.SchemaError as error:
        raise DataError(f"its feature schema is malformed: {error}", remedy=encoding.AGAIN) from error
    if own is None:
        return theirs
    if own.mapping() != theirs.mapping():
        mine, other = ([entry["name"] for entry in each.mapping()] for each in (own, theirs))
        differing = [
            name for name in dict.fromkeys([*mine, *other]) if _entry(own, name) != _entry(theirs, name)
        ]
        raise DataError(
            f"the schema differs from that of --like in {', '.join(differing) or 'the order of features'}",
            remedy="leave --features out, which takes that of --like; only `column:` may differ",
        )
    return own


def _entry(schema: FeatureSchema, name: str) -> dict[str, Any] | None:
    return next((each for each in schema.mapping() if each["name"] == name), None)


class _Chosen(NamedTuple):
    """The good rows of a batch that are in one split."""

    split: str
    batch: pa.RecordBatch


class TablePreparation:
    """One preparation, from the tables to the contents of dataset.json."""

    def __init__(
        self,
        workspace: Workspace,
        options: PrepareOptions,
        files: Sequence[TableFile],
        schema: FeatureSchema,
        *,
        progress: Callable[[int, int | None], None],
        known: KnownVocabulary | None = None,
    ) -> None:
        self.bad_rows: list[BadRow] = []
        self.bad_count = 0
        self._options = options
        self._files = files
        self._schema = schema
        self._progress = progress
        self._known = known
        self._disk = Disk(workspace.staging)
        self._read_bytes = 0
        self._sources: list[dict[str, Any]] = [
            {"path": str(each.path), "bytes": each.bytes, "rows": 0, "bad_rows": 0} for each in files
        ]
        self._statistics: dict[str, dict[str, float]] = {}
        self._ids: dict[str, Ids] = {}
        needs_counts = any(each.encoding == "vocabulary" for each in schema.sparse)
        self._has_two_passes = known is None and (
            needs_counts or any(each.transform == "normalise" for each in schema.dense)
        )

    def run(self) -> dict[str, Any]:
        """Write all shards, and return the contents of dataset.json."""
        with self._disk:
            tables = self._use_known() if self._known is not None else self._learn()
            writers = {
                name: SplitWriter(self._disk, name, shard_rows=self._options.shard_rows) for name in SPLITS
            }
            for chosen in self._rows(is_last=True):
                writers[chosen.split].add(self._encoded(chosen.batch))
            if not writers["train"].rows:
                bad = (
                    f"; of {self.bad_count:,} bad ones the first is {self.bad_rows[0]}"
                    if self.bad_rows
                    else ""
                )
                raise DataError(
                    f"there are no training rows{bad}", remedy="add rows, or lower --test-fraction"
                )
            splits = {name: writer.finish() for name, writer in writers.items()}
            self._disk.finish()
        return self._content(splits, tables)

    def _learn(self) -> encoding.Encoding:
        """Count values and sums in the training rows, write the vocabularies, and return the encoding."""
        shared = self._schema.tables
        counters = {
            table: ValueCounter(table, most=self._options.max_vocabulary)
            for table, features in shared.items()
            if features[0].encoding == "vocabulary"
        }
        moments = {each.name: _Moments() for each in self._schema.dense if each.transform == "normalise"}
        for chosen in self._rows(is_last=False) if self._has_two_passes else ():
            if chosen.split == "train":
                self._count(chosen.batch, counters, moments)
        self._statistics = {name: each.to_json() for name, each in moments.items()}
        entries: dict[str, encoding.Table] = {}
        for table, features in shared.items():
            first, values = features[0], list[str]()
            file, sha256 = None, ""
            if table in counters:
                values = counters[table].finish(min_frequency=first.min_frequency, max_size=first.max_size)
                data = to_lines(values)
                file = self._disk.write(f"{encoding.FOLDER}/{table}.jsonl", memoryview(data))
                sha256 = hashlib.sha256(data).hexdigest()
            self._ids[table] = Ids(first, values)
            entries[table] = encoding.Table(
                feature=table, rows=self._ids[table].rows, file=file, sha256=sha256
            )
        return encoding.Encoding(
            kind=encoding.FEATURES,
            tables=tuple(replace(entries[each.table], feature=each.name) for each in self._schema.sparse),
            features=self._schema.to_json(),
            rules={"features": self._schema.mapping(), "statistics": self._statistics},
        )

    def _use_known(self) -> encoding.Encoding:
        assert self._known is not None  # noqa: S101 - for the type checker: asked with one alone
        theirs = self._known.encoding
        if theirs.rules is None:
            raise DataError("the encoding has no feature schema", remedy=encoding.AGAIN)
        self._statistics = dict(theirs.rules["statistics"])
        self._known.write(self._disk)
        for table, features in self._schema.tables.items():
            data = self._known.files.get(features[0].name, b"")
            self._ids[table] = Ids(features[0], texts_in(data))
        return replace(theirs, features=self._schema.to_json())

    def _count(
        self, batch: pa.RecordBatch, counters: dict[str, ValueCounter], moments: dict[str, _Moments]
    ) -> None:
        for dense in self._schema.dense:
            if dense.name in moments:
                moments[dense.name].add(columns.numbers(batch.column(dense.column), dense)[0])
        for sparse in self._schema.sparse:
            if sparse.table in counters:
                counters[sparse.table].add(columns.bags(batch.column(sparse.column), sparse).values)

    def _rows(self, *, is_last: bool) -> Iterator[_Chosen]:
        """Yield the good rows of all files, batch by batch and split by split."""
        row = 0
        for number, file in enumerate(self._files):
            in_file = 0
            for batch in read_batches(file, self._schema):
                good = self._good(batch, number, in_file, is_last=is_last)
                test = self._in_test(file, np.arange(row, row + batch.num_rows))
                for split, kept in (("train", good & ~test), ("test", good & test)):
                    if kept.any():
                        yield _Chosen(split, columns.take(batch, self._schema, kept))
                row += batch.num_rows
                in_file += batch.num_rows
            self._read_bytes += file.bytes
            passes = 2 if self._has_two_passes else 1
            self._progress(self._read_bytes // passes, sum(each.bytes for each in self._files))

    def _good(
        self, batch: pa.RecordBatch, number: int, first: int, *, is_last: bool
    ) -> npt.NDArray[np.bool_]:
        """Return which rows fit the schema; in the last pass, note the others."""
        problems: list[Problem] = columns.labels(batch.column(self._schema.label), self._schema.label)[1]
        for dense in self._schema.dense:
            problems += columns.numbers(batch.column(dense.column), dense)[1]
        for sparse in self._schema.sparse:
            if not sparse.missing:
                problems += columns.missing(batch.column(sparse.column), sparse)
        good = np.ones(batch.num_rows, np.bool_)
        good[[each.row for each in problems]] = False
        reasons = {each.row: each for each in reversed(problems)}
        for row in sorted(reasons):
            self._note(number, first + row + 1, reasons[row], is_last=is_last)
        if is_last:
            self._sources[number]["rows"] += int(good.sum())
            self._sources[number]["bad_rows"] += len(reasons)
        return good

    def _note(self, number: int, row: int, problem: Problem, *, is_last: bool) -> None:
        bad = BadRow(
            path=str(self._files[number].path), line=row, reason=problem.reason, value=problem.value[:80]
        )
        most = self._options.max_bad_rows
        if is_last:
            self.bad_count += 1
            if len(self.bad_rows) < _KEPT_BAD_ROWS:
                self.bad_rows.append(bad)
        if (is_last and self.bad_count > most) or most == 0:
            limit = f" (more than the {most:,} allowed)" if most else ""
            raise DataError(
                f"row {bad}{limit}", remedy="fix the file, or let --max-bad-rows N skip such rows"
            )

    def _in_test(self, file: TableFile, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        if file.split is not None:
            return np.full(len(rows), file.split == "test")
        if any(each.split == "test" for each in self._files) or not self._options.test_fraction:
            return np.zeros(len(rows), np.bool_)
        key = mix64(np.array([self._options.seed], np.uint64))
        limit = np.uint64(int(self._options.test_fraction * 2**53) << 11)
        return mix64(rows.astype(np.uint64) ^ key) < limit

    def _encoded(self, batch: pa.RecordBatch) -> EncodedRows:
        dense = np.empty((batch.num_rows, len(self._schema.dense)), np.float32)
        for place, feature in enumerate(self._schema.dense):
            values, _ = columns.numbers(batch.column(feature.column), feature)
            dense[:, place] = columns.transformed(values, feature, self._statistics)
        single = np.empty((len(self._schema.single), batch.num_rows), np.int32)
        for place, sparse in enumerate(self._schema.single):
            single[place] = self._ids[sparse.table].of(
                columns.bags(batch.column(sparse.column), sparse).values
            )
        lists = []
        for sparse in self._schema.lists:
            found: Bags = columns.bags(batch.column(sparse.column), sparse)
            assert found.lengths is not None  # noqa: S101 - for the type checker: of a list
            lists.append((found.lengths, self._ids[sparse.table].of(found.values)))
        labels, _ = columns.labels(batch.column(self._schema.label), self._schema.label)
        return EncodedRows(labels, dense, single, lists)

    def _content(self, splits: dict[str, Any], tables: encoding.Encoding) -> dict[str, Any]:
        embeddings = {table.feature: table.rows for table in tables.tables}
        return {
            "format": manifest.FORMAT,
            "schema_version": manifest.SCHEMA_VERSION,
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "cloudrec_version": __version__,
            "dense_features": [each.name for each in self._schema.dense],
            "sparse_features": [each.name for each in self._schema.sparse],
            "num_embeddings_per_feature": embeddings,
            "encoding": tables.to_json(),
            "features": self._schema.to_json(),
            "rows": sum(split["rows"] for split in splits.values()),
            "bad_rows": self.bad_count,
            "sources": self._sources,
            "splits": splits,
            "digest": manifest.digest(splits, embeddings),
        }


class _Moments:
    """The mean and the deviation of numbers that come in batches."""

    def __init__(self) -> None:
        self._count, self._mean, self._squares = 0, 0.0, 0.0

    def add(self, values: npt.NDArray[np.float64]) -> None:
        """Add a batch (Chan's update, exact where sums of squares would cancel)."""
        if not len(values):
            return
        count, mean = len(values), float(values.mean())
        squares = float(((values - mean) ** 2).sum())
        total = self._count + count
        apart = mean - self._mean
        self._squares += squares + apart * apart * self._count * count / total
        self._mean += apart * count / total
        self._count = total

    def to_json(self) -> dict[str, float]:
        """Return both, rounded, so that they do not depend on the batches; a deviation of 0 is read as 1."""
        deviation = math.sqrt(self._squares / max(self._count, 1))
        return {"mean": float(f"{self._mean:.9g}"), "deviation": float(f"{deviation:.9g}")}


def refuse_options(options: PrepareOptions) -> None:
    """Refuse options that the schema states for each feature; UsageError names them."""
    if (options.encoding, options.min_frequency, options.hash_buckets) != ("vocabulary", 3, 100_000):
        raise UsageError(
            "--encoding, --min-frequency and --hash-buckets are those of Criteo's columns",
            remedy="state them in the schema, for each feature: encoding, min_frequency, buckets",
        )
