"""Raw rows, encoded by the code of `cloudrec data prepare` with a model's schema and vocabulary.

A row is a JSON object: column -> value. Columns that no row of a request has are refused, as `data prepare`
refuses files without them; in a row, a column that is null or left out is missing. Further columns are
ignored, those of labels too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import torch

from cloudrec.data.format import encoding as encodings
from cloudrec.data.format import tsv
from cloudrec.data.prepare.encode import make_encoder
from cloudrec.data.prepare.options import PrepareOptions
from cloudrec.data.prepare.row_encoder import RowEncoder
from cloudrec.data.prepare.table_pipeline import schema_like
from cloudrec.data.prepare.table_shards import joined
from cloudrec.data.vocabulary import KnownVocabulary, check_bytes
from cloudrec.errors import DataError
from cloudrec_contract.features import HASH_LIMIT, closest
from cloudrec_server.columns import Column, array_of, columns_of
from trainer.base.errors import ConfigError
from trainer.data.batch import Batch
from trainer.data.lists import ListArrays, with_lists

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cloudrec.data.prepare.table_shards import EncodedRows
    from cloudrec_contract.features import FeatureSchema
    from trainer.checkpoint.vocabulary import Vocabulary
    from trainer.serving.scorer import TrainedModel

_MOST_PROBLEMS = 20  # that an answer names
_SHOWN = 40  # characters of a value


class RowProblem(NamedTuple):
    """What is wrong with a row."""

    row: int  # of the request, from 0; -1: of all of them
    column: str | None
    message: str

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {"row": None if self.row < 0 else self.row, "column": self.column, "message": self.message}


class RowsRefusedError(Exception):
    """Rows that do not fit the model's columns."""

    def __init__(self, problems: Sequence[RowProblem]) -> None:
        super().__init__(problems[0].message)
        self.problems = sorted(problems)[:_MOST_PROBLEMS]
        self.more = max(0, len(problems) - _MOST_PROBLEMS)


class RowsEncoder(Protocol):
    """Makes batches of rows."""

    @property
    def columns(self) -> Sequence[Column]:
        """The columns that a row has."""
        ...

    def encode(self, rows: Sequence[Mapping[str, Any]], /) -> Batch:
        """Return the rows as a batch without labels; RowsRefusedError names those that do not fit."""
        ...

    def require_columns(self, rows: Sequence[Mapping[str, Any]], /) -> None:
        """Raise RowsRefusedError if none of the rows has some column; `encode` does so for all its rows."""
        ...

    def columns_of(self, features: Sequence[str], /) -> tuple[str, ...]:
        """Return the columns that no other features read than these."""
        ...


def make_rows_encoder(trained: TrainedModel) -> RowsEncoder:
    """Return what encodes rows as the data that a model learned from.

    Raises:
        ConfigError: the model does not say how that data was encoded, or its tables are too small for the
        ids. DataError: the encoding is malformed, or of a version that is not known.
    """
    if trained.vocabulary is None:
        raise ConfigError(
            "the model does not say how the data that it learned from was encoded, so raw rows cannot be "
            "encoded alike; train on a dataset of `cloudrec data prepare`, or score prepared data with "
            "`python -m trainer.predict`"
        )
    known = _known(trained.vocabulary)
    rows = {table.feature: table.rows for table in known.encoding.tables}
    shape = trained.shape
    if tuple(rows) != shape.features:
        raise ConfigError(
            f"the model has the features {', '.join(shape.features)}, its encoding {', '.join(rows)}; export "
            "the model again"
        )
    sizes = shape.rows_of_features
    small = [name for name in rows if sizes[name] < rows[name] and name not in _managed(known)]
    if small and not trained.config.hash_overflow:
        raise ConfigError(
            f"the model's table of {small[0]} has {sizes[small[0]]} rows, but the ids of its encoding need "
            f"{rows[small[0]]}; export the model again"
        )
    managed = _managed(known)  # their ids are hashes, whose rows the model chooses
    limits = [HASH_LIMIT if name in managed else sizes[name] for name in rows] if small else None
    if known.encoding.features is None:
        return _CriteoRows(known, limits)
    return _TableRows(known, limits)


def _managed(known: KnownVocabulary) -> set[str]:
    features = (known.encoding.features or {}).get("sparse", ())
    return {each["name"] for each in features if each.get("encoding") == "managed_collision"}


