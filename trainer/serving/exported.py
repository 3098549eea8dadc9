"""The export of a trained model: plain files for a server or trainer.commands.predict.

FOLDER/tables/<table>.npy     float32 [rows, dim], or float16, or uint8 [rows, bytes] (trainer.tables.tables)
FOLDER/dense/<parameter>.npy  float32, one file a weight
FOLDER/managed/<table>.npy    int64 [rows], the id of each row, of tables with encoding managed_collision
FOLDER/vocabulary/<table>.npy uint32 [rows - 2]: the value of each id from 2 on, if a vocabulary gave ids
FOLDER/graph.pt2              the computation, if it was asked for (trainer.serving.graph)
FOLDER/items/...              items of a retrieval model, if they were asked for (trainer.serving.items)
FOLDER/config.json            written last: sizes, configuration, encoding, and every file's bytes and sha256
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TypeAlias, cast, get_args

import numpy as np
import torch

from cloudrec_contract.safe_json import safe_object
from trainer.base.errors import CheckpointError, ConfigError
from trainer.checkpoint.vocabulary import in_folder
from trainer.data.encoding import of_model
from trainer.serving.document import FILE_NAME, FORMAT, SCHEMA_VERSION, encode_document
from trainer.serving.items import read_items
from trainer.serving.scorer import TrainedModel, parse_shape, scoring_config
from trainer.tables.tables import BITS, Quantization, row_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from torch import Tensor

    from trainer.checkpoint.vocabulary import Vocabulary

Part: TypeAlias = "Callable[[TrainedModel, Path], dict[str, Any]]"  # writes files and describes them


def write_export(trained: TrainedModel, folder: Path, parts: Mapping[str, Part] | None = None) -> int:
    """Write all files into a new or empty folder; return the bytes written.

    Args:
        trained: the model.
        folder: the folder.
        parts: further parts, by their keys in config.json.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"out {folder}: is not an empty folder; give a new one")
    files: dict[str, dict[str, Any]] = {}
    kinds = {"tables": trained.tables, "dense": trained.dense}
    if trained.managed:
        kinds["managed"] = trained.managed
    for kind, tensors in kinds.items():
        (folder / kind).mkdir(parents=True)  # boundary: its own names
        for name, tensor in tensors.items():
            path = f"{kind}/{name}.npy"
            file = folder / path  # boundary: its own names
            np.save(file, tensor.detach().cpu().contiguous().numpy())
            files[path] = {"bytes": file.stat().st_size, "sha256": _sha256(file)}
    if trained.vocabulary is not None:
        trained.vocabulary.export_to(folder)
    described = describe(trained) | {key: write(trained, folder) for key, write in (parts or {}).items()}
    temporary = folder / f".{FILE_NAME}.tmp"
    temporary.write_text(encode_document(described, files), encoding="utf-8")
    temporary.replace(folder / FILE_NAME)
    return sum(file["bytes"] for file in files.values())


def describe(trained: TrainedModel) -> dict[str, Any]:
    """Return the contents of config.json without the list of files."""
    known = trained.vocabulary
    return {
        "format": FORMAT,
        "schema_version": SCHEMA_VERSION,
        "step": trained.step,
        "quantization": trained.quantization,
        "model": asdict(trained.shape),
        "config": trained.config.model_dump(mode="json", exclude={"model_source"}),
        "encoding": None if known is None else dict(known.encoding.document),
    }


def write_encoding(vocabulary: Vocabulary, folder: Path) -> None:
    """Write the encoding alone, as `data prepare --like` reads it from an export."""
    vocabulary.export_to(folder)
    document = {"format": FORMAT, "encoding": dict(vocabulary.encoding.document)}
    (folder / FILE_NAME).write_text(json.dumps(document), encoding="utf-8")


def read_export(folder: Path) -> TrainedModel:
    """Read an export; CheckpointError if a file is missing or its sha256 differs."""
    path = folder / FILE_NAME
    try:
        document = safe_object(path.read_bytes())
        if document["format"] != FORMAT or document["schema_version"] != SCHEMA_VERSION:
            found = f"{document['format']} version {document['schema_version']}"
            raise CheckpointError(f"{path}: is {found}, this trainer reads {FORMAT} version {SCHEMA_VERSION}")
        tensors = {name: _load(folder / _plain(name), entry) for name, entry in document["files"].items()}
        encoding = of_model(document, path)
        trained = TrainedModel(
            config=scoring_config(document["config"]),
            shape=parse_shape(document["model"]),
            step=int(document["step"]),
            quantization=_quantization(document["quantization"]),
            tables=_of_kind(tensors, "tables"),
            dense=_of_kind(tensors, "dense"),
            managed=_of_kind(tensors, "managed"),
            vocabulary=None if encoding is None else in_folder(folder, encoding),
            items=read_items(folder, document["items"]) if "items" in document else None,
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{path}: cannot be read: {error!r}; export the model again") from error
    _check_tables(path, trained)
    return trained


def _quantization(value: object) -> Quantization:
    """Return the kind of an export's tables; ValueError for another value."""
    for known in get_args(Quantization):
        if known == value:
            return cast("Quantization", known)
    raise ValueError(f"quantization is {value!r}, not one of {', '.join(get_args(Quantization))}")


def is_export(folder: Path) -> bool:
    """Whether a folder holds an export and not checkpoints."""
    return (folder / FILE_NAME).is_file()


def _of_kind(tensors: dict[str, Tensor], kind: str) -> dict[str, Tensor]:
    return {
        name.removeprefix(f"{kind}/").removesuffix(".npy"): tensor
        for name, tensor in tensors.items()
        if name.startswith(f"{kind}/")
    }


def _plain(name: str) -> str:
    """Return a file's name; ValueError if it leads out of the export's folder."""
    parts = name.split("/")
    if {"", ".", ".."} & set(parts) or not name.isprintable() or "\\" in name:
        raise ValueError(f"the file {name!r} lies outside the export's folder, or has no plain name")
    return name


def _load(path: Path, entry: dict[str, Any]) -> Tensor:
    found = _sha256(path)
    if found != entry["sha256"]:
        raise CheckpointError(
            f"{path}: its sha256 is {found}, not {FILE_NAME}'s {entry['sha256']}; export or copy it again"
        )
    return torch.from_numpy(np.load(path, allow_pickle=False))


def _check_tables(path: Path, trained: TrainedModel) -> None:
    kind = trained.quantization
    if unknown := sorted(trained.tables.keys() - trained.shape.num_embeddings.keys()):
        raise CheckpointError(f"{path}: {unknown[0]!r} is no table of the model; export it again")
    for name, rows in trained.shape.num_embeddings.items():
        dim = trained.shape.dim(name)
        width = row_bytes(dim, kind) if kind in BITS else dim
        found = tuple(trained.tables[name].shape) if name in trained.tables else None
        if found != (rows, width):
            raise CheckpointError(
                f"{path}: the table {name} is {found}, not {(rows, width)}; export it again"
            )
        if (kind == "fp16") != (trained.tables[name].dtype == torch.float16):
            raise CheckpointError(
                f"{path}: the table {name} is of {trained.tables[name].dtype}, which {kind} tables are not; "
                "export it again"
            )


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
