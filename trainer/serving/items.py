"""The items of a retrieval model in an export: their vectors, what they are, and an index of FAISS.

EXPORT/items/vectors.npy   float32 [items, width]
EXPORT/items/items.npy     int64 [items], the ids
EXPORT/items/values.jsonl  the values of the ids, a JSON text a line, if a vocabulary gave ids
EXPORT/items/index.faiss   by inner product, if faiss is installed: exact up to some thousand items, else HNSW
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from cloudrec_contract.safe_json import safe_json
from trainer.base.errors import CheckpointError, ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import numpy.typing as npt
    from torch import Tensor

    from trainer.checkpoint.vocabulary import Vocabulary

FOLDER = "items"
EXACT = 4096  # items up to which the index is exact, since that is fast enough
_NEIGHBOURS, _BUILD, _SEARCH = 32, 200, 256  # of HNSW: links of an item, and candidates that are looked at
_FILES = {"vectors": "vectors.npy", "ids": "items.npy", "values": "values.jsonl", "index": "index.faiss"}
_WITHOUT = "faiss is not installed: pip install 'cloudrec[faiss]'; a server compares with all items instead"


@dataclass(frozen=True, slots=True)
class ServedItems:
    """The items that a server finds."""

    feature: str
    ids: Tensor  # int64 [items]
    vectors: Tensor  # float32 [items, width]
    values: Sequence[str] | None  # of the ids; None: they are hashes
    index: Any = None  # FAISS'

    def search(self, users: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """Return the largest products with users' vectors [users, count], and the places of their items.

        A place is -1 where an index found fewer.
        """
        count = min(count, len(self.ids))
        if self.index is None:
            found = (users @ self.vectors.T).topk(count, dim=1)
            return found.values, found.indices
        products, places = self.index.search(np.ascontiguousarray(users.numpy()), count)
        return torch.from_numpy(products), torch.from_numpy(places)


def make_index(vectors: npt.NDArray[np.float32]) -> Any:  # noqa: ANN401 - FAISS has no types
    """Return an index of vectors by inner product."""
    import faiss  # noqa: PLC0415 - an extra

    width = vectors.shape[1]
    if len(vectors) <= EXACT:
        index: Any = faiss.IndexFlatIP(width)
    else:
        index = faiss.IndexHNSWFlat(width, _NEIGHBOURS, faiss.METRIC_INNER_PRODUCT)
        index.hnsw.efConstruction, index.hnsw.efSearch = _BUILD, _SEARCH
    index.add(np.ascontiguousarray(vectors))
    return index


def values_of(vocabulary: Vocabulary | None, feature: str, ids: npt.NDArray[np.int64]) -> list[str] | None:
    """Return the values of a feature's ids; None if no vocabulary gave them."""
    if vocabulary is None:
        return None
    document = vocabulary.encoding.document
    file = document["files"].get(feature)
    table = next(each for each in document["mapping"]["tables"] if each["feature"] == feature)
    if file is None or not str(file["path"]).endswith(".jsonl"):
        return None
    name = str(file["path"]).rpartition("/")[2]
    data = vocabulary.store.read(f"{vocabulary.prefix}/{name}", 0, int(file["bytes"]))
    texts = [str(safe_json(line)) for line in data.splitlines()]
    first = int(table["rows"]) - len(texts)
    return [texts[each - first] for each in ids.tolist()]


def write_items(
    vocabulary: Vocabulary | None, folder: Path, feature: str, ids: npt.NDArray[np.int64], vectors: Tensor
) -> dict[str, Any]:
    """Write items into an export's folder; return their description.

    Raises:
        ConfigError: there are none.
    """
    if not len(ids):
        raise ConfigError(
            "items has no item that the model knows; name the data that it learned from, or newer"
        )
    place = folder / FOLDER  # boundary: its own name
    place.mkdir()
    array = vectors.numpy().astype(np.float32)
    np.save(place / _FILES["vectors"], array)
    np.save(place / _FILES["ids"], ids)
    description: dict[str, Any] = {"feature": feature, "count": len(ids), "width": array.shape[1]}
    values = values_of(vocabulary, feature, ids)
    if values is not None:
        text = "".join(f"{json.dumps(each)}\n" for each in values)
        (place / _FILES["values"]).write_text(text, encoding="utf-8")
    if importlib.util.find_spec("faiss") is None:
        description["no_index"] = _WITHOUT
    else:
        import faiss  # noqa: PLC0415 - an extra

        faiss.write_index(make_index(array), str(place / _FILES["index"]))
    found = {key: place / name for key, name in _FILES.items()}  # boundary: its own names
    description["files"] = {key: _entry(path) for key, path in found.items() if path.exists()}
    return description


def read_items(folder: Path, description: Mapping[str, Any]) -> ServedItems:
    """Read the items of an export.

    Raises:
        CheckpointError: a file differs from its description.
    """
    files: Mapping[str, Any] = description["files"]
    paths = {
        key: folder / FOLDER / name for key, name in _FILES.items() if key in files
    }  # boundary: its own names
    for key, path in paths.items():
        if (found := _entry(path)) != files[key]:
            raise CheckpointError(f"{path}: is {found}, not {files[key]}; export or copy it again")
    values, index = None, None
    if "values" in paths:
        values = [str(safe_json(line)) for line in paths["values"].read_bytes().splitlines()]
    if "index" in paths and importlib.util.find_spec("faiss") is not None:
        import faiss  # noqa: PLC0415 - an extra

        index = faiss.read_index(str(paths["index"]))
    ids = torch.from_numpy(np.load(paths["ids"], allow_pickle=False))
    vectors = torch.from_numpy(np.load(paths["vectors"], allow_pickle=False))
    counts = {len(ids), len(vectors), *([] if values is None else [len(values)])}
    counts |= set() if index is None else {index.ntotal}
    if len(counts) > 1:
        raise CheckpointError(f"{folder / FOLDER}: its files have {sorted(counts)} items; export it again")
    return ServedItems(str(description["feature"]), ids, vectors, values, index)


def _entry(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        return {"bytes": path.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}
