"""The conversion between this trainer's checkpoints and torch.distributed.checkpoint (DCP).

    FOLDER/.metadata, *.distcp    torch's files
    FOLDER/cloudrec.json          what torch's format has no place for: settings, sizes, encoding, progress
    FOLDER/vocabulary/*           the values of the ids, if a vocabulary gave them

Tensors have the names of the unsharded module's `state_dict`: `embeddings.embedding_bags.TABLE.weight` and
`dense.PARAMETER`. The optimizers' states and the rest of a run's state have their canonical names
(trainer.sharding.state). A checkpoint of another tool may have a prefix before the names of the module, such
as the `model.` of a wrapped module, and none of the other tensors.
"""

from __future__ import annotations

import json
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch.distributed import checkpoint as dcp
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.metadata import TensorStorageMetadata

from cloudrec_contract.safe_json import safe_object
from trainer.base.entry import Entry, TensorShard
from trainer.base.errors import CheckpointError, ConfigError
from trainer.checkpoint import Checkpointer
from trainer.checkpoint.load.reading import open_committed
from trainer.checkpoint.vocabulary import in_folder, kept_in
from trainer.data.encoding import of_model
from trainer.warm.source import CheckpointedModel

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from torch import Tensor

    from trainer.checkpoint.vocabulary import Vocabulary

SIDE_FILE = "cloudrec.json"
FORMAT = "cloudrec-dcp"
SCHEMA_VERSION = 1
_TABLES = "embeddings.embedding_bags."


def to_dcp(uri: str, step: int | None, folder: Path) -> dict[str, Any]:
    """Write a checkpoint into a new or empty folder in torch's format; return its step and size.

    Raises:
        ConfigError: the folder is not empty.
        CheckpointError: there is no such checkpoint, or it is damaged.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"out {folder}: is not an empty folder; give a new one")
    checkpoint = open_committed(uri, step)
    model = CheckpointedModel(checkpoint)
    tensors = {_module_name(name): _whole(model, name) for name in sorted(model.names)}
    with _one_process():
        dcp.save(tensors, checkpoint_id=folder, no_dist=True)
    if model.vocabulary is not None:
        model.vocabulary.export_to(folder)
    commit = checkpoint.commit
    document = {
        "format": FORMAT,
        "schema_version": SCHEMA_VERSION,
        "step": commit.step,
        "extra": dict(commit.extra),
        "fingerprint": dict(commit.fingerprint),
    }
    (folder / SIDE_FILE).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return {"step": commit.step, "tensors": len(tensors), "bytes": _bytes(tensors)}


def from_dcp(folder: Path, like: str | None, out: str) -> dict[str, Any]:
    """Make a checkpoint of one in torch's format; return its step and size.

    Args:
        folder: torch's checkpoint. Its metadata is a pickle: reading it can run code.
        like: a checkpoint with the configuration, sizes and encoding of the model, if the folder has no
            cloudrec.json.
        out: where the checkpoint is written; refused if it has one.

    Raises:
        ConfigError: nothing describes the model, its rows' ids are unknown, or `out` has checkpoints.
        CheckpointError: a table or a layer of the model is missing, or has another shape or type.
    """
    stored = _stored(folder)
    if (folder / SIDE_FILE).is_file():
        described = _described(folder)
        wanted = dict.fromkeys(map(_canonical_name, stored))
        names = {name: _module_name(name) for name in wanted}
        vocabulary = _vocabulary_in(folder, described["extra"])
    elif like is not None:
        template = open_committed(like)
        if managed := sorted(template.commit.extra.get("model", {}).get("managed", ())):
            raise ConfigError(
                f"like {like}: the table {managed[0]} has encoding managed_collision, and another tool's "
                "checkpoint does not say which ids its rows have; give --like a model without one"
            )
        described = {
            "step": template.commit.step,
            "extra": dict(template.commit.extra),
            "fingerprint": dict(template.commit.fingerprint),
        }
        names = _weights_of(CheckpointedModel(template), stored)
        encoding = of_model(template.commit.extra, template.place)
        vocabulary = None if encoding is None else kept_in(template.store, encoding)
    else:
        raise ConfigError(
            f"dcp {folder}: has no {SIDE_FILE}, so another tool wrote it; give --like with a checkpoint of "
            "the same model, which has its sizes and its encoding (a run of one step makes one)"
        )
    tensors = {
        theirs: torch.empty(stored[theirs].size, dtype=stored[theirs].properties.dtype)
        for theirs in names.values()
    }
    try:
        with _one_process():
            dcp.load(tensors, checkpoint_id=folder, no_dist=True)
    except (CheckpointException, OSError, ValueError, KeyError) as error:
        raise CheckpointError(f"{folder}: cannot be read: {error}; copy it again") from error
    state = {name: _entry(tensors[theirs]) for name, theirs in names.items()}
    with Checkpointer(out, keep=1, rank=0, world_size=1) as checkpointer:
        if checkpointer.steps():
            raise ConfigError(f"out {out}: holds checkpoints; give another folder")
        if vocabulary is not None:
            checkpointer.keep(vocabulary)
        checkpointer.save(described["step"], state, described["extra"], described["fingerprint"])
    return {"step": described["step"], "tensors": len(tensors), "bytes": _bytes(tensors)}


@contextmanager
def _one_process() -> Iterator[None]:
    """Silence torch's remark that there are no ranks, which is as it should be here."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled", category=UserWarning)
        yield


