"""What a run trains on: dataset.json of a prepared dataset on this machine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cloudrec.home import read_text
from cloudrec.observe.metrics import finite
from cloudrec_contract.safe_json import safe_object

_NAME = "dataset.json"


@dataclass(frozen=True, kw_only=True)
class DatasetView:
    """A prepared dataset; None for what its description does not say.

    Attributes:
        place: its path or URI.
        train_rows: rows to train on.
        test_rows: held-out rows.
        positives: the share of positive labels in the training rows.
        dense: the number of dense features.
        sparse: the number of sparse features.
        table_rows: the rows of all tables.
        created: when it was prepared.
        digest: the sha256 of its content.
        problem: why its description was not read; empty if it was.
    """

    place: str
    train_rows: float | None = None
    test_rows: float | None = None
    positives: float | None = None
    dense: int | None = None
    sparse: int | None = None
    table_rows: float | None = None
    created: str = ""
    digest: str = ""
    problem: str = ""


def read_dataset(place: str) -> DatasetView:
    """Return what is known of a dataset; its place alone if its description is not on this machine."""
    local = place.removeprefix("file://")
    if "://" in local:
        return DatasetView(place=place, problem="it is in a bucket, which this page does not read")
    try:
        document = safe_object(read_text(Path(local) / _NAME))
    except FileNotFoundError:
        return DatasetView(place=place, problem=f"there is no {_NAME} in it on this machine")
    except (OSError, ValueError) as error:
        return DatasetView(place=place, problem=f"its {_NAME} cannot be read: {error}")
    return _view(place, document)


def _view(place: str, document: dict[str, Any]) -> DatasetView:
    splits, tables = document.get("splits"), document.get("num_embeddings_per_feature")
    train, test = (_split(splits, name) for name in ("train", "test"))
    rows, positives = finite(train.get("rows")), finite(train.get("positives"))
    sizes = [finite(size) or 0.0 for size in tables.values()] if isinstance(tables, dict) else None
    return DatasetView(
        place=place,
        train_rows=rows,
        test_rows=finite(test.get("rows")),
        positives=positives / rows if rows and positives is not None else None,
        dense=_count(document.get("dense_features")),
        sparse=_count(document.get("sparse_features")),
        table_rows=sum(sizes) if sizes is not None else None,
        created=str(document.get("created") or ""),
        digest=str(document.get("digest") or ""),
    )


def _split(splits: object, name: str) -> dict[str, Any]:
    found = splits.get(name) if isinstance(splits, dict) else None
    return found if isinstance(found, dict) else {}


def _count(names: object) -> int | None:
    return len(names) if isinstance(names, list) else None