def _known(vocabulary: Vocabulary) -> KnownVocabulary:
    where = vocabulary.store.uri
    encoding = encodings.parse(dict(vocabulary.encoding.document), where)
    files: dict[str, bytes] = {}
    for table in encoding.tables:
        if table.file is not None:
            name = table.file.path.rpartition("/")[2]
            files[table.feature] = vocabulary.store.read(f"{vocabulary.prefix}/{name}", 0, table.file.bytes)
            check_bytes(f"{where}/{name}", table, files[table.feature])
    return KnownVocabulary(encoding=encoding, files=files)


class _TableRows:
    """Rows with the columns of a feature schema."""

    def __init__(self, known: KnownVocabulary, limits: Sequence[int] | None) -> None:
        """`limits` are the tables' rows by feature, if ids are taken modulo them."""
        self._schema = schema_like(known, None)
        self._encoder = RowEncoder(self._schema)
        self._encoder.use(known)
        self._limits = limits
        self.columns = columns_of(self._schema)
        self._of_feature = {each.name: each.column for each in self._schema.dense}
        self._of_feature |= {each.name: each.column for each in self._schema.sparse}

    def require_columns(self, rows: Sequence[Mapping[str, Any]], /) -> None:
        _require_columns(self.columns, rows)

    def encode(self, rows: Sequence[Mapping[str, Any]], /) -> Batch:
        self.require_columns(rows)
        problems: list[RowProblem] = []
        arrays = []
        for column in self.columns:
            array, wrong = array_of(column, [row.get(column.name) for row in rows])
            problems += [RowProblem(row, column.name, message) for row, message in wrong]
            arrays.append(array)
        if problems:
            raise RowsRefusedError(problems)
        names = [each.name for each in self.columns]
        for answer in dict.fromkeys(self._schema.answers):
            arrays.append(pa.array(np.zeros(len(rows), np.int8)))
            names.append(answer)
        table = pa.RecordBatch.from_arrays(arrays, names)
        try:
            found = self._encoder.problems(table)
            encoded = None if found else self._encoder.encode(table)
        except (DataError, pa.ArrowException) as error:
            raise RowsRefusedError(self._apart(rows, error)) from error
        if encoded is None:
            raise RowsRefusedError(
                [RowProblem(each.row, *self._told(each.reason, each.value)) for each in found]
            )
        return self._batch(encoded)

    def columns_of(self, features: Sequence[str], /) -> tuple[str, ...]:
        others = {each.column for each in self._schema.dense}
        own: list[str] = []
        for each in self._schema.sparse:
            read = [*each.columns, *([] if each.weights is None else [each.weights])]
            if each.name in features:
                own += read
            else:
                others |= set(read)
        return tuple(each for each in dict.fromkeys(own) if each not in others)

    def _told(self, reason: str, value: str) -> tuple[str | None, str]:
        column = self._of_feature.get(reason.partition(" ")[0])
        if reason.endswith("is missing"):
            return column, f"{reason}; the model has no value for a missing one: send one"
        return column, f"{reason}: it is {value[:_SHOWN]}; send a value that fits the training's schema"

    def _apart(self, rows: Sequence[Mapping[str, Any]], error: Exception) -> list[RowProblem]:
        """Return the problems of rows that cannot be encoded together, found by halving."""
        if len(rows) == 1:
            text = error.message if isinstance(error, DataError) else str(error)
            return [RowProblem(0, None, f"the row cannot be encoded: {text}; correct the value")]
        middle = len(rows) // 2
        problems: list[RowProblem] = []
        for first, part in ((0, rows[:middle]), (middle, rows[middle:])):
            filled = [{each.name: row.get(each.name) for each in self.columns} for row in part]
            try:
                self.encode(filled)
            except RowsRefusedError as refused:
                problems += [each._replace(row=each.row + first) for each in refused.problems]
            if len(problems) >= _MOST_PROBLEMS:
                break
        return problems or [RowProblem(-1, None, f"the rows cannot be encoded together: {error}; send fewer")]

    def _batch(self, encoded: EncodedRows) -> Batch:
        return _wrapped(batch_of(encoded, self._schema), self._limits)


