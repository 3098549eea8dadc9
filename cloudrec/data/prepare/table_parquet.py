"""Streaming the columns of a Parquet file, with the dictionaries that the file has where they are small.

To convert the different texts of a batch alone is faster than to convert all of them. A file does not say
how many there are, but how large the dictionaries of its first row group are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from cloudrec_contract.features import FeatureSchema

BATCH_ROWS = 65_536
_DICTIONARY_BYTES = 128 << 10  # as packed


def read_parquet(
    source: Path | pa.NativeFile, schema: FeatureSchema, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Yield columns of a file, some rows at a time."""
    metadata = pa.parquet.read_metadata(source)
    texts, elements = _small_dictionaries(metadata, schema)
    file = pa.parquet.ParquetFile(
        source,
        metadata=metadata,
        read_dictionary=[*texts, *elements],
        pre_buffer=False,  # otherwise it keeps all that it has read
    )
    if elements:  # Arrow reads lists with dictionaries of one row group alone
        for group in range(metadata.num_row_groups):
            yield from file.iter_batches(BATCH_ROWS, row_groups=[group], columns=columns)
    else:
        yield from file.iter_batches(BATCH_ROWS, columns=columns)


def _small_dictionaries(
    metadata: pa.parquet.FileMetaData, schema: FeatureSchema
) -> tuple[Sequence[str], Sequence[str]]:
    """Return the paths of texts with a small dictionary: those of columns, and those in lists."""
    groups = metadata.num_row_groups
    if not groups or metadata.num_rows < groups * BATCH_ROWS // 2:  # a batch would end with each group
        return (), ()
    single = {each.column for each in schema.single}
    lists = {each.column for each in schema.lists if each.separator is None}
    first, texts, elements = metadata.row_group(0), [], []
    for number in range(first.num_columns):
        column, kind = first.column(number), metadata.schema.column(number)
        if not column.has_dictionary_page or kind.logical_type.type != "STRING":
            continue
        if not 0 < column.data_page_offset - column.dictionary_page_offset <= _DICTIONARY_BYTES:
            continue
        if column.path_in_schema in single:
            texts.append(column.path_in_schema)
        elif kind.max_repetition_level == 1 and column.path_in_schema.partition(".")[0] in lists:
            elements.append(column.path_in_schema)
    return texts, elements
