"""A request's values as Arrow columns, with the types that a feature schema's columns have.

Values of different types that mean the same are alike, as in files: 7, 7.0 and "7". A value that has no place
in its column is named with its row.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cloudrec_contract.features import FeatureSchema, SparseFeature

Use: TypeAlias = Literal["number", "category", "integer", "hexadecimal"]
Wrong: TypeAlias = "list[tuple[int, str]]"  # rows and messages

_NONE = type(None)
_INT64 = range(-(1 << 63), 1 << 63)
_SHOWN = 40  # characters of a value
_SPELLED = {
    "number": "a number",
    "category": "a text or a whole number",
    "integer": "a whole number",
    "hexadecimal": "a text of up to 8 hexadecimal digits",
}


class Column(NamedTuple):
    """A column of rows."""

    name: str
    use: Use
    is_list: bool = False
    separator: str | None = None  # of a list in a text

    @property
    def wanted(self) -> str:
        """What its values are."""
        one = _SPELLED[self.use]
        if not self.is_list:
            return one
        text = "" if self.separator is None else f", or a text of them separated by {self.separator!r}"
        return f"a list, each of it {one}{text}"


def columns_of(schema: FeatureSchema) -> list[Column]:
    """Return the columns that features read, in their order."""
    found: dict[str, Column] = {}
    for dense in schema.dense:
        use: Use = "number" if dense.lookup is None else "category"
        found.setdefault(dense.column, Column(dense.column, use))
    for sparse in schema.sparse:
        for name in sparse.columns:
            found.setdefault(name, Column(name, _use(sparse), sparse.kind != "single", sparse.separator))
        if sparse.weights is not None:
            found.setdefault(
                sparse.weights, Column(sparse.weights, "number", is_list=True, separator=sparse.separator)
            )
    return list(found.values())


def _use(sparse: SparseFeature) -> Use:
    return "number" if sparse.encoding == "bucketise" and sparse.lookup is None else "category"


def array_of(column: Column, values: Sequence[Any]) -> tuple[pa.Array, Wrong]:
    """Return the values of a column, and the rows whose values have no place in it."""
    make = _numbers if column.use == "number" else _categories
    if not column.is_list:
        return _named(column, values, *make(values))
    kinds = set(map(type, values))
    if column.separator is not None and kinds <= {str, _NONE}:
        return pa.array(values, pa.string()), []
    if kinds <= {list, _NONE}:
        return _lists(column, values, make)
    good = {list, _NONE} if column.separator is None else {list, str, _NONE}
    why = f"it must be {column.wanted}, or null"
    if kinds <= good:  # texts and lists have different types, and a column has one
        first = next(type(each) for each in values if each is not None)
        good, why = {first, _NONE}, "the first row has the other one of text and list; send one of both"
    rows = [row for row, each in enumerate(values) if type(each) not in good]
    return None, [(row, f"{column.name} is {_shown(values[row])}; {why}") for row in rows]


def _lists(
    column: Column, values: Sequence[Any], make: Callable[[Sequence[Any]], tuple[pa.Array, list[int]]]
) -> tuple[pa.Array, Wrong]:
    flat = list(chain.from_iterable(each for each in values if each is not None))
    array, wrong = make(flat)
    if wrong:
        row_of = [row for row, each in enumerate(values) if each is not None for _ in each]
        return None, [
            (row_of[place], f"{column.name} holds {_shown(flat[place])}; it must be {column.wanted}")
            for place in wrong
        ]
    ends, offsets = 0, [0]
    for each in values:
        ends += 0 if each is None else len(each)
        offsets.append(ends)
    made = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), array)
    if None in values:  # a row without a list has no value, which is not the same as an empty one
        mask = pa.array([each is None for each in values])
        made = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), array, mask=mask)
    return made, []


def _named(
    column: Column, values: Sequence[Any], array: pa.Array, wrong: Sequence[int]
) -> tuple[pa.Array, Wrong]:
    return array, [
        (row, f"{column.name} is {_shown(values[row])}; it must be {column.wanted}, or null") for row in wrong
    ]


def _numbers(values: Sequence[Any]) -> tuple[pa.Array, list[int]]:
    """Return numbers, and the places of what is none."""
    kinds = set(map(type, values))
    if kinds <= {float, _NONE}:
        return pa.array(values, pa.float64()), []
    wrong = [place for place, each in enumerate(values) if not _is_number(each)]
    if wrong:
        return None, wrong
    return pa.array([None if each is None else float(each) for each in values], pa.float64()), []


def _is_number(value: object) -> bool:
    if value is None or isinstance(value, float):
        return True
    if not isinstance(value, int) or isinstance(value, bool):
        return False
    return value in _INT64


def _categories(values: Sequence[Any]) -> tuple[pa.Array, list[int]]:
    """Return texts or whole numbers, and the places of what is neither."""
    kinds = set(map(type, values))
    if kinds <= {str, _NONE}:
        return pa.array(values, pa.string()), []
    if kinds <= {int, _NONE} and all(each is None or each in _INT64 for each in values):
        return pa.array(values, pa.int64()), []
    texts = [_text(each) for each in values]
    wrong = [place for place, each in enumerate(texts) if each is None and values[place] is not None]
    if wrong:
        return None, wrong
    return pa.array(texts, pa.string()), []


def _text(value: object) -> str | None:
    """Return the text of a value as files have it; None if it is no category."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float) and value.is_integer() and int(value) in _INT64:
        return str(int(value))
    return None


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."