def batch_of(encoded: EncodedRows, schema: FeatureSchema) -> Batch:
    """Return encoded rows as a batch."""
    batch = _without_labels(encoded.dense, encoded.sparse)
    places = [place for place, each in enumerate(schema.sparse) if each.kind != "single"]
    if not places:
        return batch
    arrays = joined([encoded])  # as a shard has them, so that lists are read in one way
    lists = ListArrays(arrays["offsets"], arrays["values"], arrays.get("value_weights"))
    every = slice(0, len(batch))
    return with_lists(batch, [lists.rows(each, every) for each in range(len(places))], places)


def _without_labels(dense: Any, sparse: Any) -> Batch:  # noqa: ANN401 - arrays
    count = len(dense)
    return Batch(
        dense=torch.from_numpy(np.ascontiguousarray(dense)),
        sparse=torch.from_numpy(np.ascontiguousarray(sparse)),
        labels=torch.zeros(count),
        sample_ids=torch.arange(count),
        global_size=count,
    )


def _wrapped(batch: Batch, limits: Sequence[int] | None) -> Batch:
    if limits is None:
        return batch
    most = torch.tensor(limits, dtype=batch.sparse.dtype)
    if batch.lengths is None:
        batch.sparse.remainder_(most[:, None])
    else:
        batch.sparse.remainder_(most.repeat_interleave(batch.lengths.sum(dim=1)))
    return batch


class _CriteoRows:
    """Rows with Criteo's columns: integers I1 to I13, categories C1 to C26 of hexadecimal digits."""

    def __init__(self, known: KnownVocabulary, limits: Sequence[int] | None) -> None:
        self._encoder = make_encoder(PrepareOptions(), known)
        self._limits = limits
        self.columns = [
            *(Column(name, "integer") for name in tsv.INTEGERS),
            *(Column(name, "hexadecimal") for name in tsv.CATEGORIES),
        ]

    def require_columns(self, rows: Sequence[Mapping[str, Any]], /) -> None:
        _require_columns(self.columns, rows)

    def encode(self, rows: Sequence[Mapping[str, Any]], /) -> Batch:
        self.require_columns(rows)
        problems: list[RowProblem] = []
        lines = []
        for number, row in enumerate(rows):
            fields = ["0"]
            for column in self.columns:
                try:
                    fields.append(_field(column, row.get(column.name)))
                except ValueError as error:
                    problems.append(RowProblem(number, column.name, str(error)))
            lines.append("\t".join(fields))
        if problems:
            raise RowsRefusedError(problems)
        text = ("\n".join(lines) + "\n").encode()
        parsed = tsv.parse(tsv.Chunk(text, 1, 0, len(rows)), self._encoder)
        if parsed.bad:
            raise RowsRefusedError(
                [
                    RowProblem(
                        each.line - 1,
                        _first_word(each.reason),
                        f"{each.reason}: it is {each.value}; correct it",
                    )
                    for each in parsed.bad
                ]
            )
        return _wrapped(_without_labels(parsed.dense, parsed.numbers), self._limits)

    def columns_of(self, features: Sequence[str], /) -> tuple[str, ...]:
        return tuple(features)


def _first_word(reason: str) -> str | None:
    word = reason.partition(" ")[0]
    return word if word in tsv.COLUMNS else None


def _field(column: Column, value: object) -> str:
    if value is None:
        return ""
    if column.use == "integer" and isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if column.use == "hexadecimal" and isinstance(value, str) and not {"\t", "\n", "\r"} & set(value):
        return value
    wanted = "a whole number" if column.use == "integer" else "a text of up to 8 hexadecimal digits"
    raise ValueError(f"{column.name} is {str(value)[:_SHOWN]!r}; it must be {wanted}, or null")


def _require_columns(columns: Sequence[Column], rows: Sequence[Mapping[str, Any]]) -> None:
    """Refuse rows of which none has some column: its name is misspelt, or the row is another one."""
    first = rows[0]
    absent = [each for each in columns if each.name not in first]
    if not absent:
        return
    found = set().union(*rows)
    missing = [each for each in absent if each.name not in found]
    if missing:
        raise RowsRefusedError(
            [
                RowProblem(
                    -1,
                    each.name,
                    f"no row has the column {each.name}{closest(each.name, found)}; send it, with null "
                    "in rows that lack a value",
                )
                for each in missing
            ]
        )