def _module_name(name: str) -> str:
    """Return the name in torch's checkpoint: that of the module's state_dict for weights."""
    kind, *rest = name.split("/")
    if kind == "tables" and rest[-1] == "weight":
        return f"{_TABLES}{rest[0]}.weight"
    return f"dense.{'/'.join(rest)}" if kind == "dense" else name


def _canonical_name(name: str) -> str:
    if name.startswith(_TABLES):
        return f"tables/{name.removeprefix(_TABLES).removesuffix('.weight')}/weight"
    return f"dense/{name.removeprefix('dense.')}" if name.startswith("dense.") else name


def _whole(model: CheckpointedModel, name: str) -> Tensor:
    kind, *rest = name.split("/")
    if kind != "tables":
        return model.whole(name)
    return model.rows(rest[0], rest[1], 0, model.shape.num_embeddings[rest[0]])


def _stored(folder: Path) -> dict[str, TensorStorageMetadata]:
    """Return what torch's checkpoint has; unpickles its metadata."""
    try:
        found = dcp.FileSystemReader(folder).read_metadata().state_dict_metadata
    except Exception as error:  # a pickle may raise anything
        raise CheckpointError(
            f"{folder}: is no checkpoint of torch.distributed.checkpoint: {type(error).__name__}: {error}; "
            "give the folder that has .metadata in it"
        ) from error
    return {name: each for name, each in found.items() if isinstance(each, TensorStorageMetadata)}


def _described(folder: Path) -> dict[str, Any]:
    path = folder / SIDE_FILE
    try:
        document = safe_object(path.read_bytes())
        if document["format"] != FORMAT or document["schema_version"] != SCHEMA_VERSION:
            raise CheckpointError(
                f"{path}: is {document['format']} version {document['schema_version']}, this trainer reads "
                f"{FORMAT} version {SCHEMA_VERSION}"
            )
        return {
            "step": int(document["step"]),
            "extra": dict(document["extra"]),
            "fingerprint": dict(document["fingerprint"]),
        }
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{path}: cannot be read: {error!r}; convert the checkpoint again") from error


def _vocabulary_in(folder: Path, extra: Mapping[str, Any]) -> Vocabulary | None:
    encoding = of_model(extra, folder / SIDE_FILE)
    return None if encoding is None or not encoding.files else in_folder(folder, encoding)


def _weights_of(model: CheckpointedModel, stored: Mapping[str, TensorStorageMetadata]) -> dict[str, str]:
    """Return the names of the model's weights in torch's checkpoint, by canonical name."""
    weights = [
        name
        for name in sorted(model.names)
        if name.startswith("dense/") or (name.startswith("tables/") and name.endswith("/weight"))
    ]
    table = next(_module_name(name) for name in weights if name.startswith("tables/"))
    prefixes = {each.removesuffix(table) for each in stored if each.endswith(table)}
    if len(prefixes) != 1:
        shown = ", ".join(sorted(stored)[:5])
        raise CheckpointError(
            f"dcp: {len(prefixes)} tensors end with {table}, where there must be one; it has {shown}, ..."
        )
    (prefix,) = prefixes
    names = {name: f"{prefix}{_module_name(name)}" for name in weights}
    for name, theirs in names.items():
        if theirs not in stored:
            raise CheckpointError(f"dcp: has no {theirs}; --like must be a checkpoint of the same model")
        if tuple(stored[theirs].size) != model.shape_of(name):
            raise CheckpointError(
                f"dcp: {theirs} is {list(stored[theirs].size)}, but the model of --like has "
                f"{list(model.shape_of(name))}; it must be a checkpoint of the same model"
            )
    return names


def _entry(tensor: Tensor) -> Entry:
    shape = tuple(tensor.shape)
    return Entry(shape=shape, shards=(TensorShard(tensor, (0,) * len(shape)),), replicated=True)


def _bytes(tensors: Mapping[str, Tensor]) -> int:
    return sum(tensor.nbytes for tensor in tensors.values())
