"""What `cloudrec plan` counts of a dataset with a feature schema, by model."""

from __future__ import annotations

from typing import Any

import pytest

from cloudrec.app.planning.planned_inputs import RunTables, layer_sizes, planned_inputs, tables_of
from cloudrec.errors import DataError
from cloudrec.planning.fit.layers import HistorySize

DIM = 16
SETTINGS: dict[str, Any] = {
    "dense_arch_layer_sizes": [32, DIM],
    "over_arch_layer_sizes": [64, 1],
    "interaction": "dot",
    "dcn_num_layers": 3,
    "dcn_low_rank_dim": 8,
    "num_experts": 4,
    "extraction_layers": 2,
    "num_extraction_layers": 2,
    "attention_layer_sizes": [80, 40],
    "attention_num_layers": 2,
    "attention_num_heads": 2,
    "negatives": "mixed",
    "num_negatives": 100,
}
FEATURES = {
    "labels": ["clicked", "bought"],
    "dense": ["price"],
    "sparse": [
        {"name": "user", "dim": 8},
        {"name": "item", "table": "items"},
        {"name": "category", "table": "categories", "dim": 4},
        {"name": "items_seen", "kind": "sequence", "table": "items", "max_length": 10},
        {"name": "categories_seen", "kind": "sequence", "table": "categories", "dim": 4, "max_length": 10},
        {"name": "words", "kind": "sequence", "max_length": 5},
    ],
    "item": ["item", "category"],
}
ROWS = {"user": 100, "item": 50, "category": 9, "items_seen": 50, "categories_seen": 9, "words": 1000}


def _tables(values_bytes: int = 1200, **changes: Any) -> RunTables:
    shard = {"files": {"values": {"bytes": values_bytes}}}
    document = {
        "num_embeddings_per_feature": ROWS,
        "dense_features": ["price"],
        "features": FEATURES,
        "splits": {"train": {"rows": 100, "shards": [shard]}},
    }
    return tables_of({**document, **changes}, "dataset.json")


def test_tables_are_counted_once_and_ids_by_the_sizes_of_the_files() -> None:
    tables = _tables()
    assert tables.rows == [100, 50, 9, 1000]
    assert tables.ids == 3 + 1200 / 4 / 100
    assert (tables.num_dense, tables.samples) == (1, 100)


def test_hashes_of_managed_tables_take_eight_bytes() -> None:
    managed = {"name": "words", "kind": "sequence", "encoding": "managed_collision", "buckets": 1000}
    features = {**FEATURES, "sparse": [*FEATURES["sparse"][:-1], managed]}  # type: ignore[index]
    assert _tables(features=features).ids == 3 + 1200 / 8 / 100


def test_a_model_of_sequences_gets_every_place() -> None:
    tables = _tables()
    found = planned_inputs(tables, "din", DIM)
    assert found.dims == [8, DIM, 4, DIM]
    assert found.plain == [8, DIM, 4]
    assert found.histories == [HistorySize(length=10, width=DIM + 4)]
    assert found.unpaired == [DIM]
    assert found.exchanged == 8 + DIM + 4 + 10 * (DIM + 4) + 5 * DIM
    sizes = layer_sizes(SETTINGS, tables, found)
    assert (sizes.tasks, sizes.width) == (2, 1 + 8 + DIM + 4 + DIM)


def test_other_models_get_one_vector_a_feature() -> None:
    found = planned_inputs(_tables(), "two_tower", DIM)
    assert found.plain == found.vectors == [8, DIM, 4, DIM, 4, DIM]
    assert found.exchanged == sum(found.plain)
    assert found.item == DIM + 4


def test_rows_of_wide_and_deep_keep_the_weights_of_their_ids() -> None:
    found = planned_inputs(_tables(), "wide_deep", DIM)
    assert found.dims == [12, DIM + 4, 8, DIM + 4]
    assert found.plain == [8, DIM, 4, DIM, 4, DIM]
    assert found.exchanged == sum(found.plain) + 6 * 4


def test_a_malformed_dataset_is_refused() -> None:
    with pytest.raises(DataError, match="json lacks or damages"):
        _tables(features={"labels": 3})
