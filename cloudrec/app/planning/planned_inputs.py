"""What a run's model gets from its tables, by the dataset's features and the trainer's settings."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from cloudrec.errors import DataError
from cloudrec.planning.fit.layers import (
    HistorySize,
    LayerSizes,
    reads_in_order,
    table_width,
)
from cloudrec_contract.features import MAX_LENGTH, parse

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cloudrec_contract.features import FeatureSchema

_DENSE = 13  # of a run whose dataset is not named: Criteo's
_ID_BYTES, _HASH_BYTES = 4, 8  # of an id in a file of lists; the second with managed_collision


@dataclass(frozen=True, kw_only=True)
class RunTables:
    """The tables of a run.

    Attributes:
        rows: of each table.
        source: where these are from.
        num_dense: dense values of a sample.
        samples: the training samples; None if unknown.
        scored: the test samples; 0 if unknown.
        schema: of the features; None for Criteo's.
        ids: ids of a sample over all tables; None if unknown.
    """

    rows: Sequence[int]
    source: str
    num_dense: int = _DENSE
    samples: int | None = None
    scored: int = 0
    schema: FeatureSchema | None = None
    ids: float | None = None


@dataclass(frozen=True, kw_only=True)
class PlannedInputs:
    """What a model gets from its tables.

    Attributes:
        dims: the values of a row of each table.
        vectors: of a row, for each feature.
        exchanged: values of a sample that ranks exchange.
        plain: the widths of the vectors, without sequences that the model reads in order.
        histories: these sequences beside candidates of the same tables.
        unpaired: the widths of the others.
        item: the width of the item's vectors.
    """

    dims: Sequence[int]
    vectors: Sequence[int]
    exchanged: int
    plain: Sequence[int]
    histories: Sequence[HistorySize] = ()
    unpaired: Sequence[int] = ()
    item: int = 0


def planned_inputs(tables: RunTables, model: str, dim: int) -> PlannedInputs:
    """Return what a model gets from its tables; see trainer.models.sequences.histories."""
    schema = tables.schema
    if schema is None:
        widths = [dim] * len(tables.rows)
        stored = [table_width(model, width) for width in widths]
        return PlannedInputs(dims=stored, vectors=stored, exchanged=sum(stored), plain=widths)
    width = {each.name: each.dim or dim for each in schema.sparse}
    in_order = {each.name for each in schema.sequences} if reads_in_order(model) else set()
    length = {each.name: each.max_length or MAX_LENGTH for each in schema.sequences}
    places = {
        each.name: length[each.name]
        for each in schema.sequences
        if each.name in in_order or each.pooling == "position"
    }
    events: dict[int, int] = {}
    unpaired = []
    for each in schema.sequences:
        if each.name not in in_order:
            continue
        if any(other.name not in in_order for other in schema.tables[each.table]):
            events[length[each.name]] = events.get(length[each.name], 0) + width[each.name]
        else:
            unpaired.append(width[each.name])
    stored = [table_width(model, width[each.name]) for each in schema.sparse]
    return PlannedInputs(
        dims=[table_width(model, width[features[0].name]) for features in schema.tables.values()],
        vectors=stored,
        exchanged=sum(
            table_width(model, width[each.name]) * places.get(each.name, 1) for each in schema.sparse
        ),
        plain=[width[each.name] for each in schema.sparse if each.name not in in_order],
        histories=[HistorySize(length=most, width=wide) for most, wide in events.items()],
        unpaired=unpaired,
        item=sum(width[name] for name in schema.item),
    )


def layer_sizes(settings: Mapping[str, Any], tables: RunTables, inputs: PlannedInputs) -> LayerSizes:
    """Return the sizes of the layers by the trainer's settings."""
    schema = tables.schema
    return LayerSizes(
        num_dense=tables.num_dense,
        vectors=inputs.plain,
        bottom=settings["dense_arch_layer_sizes"],
        top=settings["over_arch_layer_sizes"],
        interaction=str(settings["interaction"]),
        cross_layers=int(settings["dcn_num_layers"]),
        cross_rank=int(settings["dcn_low_rank_dim"]),
        tasks=1 if schema is None else len(schema.labels),
        experts=int(settings["num_experts"]),
        extraction_layers=int(settings["num_extraction_layers"]),
        attention_sizes=settings["attention_layer_sizes"],
        attention_layers=int(settings["attention_num_layers"]),
        attention_heads=int(settings["attention_num_heads"]),
        histories=inputs.histories,
        unpaired=inputs.unpaired,
        item_width=inputs.item,
        negatives=str(settings["negatives"]),
        drawn=int(settings.get("num_negatives") or 0),
    )


def tables_of(document: Mapping[str, Any], source: str) -> RunTables:
    """Return the tables of a dataset; features of its schema may share them.

    Args:
        document: dataset.json.
        source: its place, for messages.

    Raises:
        DataError: it lacks something, or has it in another form.
    """
    try:
        sizes = {str(name): int(rows) for name, rows in document["num_embeddings_per_feature"].items()}
        train = document["splits"]["train"]
        found = RunTables(
            rows=list(sizes.values()),
            source=source,
            num_dense=len(document.get("dense_features") or ()),
            samples=int(train["rows"]),
            scored=int((document["splits"].get("test") or {}).get("rows", 0)),
        )
        if document.get("features") is None:
            return found
        schema = parse(document["features"])
        tables = schema.tables.values()
        id_bytes = _HASH_BYTES if schema.managed else _ID_BYTES
        values = sum(
            int(shard["files"]["values"]["bytes"]) // id_bytes
            for shard in train["shards"]
            if "values" in shard["files"]
        )
        return replace(
            found,
            rows=[sizes[features[0].name] for features in tables],
            schema=schema,
            ids=len(schema.single) + values / max(found.samples or 1, 1),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataError(
            f"{source} lacks or damages {error}", remedy="prepare the dataset again with this cloudrec"
        ) from error
