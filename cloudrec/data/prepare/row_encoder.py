"""Rows of a table as the numbers and ids that a model reads: for `data prepare`, and for a scoring server."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from cloudrec.data.format import encoding
from cloudrec.data.hashes import FIRST_VERSION
from cloudrec.data.prepare import table_columns as columns
from cloudrec.data.prepare.table_shards import EncodedRows
from cloudrec.data.prepare.table_values import Ids
from cloudrec.data.vocabulary import texts_in
from cloudrec.errors import DataError

if TYPE_CHECKING:
    import numpy.typing as npt
    import pyarrow as pa

    from cloudrec.data.prepare.table_columns import Bags, Problem
    from cloudrec.data.prepare.table_values import ValueCounter
    from cloudrec.data.vocabulary import KnownVocabulary
    from cloudrec_contract.features import FeatureSchema, SparseFeature


class RowEncoder:
    """Encodes rows by a schema, and by what is known of its values. Several threads may use it.

    Attributes:
        statistics: of the numbers whose transform depends on all of them, by name.
        ids: what gives the values of a table their ids, by table.
        counters: what gives the values of a table codes, while they are counted, by table.
        waiting: the numbers whose statistics are not known yet; their values stay as they are.
    """

    def __init__(self, schema: FeatureSchema) -> None:
        self.statistics: dict[str, dict[str, float]] = {}
        self.ids: dict[str, Ids] = {}
        self.counters: dict[str, ValueCounter] = {}
        self.waiting: tuple[str, ...] = ()
        self._schema = schema

    def use(self, known: KnownVocabulary) -> encoding.Encoding:
        """Use an existing encoding, and return it."""
        theirs = known.encoding
        if theirs.rules is None:
            raise DataError("the encoding has no feature schema", remedy=encoding.AGAIN)
        self.statistics = dict(theirs.rules["statistics"])
        for table, features in self._schema.tables.items():
            data = known.files.get(features[0].name, b"")
            hashed_by = theirs.rules.get("hash", FIRST_VERSION)
            self.ids[table] = Ids(features[0], texts_in(data), hashed_by=hashed_by)
        return replace(theirs, features=self._schema.to_json(), growth=None)

    def problems(self, batch: pa.RecordBatch) -> list[Problem]:
        """Return what does not fit the schema."""
        problems: list[Problem] = []
        for label in self._schema.labels:
            problems += columns.labels(batch.column(label.column), label)[1]
        if self._schema.weight is not None:
            problems += columns.weights(batch.column(self._schema.weight), self._schema.weight)[1]
        for dense in self._schema.dense:
            problems += columns.numbers(batch.column(dense.column), dense)[1]
        for sparse in self._schema.sparse:
            if not sparse.missing:
                problems += columns.missing(columns.values_of(batch, sparse), sparse)
        for sparse in self._schema.weighted:
            problems += self._value_weights(batch, sparse)[1]
        return problems

    def encode(self, batch: pa.RecordBatch) -> EncodedRows:
        """Return the rows of a batch without problems."""
        dense = np.zeros((batch.num_rows, len(self._schema.dense)), np.float32)
        raw = np.empty((len(self.waiting), batch.num_rows))
        for place, feature in enumerate(self._schema.dense):
            values, _ = columns.numbers(batch.column(feature.column), feature)
            if feature.name in self.waiting:
                raw[self.waiting.index(feature.name)] = values
            else:
                dense[:, place] = columns.transformed(values, feature, self.statistics)
        coders: dict[str, Ids | ValueCounter] = {**self.ids, **self.counters}
        dtype: type[np.signedinteger[Any]] = np.int64 if self._schema.managed else np.int32
        single = np.empty((len(self._schema.single), batch.num_rows), dtype)
        found: Bags
        for place, sparse in enumerate(self._schema.single):
            found = columns.bags(columns.values_of(batch, sparse), sparse)
            single[place] = coders[sparse.table].of(found.values)
        lists = []
        for sparse in self._schema.lists:
            found = columns.bags(batch.column(sparse.column), sparse)
            assert found.lengths is not None  # noqa: S101 - for the type checker: of a multi_hot feature
            ids = coders[sparse.table].of(found.values)
            lists.append((found.lengths, ids.astype(dtype, copy=False)))
        list_weights = [
            np.ones(len(ids), np.float32) if sparse.weights is None else self._value_weights(batch, sparse)[0]
            for sparse, (_, ids) in zip(self._schema.lists, lists, strict=True)
            if self._schema.weighted
        ]
        labels = [columns.labels(batch.column(each.column), each)[0] for each in self._schema.labels]
        weight = self._schema.weight
        weights = None if weight is None else columns.weights(batch.column(weight), weight)[0]
        return EncodedRows(
            np.stack(labels) if self._schema.tasks else labels[0],
            dense,
            single,
            lists,
            raw,
            weights,
            list_weights,
        )

    def _value_weights(
        self, batch: pa.RecordBatch, sparse: SparseFeature
    ) -> tuple[npt.NDArray[np.float32], list[Problem]]:
        return columns.value_weights(batch.column(sparse.column), batch.column(sparse.weights), sparse)
