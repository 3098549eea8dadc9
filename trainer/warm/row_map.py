"""The rows of an earlier table by the values that they stand for.

A row is known by its value, not by its number: two vocabularies may give one value two ids. Ids that are
computed (hash, bucketise) stand for the same values where the rule and the number of ids are equal.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from cloudrec_contract.features import FIRST_ID, MANAGED, UNKNOWN_ID
from trainer.base.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt
    from torch import Tensor

    from trainer.checkpoint.vocabulary import Vocabulary
    from trainer.data.encoding import KnownEncoding

_OF_PLACE = ("name", "table", "kind", "max_length")  # keys of a feature that do not decide its ids


@dataclass(frozen=True, slots=True)
class RowMap:
    """Where the rows of an earlier table are in the new one.

    Attributes:
        rows: int64 [rows of the earlier table]: the row in the new table, or -1.
        kept: how many rows have one.
    """

    rows: Tensor
    kept: int


class NoMatchError(Exception):
    """The rows of two tables cannot be matched; the text says why."""


class TableValues:
    """The values of the ids of one model's or dataset's tables."""

    def __init__(
        self,
        encoding: KnownEncoding,
        vocabulary: Vocabulary | None,
        tables_of_features: Mapping[str, str],
    ) -> None:
        """`vocabulary` has the files, if there are any; `tables_of_features` the table of each feature."""
        self._vocabulary = vocabulary
        mapping = encoding.document["mapping"]
        self._kind = (mapping["kind"], mapping["version"], mapping.get("hash"))
        self._features = {each["name"]: each for each in mapping.get("features", ())}
        self._entries: dict[str, Mapping[str, Any]] = {}
        for entry in mapping["tables"]:
            table = tables_of_features.get(entry["feature"])
            if table is not None:
                self._entries.setdefault(table, entry)  # features of one table have equal rules

    def first_id(self, table: str) -> int:
        """Return the id of a vocabulary's first value; those before are for missing and unknown values."""
        feature = self._features.get(self._entry(table)["feature"], {})
        return FIRST_ID - 1 + int(feature.get("unknown_buckets", 1))

    def rule(self, table: str) -> tuple[Any, ...]:
        """Return what decides the computed ids of a table; equal rules give equal ids."""
        entry = self._entry(table)
        feature = self._features.get(entry["feature"], {})
        own = {key: value for key, value in feature.items() if key not in _OF_PLACE}
        if own.get("encoding") == MANAGED:  # hashes that do not depend on the rows
            del own["buckets"]
            return self._kind, sorted(own.items()), None
        return self._kind, sorted(own.items()), entry["rows"]

    def lines(self, table: str) -> tuple[str, bytes] | None:
        """Return the kind and the bytes of a table's vocabulary file; None if its ids are computed."""
        entry = self._entry(table)
        if "sha256" not in entry:
            return None
        if self._vocabulary is None:
            raise NoMatchError("its vocabulary is not beside the data")
        file = next(each for each in self._vocabulary.encoding.files if each.sha256 == entry["sha256"])
        name = f"{self._vocabulary.prefix}/{file.name}"
        return file.name.rpartition(".")[2], self._vocabulary.store.read(name)

    def _entry(self, table: str) -> Mapping[str, Any]:
        if table not in self._entries:
            raise NoMatchError("the encoding does not describe it")
        return self._entries[table]


class TableRows(NamedTuple):
    """A table of a model or a dataset."""

    values: TableValues
    table: str
    rows: int


def match_rows(old: TableRows, new: TableRows) -> RowMap:
    """Return where the rows of an earlier table are in a new one.

    Raises:
        NoMatchError: the values of the rows are not comparable.
        CheckpointError: a vocabulary file is malformed.
    """
    theirs, ours = old.values.lines(old.table), new.values.lines(new.table)
    if (theirs is None) != (ours is None):
        raise NoMatchError("only one of both has a vocabulary")
    if theirs is None or ours is None:
        if old.values.rule(old.table) != new.values.rule(new.table):
            raise NoMatchError("its ids are computed by other rules")
        return _map(torch.arange(old.rows), new.rows)
    if theirs[0] != ours[0]:
        raise NoMatchError("the values of one are Criteo's, those of the other are not")
    try:
        found = _of_texts(theirs[1], ours[1]) if theirs[0] == "jsonl" else _of_codes(theirs[1], ours[1])
    except (ValueError, OSError) as error:
        raise CheckpointError(
            f"the vocabulary of {old.table} or {new.table} cannot be read: {error}; restore a copy"
        ) from error
    before, first = old.values.first_id(old.table), new.values.first_id(new.table)
    reserved = torch.arange(before)
    if before != first:  # unknown values share other ids
        reserved[UNKNOWN_ID:] = -1
    rows = torch.cat([reserved, found + torch.where(found < 0, 0, first)])
    unused = torch.full((max(old.rows - len(rows), 0),), -1)  # of a table larger than its vocabulary
    return _map(torch.cat([rows, unused])[: old.rows], new.rows)


def match_numbers(old_rows: int, new_rows: int) -> RowMap:
    """Return the map that keeps each row's number."""
    return _map(torch.arange(old_rows), new_rows)


def _map(rows: Tensor, new_rows: int) -> RowMap:
    rows = torch.where(rows < new_rows, rows, -1)
    return RowMap(rows, int((rows >= 0).sum()))


def _of_texts(old: bytes, new: bytes) -> Tensor:
    """Return the place in `new` of each line of `old`, or -1."""
    if new.startswith(old):  # a vocabulary that has grown
        return torch.arange(old.count(b"\n"))
    places = {line: place for place, line in enumerate(new.split(b"\n")[:-1])}
    return torch.tensor([places.get(line, -1) for line in old.split(b"\n")[:-1]], dtype=torch.int64)


def _of_codes(old: bytes, new: bytes) -> Tensor:
    theirs, ours = _codes(old), _codes(new)
    order = np.argsort(ours, kind="stable")
    places = np.searchsorted(ours[order], theirs).clip(max=max(len(ours) - 1, 0))
    if not len(ours):
        return torch.full((len(theirs),), -1)
    found = order[places]
    return torch.from_numpy(np.where(ours[found] == theirs, found, -1).astype(np.int64))


def _codes(data: bytes) -> npt.NDArray[np.uint32]:
    codes: npt.NDArray[np.uint32] = np.load(io.BytesIO(data), allow_pickle=False)
    return codes
