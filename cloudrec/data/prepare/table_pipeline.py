"""The preparation of tables with a feature schema, in one pass over the files.

Values that a vocabulary will have get codes in the order of their first use, and are counted; numbers that
are normalised stay as they are. The shards with them are drafts, in a temporary folder. At the end, when the
ids of the codes and the mean of the numbers are known, the shards are completed. If there is nothing to
learn, as with another dataset's encoding (`like`), shards are complete at once.

Memory: a few batches, the rows of a shard for each thread, and the different values of vocabularies.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from cloudrec.data.format import encoding, manifest
from cloudrec.data.format.shards import Disk
from cloudrec.data.growth import GrowingVocabularies
from cloudrec.data.hashes import NEWEST, mix64
from cloudrec.data.prepare import splits as rules
from cloudrec.data.prepare import table_columns as columns
from cloudrec.data.prepare.folder import BadRow
from cloudrec.data.prepare.row_encoder import RowEncoder
from cloudrec.data.prepare.table_files import read_batches
from cloudrec.data.prepare.table_shards import (
    Drafts,
    EncodedRows,
    SplitWriter,
    name_of,
    write_files,
    write_shard,
)
from cloudrec.data.prepare.table_values import Ids, ValueCounter, vocabulary_of
from cloudrec.data.vocabulary import texts_in, to_lines
from cloudrec.errors import DataError, UsageError
from cloudrec.version import __version__
from cloudrec_contract import features as schemas

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import numpy.typing as npt

    from cloudrec.data.prepare.folder import Workspace
    from cloudrec.data.prepare.options import PrepareOptions
    from cloudrec.data.prepare.table_columns import Problem
    from cloudrec.data.prepare.table_files import TableFile
    from cloudrec.data.prepare.table_shards import Arrays
    from cloudrec.data.vocabulary import KnownVocabulary
    from cloudrec_contract.features import FeatureSchema, SparseFeature

SPLITS = ("train", "test")
_KEPT_BAD_ROWS = 10_000
_HASHED = ("hash", schemas.MANAGED)  # encodings whose ids depend on the hash
_TEST_FRACTION = 0.1  # unless stated


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
    if known.encoding.rules is not None and theirs.mapping() != known.encoding.rules["features"]:
        raise DataError("its feature schema was changed: it does not fit the digest", remedy=encoding.AGAIN)
    if own is None:
        return replace(theirs, split=None)  # which rows were test rows says nothing about others
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


class _Taken(NamedTuple):
    """A batch of a file."""

    number: int  # of the file
    first: int  # its first row in the file
    rows: npt.NDArray[np.int64]  # their numbers over all files
    batch: pa.RecordBatch


class EncodedBatch(NamedTuple):
    """The encoded rows of a batch by split, and the rows that do not fit the schema."""

    taken: _Taken
    problems: list[Problem]
    splits: dict[str, EncodedRows]


class TablePreparation:
    """One preparation, from the tables to the contents of dataset.json.

    Batches are encoded by several threads, and used in their order.
    """

    def __init__(
        self,
        workspace: Workspace,
        options: PrepareOptions,
        files: Sequence[TableFile],
        schema: FeatureSchema,
        *,
        progress: Callable[[int, int | None], None],
        known: KnownVocabulary | None = None,
        absent: Sequence[str] = (),
    ) -> None:
        """`absent` are the columns of labels, if the files have none."""
        self.bad_rows: list[BadRow] = []
        self.bad_count = 0
        self.first_test_time: float | None = (
            None  # by the schema's rule; None: there is none, or it is not known
        )
        if schema.split is not None and schema.split.since is not None:
            self.first_test_time = schemas.time_point(str(schema.split.since))
        self._options = options
        self._files = files
        self._schema = schema
        self._progress = progress
        self._known = known
        self._growing = None
        if known is not None and options.grow:
            self._growing = GrowingVocabularies(known, forget_after=options.forget_after)
        self._absent = absent
        self._disk = Disk(workspace.staging)
        self._drafts = Drafts(workspace.scratch)
        self._kinds: Sequence[str] = ()  # the files of a shard, in their order
        self._threads = options.threads or min(os.cpu_count() or 1, 8)
        self._sources: list[dict[str, Any]] = [
            {"path": str(each.path), "bytes": each.bytes, "rows": 0, "bad_rows": 0} for each in files
        ]
        self._rows = RowEncoder(schema)
        self._vocabulary: dict[str, list[str]] = {}  # of the tables whose values were counted
        self._moments: dict[str, Moments] = {}  # of the numbers whose transform depends on all of them
        self._shards: dict[str, list[manifest.DatasetShard]] = {name: [] for name in SPLITS}

    def run(self) -> dict[str, Any]:
        """Write all shards, and return the contents of dataset.json."""
        if self.needs_times:
            self.note_times([rules.sample_of(each, self._schema) for each in self._files])
        with self._disk, ThreadPoolExecutor(self._threads) as pool:
            tables = self._begin()
            is_draft = bool(self._rows.counters or self._moments)
            writers = {
                name: SplitWriter(
                    partial(self._keep if is_draft else self._write, name),
                    shard_rows=self._options.shard_rows,
                    tasks=len(self._schema.tasks),
                )
                for name in SPLITS
            }
            for made in self.encoded(pool):
                self.note(made)
                for split, rows in made.splits.items():
                    writers[split].add(rows)
                if "train" in made.splits:
                    self.count(made.splits["train"])
                    for name, sums in self.sums(made.splits["train"]).items():
                        self._moments[name].add(sums)
            self.require_rows(writers["train"].rows)
            for writer in writers.values():
                writer.finish()
            if tables is None:
                counts = {
                    table: counter.counted(least=self._least_count(table))
                    for table, counter in self._rows.counters.items()
                }
                tables = self.learned(self._disk, counts, self._moments)
            if is_draft:
                self._finish_drafts(pool)
            self._disk.finish()
        splits = {
            name: {
                "rows": writer.rows,
                "positives": writer.positives.tolist(),
                "shards": [shard.to_json() for shard in self._shards[name]],
            }
            for name, writer in writers.items()
        }
        return self.content(splits, tables)

    def _begin(self) -> encoding.Encoding | None:
        """Prepare to encode rows; return the encoding if it is known."""
        if self._known is None:
            self.begin_learning()
            return None
        if self._growing is not None:
            self.begin_growing()
            return None
        self._known.write(self._disk)
        return self.use(self._known)

    @property
    def needs_times(self) -> bool:
        """Whether the time of the first test row depends on all rows."""
        split = self._schema.split
        return split is not None and split.by == "time" and split.since is None

    def note_times(self, samples: Sequence[rules.Sample]) -> None:
        """Find the time of the first test row from samples of all files."""
        assert self._schema.split is not None  # noqa: S101 - for the type checker: who asks has one
        self.first_test_time = rules.first_test_time(samples, self._schema.split)

    def require_rows(self, rows: int) -> None:
        """Raise DataError if there are no training rows."""
        if not rows:
            bad = f"; of {self.bad_count:,} bad ones the first is {self.bad_rows[0]}" if self.bad_rows else ""
            raise DataError(f"there are no training rows{bad}", remedy="add rows, or lower --test-fraction")

    def _write(self, split: str, number: int, arrays: Arrays) -> None:
        self._shards[split].append(write_shard(self._disk, split, number, arrays))

    def _keep(self, split: str, number: int, arrays: Arrays) -> None:
        """Write the files that are complete, and keep the other arrays."""
        waiting = {
            *(("sparse", "values") if self._rows.counters else ()),
            *(("dense", "raw") if self._moments else ()),
        }
        rows, self._kinds = len(arrays["dense"]), [kind for kind in arrays if kind != "raw"]
        draft = {kind: arrays.pop(kind) for kind in waiting & arrays.keys()}
        if "values" in draft:
            draft["bounds"] = arrays["offsets"][:, [0, -1]]  # of each feature's values
        self._drafts.keep(split, number, draft)
        files = write_files(self._disk, split, number, arrays)
        self._shards[split].append(manifest.DatasetShard(name=name_of(split, number), rows=rows, files=files))

    def _finish_drafts(self, pool: ThreadPoolExecutor) -> None:
        """Replace codes by ids and complete the numbers of all shards, now that all rows are known."""
        final = {
            table: counter.ids(self._vocabulary[table]) for table, counter in self._rows.counters.items()
        }

        def finish(split: str, number: int) -> manifest.DatasetShard:
            shard, arrays = self._shards[split][number], self._drafts.take(split, number)
            for place, sparse in enumerate(self._schema.single):
                if sparse.table in final:
                    final[sparse.table].turn(arrays["sparse"][place])
            bounds = arrays.pop("bounds", ())
            for (start, stop), sparse in zip(bounds, self._schema.lists, strict=False):
                if sparse.table in final:
                    final[sparse.table].turn(arrays["values"][start:stop])
            raw = arrays.pop("raw", ())
            for place, dense in enumerate(self._schema.dense):
                if dense.name in self._moments:
                    values = raw[list(self._moments).index(dense.name)]
                    arrays["dense"][:, place] = columns.transformed(values, dense, self._rows.statistics)
            files = {**shard.files, **write_files(self._disk, split, number, arrays)}
            return replace(shard, files={kind: files[kind] for kind in self._kinds})

        for name, shards in self._shards.items():
            self._shards[name] = list(pool.map(partial(finish, name), range(len(shards))))

    @property
    def counters(self) -> Mapping[str, ValueCounter]:
        """What counts the values of each table that gets a vocabulary."""
        return self._rows.counters

    def begin_learning(self) -> None:
        """Prepare to count values and to add up numbers."""
        for table, features in self._schema.tables.items():
            if features[0].encoding == "vocabulary":
                self._rows.counters[table] = self._counter(table, features[0])
            else:
                self._rows.ids[table] = Ids(features[0], ())
        self._moments = moments_to_learn(self._schema)
        self._rows.waiting = tuple(self._moments)

    def _counter(self, table: str, feature: SparseFeature) -> ValueCounter:
        most = self._options.max_vocabulary
        return ValueCounter(table, most=most, unknown_buckets=feature.unknown_buckets)

    def count(self, rows: EncodedRows) -> None:
        """Count the values of training rows."""
        for place, sparse in enumerate(self._schema.single):
            if sparse.table in self._rows.counters:
                self._rows.counters[sparse.table].add(rows.sparse[place])
        for place, sparse in enumerate(self._schema.lists):
            if sparse.table in self._rows.counters:
                self._rows.counters[sparse.table].add(rows.lists[place][1])

    def sums(self, rows: EncodedRows) -> dict[str, MomentsOfBatch]:
        """Return the sums of training rows, by the name of the number."""
        return {name: moments_of(values) for name, values in zip(self._moments, rows.raw, strict=True)}

    def learned(
        self, disk: Disk, counts: Mapping[str, pa.Table], moments: Mapping[str, Moments]
    ) -> encoding.Encoding:
        """Write the vocabularies of counted values, and return the encoding."""
        if self._growing is None:
            self._rows.statistics = {name: moments[name].to_json() for name in moments}
        entries: dict[str, encoding.Table] = {}
        for table, features in self._schema.tables.items():
            file, sha256 = None, ""
            if table in counts:
                self._vocabulary[table] = self._values_of(disk, table, counts[table], features[0])
                data = to_lines(self._vocabulary[table])
                file = disk.write(f"{encoding.FOLDER}/{table}.jsonl", memoryview(data))
                sha256 = hashlib.sha256(data).hexdigest()
                rows = features[0].first_id + len(self._vocabulary[table])
            else:
                rows = Ids(features[0], ()).rows
            unknown = features[0].unknown_buckets
            entries[table] = encoding.Table(
                feature=table, rows=rows, file=file, sha256=sha256, unknown=unknown
            )
        is_hashed = any(each.encoding in _HASHED for each in self._schema.sparse)
        hashed_by = {"hash": NEWEST} if is_hashed else {}
        if self._known is not None:
            rules = self._known.encoding.rules or {}
            hashed_by = {"hash": rules["hash"]} if "hash" in rules else {}
        return encoding.Encoding(
            kind=encoding.FEATURES,
            tables=tuple(replace(entries[each.table], feature=each.name) for each in self._schema.sparse),
            features=self._schema.to_json(),
            rules={
                "features": self._schema.mapping(),
                "statistics": self._rows.statistics,
                **hashed_by,
            },
            growth=None if self._growing is None else self._growing.growth,
        )

    def _least_count(self, table: str) -> int:
        """Return how often a value must occur to be of interest: once, where it counts as seen."""
        return self._schema.tables[table][0].min_frequency if self._growing is None else 1

    def _values_of(self, disk: Disk, table: str, counts: pa.Table, feature: SparseFeature) -> list[str]:
        """Return the vocabulary of a table; disk gets the record of its growth."""
        if self._growing is None or self._known is None:
            return vocabulary_of(counts, feature)
        return self._growing.grow(
            disk,
            table,
            texts_in(self._known.files.get(feature.name, b"")),
            counts["value"].to_pylist(),
            vocabulary_of(counts, replace(feature, max_size=None)),
            max_size=feature.max_size,
        )

    def begin_growing(self) -> None:
        """Prepare to count values for the vocabularies that grow; numbers and hashes are those of before."""
        assert self._known is not None  # noqa: S101 - for the type checker: who grows has one
        self.use(self._known)
        for table, features in self._schema.tables.items():
            if features[0].encoding == "vocabulary":
                del self._rows.ids[table]
                self._rows.counters[table] = self._counter(table, features[0])

    def use(self, known: KnownVocabulary) -> encoding.Encoding:
        """Use an existing encoding, and return it."""
        return self._rows.use(known)

    def encoded(
        self, pool: ThreadPoolExecutor, *, only: int | None = None, first_row: int = 0
    ) -> Iterator[EncodedBatch]:
        """Encode batches, a few at a time, and yield them in the order of the files.

        Args:
            pool: what encodes them.
            only: the number of the one file to encode; None: all.
            first_row: the rows of the files before.
        """
        taken = self._taken(only, first_row)
        running: deque[Future[EncodedBatch]] = deque()
        try:
            while True:
                while len(running) <= self._threads and (each := next(taken, None)) is not None:
                    running.append(pool.submit(self._make, each))
                if not running:
                    return
                yield running.popleft().result()
        finally:
            for future in running:
                future.cancel()

    def _taken(self, only: int | None, first_row: int) -> Iterator[_Taken]:
        row, done = first_row, 0
        for number, file in enumerate(self._files):
            if only not in (None, number):
                continue
            first = row
            for batch in read_batches(file, self._schema, absent=self._absent):
                rows = np.arange(row, row + batch.num_rows)
                yield _Taken(number, row - first, rows, batch)
                row += batch.num_rows
            done += file.bytes
            self._progress(done, sum(each.bytes for each in self._files))

    def _make(self, taken: _Taken) -> EncodedBatch:
        batch = taken.batch
        problems = self._rows.problems(batch)
        if self._schema.split is not None:
            problems += rules.problems(batch, self._schema.split)
        if self._schema.split is None:
            test = self._in_test(self._files[taken.number], taken.rows)
        else:
            seed, since = self._options.seed, self.first_test_time
            test = rules.in_test(batch, self._schema.split, seed=seed, since=since)
        if problems:
            good = np.ones(batch.num_rows, np.bool_)
            good[[each.row for each in problems]] = False
            batch, test = batch.filter(pa.array(good)), test[good]
        rows = self._rows.encode(batch)
        splits = {"train": rows.chosen(~test), "test": rows.chosen(test)}
        filled = {name: each for name, each in splits.items() if each.rows}
        return EncodedBatch(taken, problems, filled)

    def note(self, made: EncodedBatch) -> None:
        """Note the bad rows of a batch; DataError if there are too many by now."""
        reasons = {each.row: each for each in reversed(made.problems)}
        source = self._sources[made.taken.number]
        for row in sorted(reasons):
            self._note(made.taken.number, made.taken.first + row + 1, reasons[row])
        source["rows"] += made.taken.batch.num_rows - len(reasons)
        source["bad_rows"] += len(reasons)

    def _note(self, number: int, row: int, problem: Problem) -> None:
        bad = BadRow(
            path=str(self._files[number].path), line=row, reason=problem.reason, value=problem.value[:80]
        )
        self.note_bad(bad)

    def note_bad(self, bad: BadRow) -> None:
        """Note a bad row; DataError if there are too many."""
        most = self._options.max_bad_rows
        self.bad_count += 1
        if len(self.bad_rows) < _KEPT_BAD_ROWS:
            self.bad_rows.append(bad)
        if self.bad_count > most:
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

    def add_source(self, number: int, rows: int, bad_rows: int) -> None:
        """Add the rows of a file that other machines have read."""
        self._sources[number]["rows"] += rows
        self._sources[number]["bad_rows"] += bad_rows

    def content(self, splits: dict[str, Any], tables: encoding.Encoding) -> dict[str, Any]:
        """Return the contents of dataset.json."""
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
            **({"labels": False} if self._absent else {}),
            **({} if self.first_test_time is None else {"first_test_time": self.first_test_time}),
            "rows": sum(split["rows"] for split in splits.values()),
            "bad_rows": self.bad_count,
            "sources": self._sources,
            "splits": splits,
            "digest": manifest.digest(splits, embeddings),
        }


_LEAST_DEVIATION = 1e-12  # of numbers that differ, relative to the largest one


class MomentsOfBatch(NamedTuple):
    """The number, the mean, the sum of squared deviations, the least and the most of some numbers."""

    rows: int
    mean: float
    squares: float
    least: float
    most: float


def moments_of(values: npt.NDArray[np.float64]) -> MomentsOfBatch:
    """Return the moments of numbers, of which there is one at least."""
    mean = float(values.mean())
    squares = float(((values - mean) ** 2).sum())
    return MomentsOfBatch(len(values), mean, squares, float(values.min()), float(values.max()))


def moments_to_learn(schema: FeatureSchema) -> dict[str, Moments]:
    """Return what adds up the numbers whose transform depends on all of them, by their names."""
    learned = [each for each in schema.dense if each.transform in schemas.LEARNED_TRANSFORMS]
    return {each.name: Moments(each.transform) for each in learned}


class Moments:
    """What a transform needs to know of numbers that come in batches: of all, their mean, or their range."""

    def __init__(self, transform: str) -> None:
        self._transform = transform
        self._least, self._most = math.inf, -math.inf
        self._count, self._mean, self._squares = 0, 0.0, 0.0

    def add(self, batch: MomentsOfBatch) -> None:
        """Add a batch (Chan's update, exact where sums of squares would cancel)."""
        count, mean, squares, least, most = batch
        self._least, self._most = min(self._least, least), max(self._most, most)
        total = self._count + count
        apart = mean - self._mean
        self._squares += squares + apart * apart * self._count * count / total
        self._mean += apart * count / total
        self._count = total

    def to_json(self) -> dict[str, float]:
        """Return mean and deviation, rounded, so that they do not depend on the batches, or the range.

        A deviation of 0 is read as 1, and so is the width of a range.
        """
        if self._transform == "min_max":
            return {"least": self._least, "most": self._most}
        largest = max(abs(self._least), abs(self._most))
        deviation = math.sqrt(self._squares / max(self._count, 1))
        if not deviation > _LEAST_DEVIATION * largest:  # the same number everywhere, but for roundings
            return {"mean": self._least, "deviation": 0.0}
        # Of numbers far from 0, the mean needs more digits for an error that is small beside the deviation.
        digits = 9 + max(0, math.ceil(math.log10(largest / deviation)) - 3)
        return {"mean": float(f"{self._mean:.{digits}g}"), "deviation": float(f"{deviation:.9g}")}


def refuse_options(options: PrepareOptions, schema: FeatureSchema, files: Sequence[TableFile]) -> None:
    """Refuse options and folders for what the schema states; UsageError names them."""
    if schema.split is not None and options.test_fraction != _TEST_FRACTION:
        raise UsageError(
            f"--test-fraction is {options.test_fraction:g}, but the schema's `split` says which rows are for "
            "testing",
            remedy="leave one of them out",
        )
    if schema.split is not None and any(each.split is not None for each in files):
        raise UsageError(
            "the files are in the folders train/ and test/, but the schema's `split` says which rows are for "
            "testing",
            remedy="leave `split` out, or name the files",
        )
    if (options.encoding, options.min_frequency, options.hash_buckets) != ("vocabulary", 3, 100_000):
        raise UsageError(
            "--encoding, --min-frequency and --hash-buckets are those of Criteo's columns",
            remedy="state them in the schema, for each feature: encoding, min_frequency, buckets",
        )
