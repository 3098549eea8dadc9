"""Sharding plans as JSON files: the place of every shard, independent of torchrec's classes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

import torch
from torch.distributed._shard.metadata import ShardMetadata
from torch.distributed._shard.sharding_spec import EnumerableShardingSpec
from torchrec.distributed.types import (
    CacheParams,
    EmbeddingModuleShardingPlan,
    ParameterSharding,
    ShardingPlan,
)

from cloudrec_contract.safe_json import safe_object
from trainer.base.config import KernelKind, ShardingKind
from trainer.base.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from trainer.models.model import ModelShape
    from trainer.sharding.topology import Machines

_KINDS, _KERNELS = get_args(ShardingKind), get_args(KernelKind)
FORMAT = "cloudrec-sharding-plan"
MODULE = "model.embeddings"  # the collection's place in a TrainTask
FROM_CHECKPOINT = "checkpoint"  # the value of sharding_plan that names no file
IN_CHECKPOINT = "sharding_plan"  # the plan's key in the `extra` of a commit
CACHING = "fused_uvm_caching"  # the kernel that keeps some rows in GPU memory


def to_document(plan: ShardingPlan, shape: ModelShape, machines: Machines) -> dict[str, Any]:
    """Describe a plan in JSON types; the same plan gives the same document."""
    return {
        "format": FORMAT,
        "schema_version": 1,
        "world_size": machines.world_size,
        "local_world_size": machines.local_world_size,
        "device": machines.device,
        "embedding_dim": shape.embedding_dim,
        "tables": {
            table: _describe(plan.plan[MODULE][table], rows, shape.dim(table))
            for table, rows in shape.num_embeddings.items()
        },
    }


def read_plan(path: Path, shape: ModelShape, machines: Machines) -> ShardingPlan:
    """Read a plan for this model on these machines; ConfigError names the first difference."""
    try:
        document = safe_object(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"cannot read the sharding plan {path}: {error}") from error
    except ValueError as error:
        raise ConfigError(f"the sharding plan {path} cannot be read: {error}") from error
    return parse_plan(document, shape, machines, where=str(path))


def parse_plan(
    document: Mapping[str, Any], shape: ModelShape, machines: Machines, *, where: str
) -> ShardingPlan:
    """Return the plan that a document of `to_document` describes; errors are those of `read_plan`.

    Args:
        document: the plan in JSON types.
        shape: the model that it must fit.
        machines: the ranks that it must fit.
        where: names the document in errors.
    """
    if document.get("format") != FORMAT:
        raise ConfigError(f"{where} is no sharding plan; OUTPUT_DIR/sharding_plan.json of a run is one")
    try:
        _check_fits(document, shape, machines)
        tables = {
            table: _parse(table, document["tables"][table], rows, shape.dim(table), machines)
            for table, rows in shape.num_embeddings.items()
        }
    except ConfigError as error:
        raise ConfigError(f"the sharding plan {where} cannot be used: {error}") from None
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ConfigError(
            f"the sharding plan {where} is damaged ({type(error).__name__}: {error}); make a new one"
        ) from error
    return ShardingPlan(plan={MODULE: EmbeddingModuleShardingPlan(tables)})


def _check_fits(document: Mapping[str, Any], shape: ModelShape, machines: Machines) -> None:
    here = {
        "world_size": machines.world_size,
        "local_world_size": machines.local_world_size,
        "embedding_dim": shape.embedding_dim,
    }
    for name, value in here.items():
        if document[name] != value:
            raise ConfigError(
                f"it was made for {name} {document[name]}, but this run has {value}; "
                "leave sharding_plan out to make a new plan"
            )
    planned = {table: entry["rows"] for table, entry in document["tables"].items()}
    for table in sorted(planned.keys() ^ shape.num_embeddings.keys()):
        owner, other = ("plan", "model") if table in planned else ("model", "plan")
        raise ConfigError(f"the {owner} has a table {table}, which the {other} has not")
    for table, rows in shape.num_embeddings.items():
        if planned[table] != rows:
            raise ConfigError(f"it has {planned[table]} rows for {table}, but the model's table has {rows}")


def _describe(parameter: ParameterSharding, rows: int, dim: int) -> dict[str, Any]:
    spec = parameter.sharding_spec
    shards = [
        {
            "rows": [piece.shard_offsets[0], piece.shard_sizes[0]],
            "columns": [piece.shard_offsets[1], piece.shard_sizes[1]],
            "rank": piece.placement.rank(),
        }
        for piece in (spec.shards if spec is not None else ())
    ]
    caching = parameter.compute_kernel == CACHING and parameter.cache_params is not None
    return {
        "rows": rows,
        "columns": dim,
        "sharding_type": parameter.sharding_type,
        "compute_kernel": parameter.compute_kernel,
        **({"uvm_cache_load_factor": parameter.cache_params.load_factor} if caching else {}),
        "ranks": parameter.ranks,
        "shards": shards,
    }


def _parse(table: str, entry: dict[str, Any], rows: int, dim: int, machines: Machines) -> ParameterSharding:
    kind, kernel = entry["sharding_type"], entry["compute_kernel"]
    if kind not in _KINDS or kernel not in _KERNELS:
        raise ConfigError(
            f"{table} is {kind} with the kernel {kernel}; the types are {', '.join(_KINDS)}, the kernels "
            f"{', '.join(_KERNELS)}"
        )
    if (kind == "data_parallel") != (kernel == "dense"):
        raise ConfigError(
            f"{table} is {kind} with the kernel {kernel}; data_parallel needs dense, others refuse it"
        )
    if kernel not in ("dense", "fused") and machines.device == "cpu":
        raise ConfigError(f"{table} has the kernel {kernel}, which needs a GPU; the device is cpu")
    if kind == "data_parallel":
        return ParameterSharding(kind, kernel, ranks=list(range(machines.world_size)))
    pieces = [_parse_shard(table, piece, machines) for piece in entry["shards"]]
    covered = sum(piece.shard_sizes[0] * piece.shard_sizes[1] for piece in pieces)
    if covered != rows * dim:
        raise ConfigError(f"its shards of {table} hold {covered} elements, but the table has {rows * dim}")
    if not _is_tiled(pieces, rows, dim):
        raise ConfigError(f"its shards of {table} overlap, so a part of the table is in none of them")
    return ParameterSharding(
        kind,
        kernel,
        ranks=[_rank(table, each, machines) for each in entry["ranks"]],
        sharding_spec=EnumerableShardingSpec(pieces),
        cache_params=_parse_cache(table, entry) if kernel == CACHING else None,
    )


def _is_tiled(pieces: Sequence[ShardMetadata], rows: int, dim: int) -> bool:
    """Return whether the shards are the whole table, each element once.

    Shards are of whole columns, and of parts of their rows. So each range of columns has its own rows.
    """
    of_columns: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for piece in pieces:
        (row, column), (high, wide) = piece.shard_offsets, piece.shard_sizes
        of_columns.setdefault((column, wide), []).append((row, high))
    parts = [(sorted(of_columns), dim), *((sorted(each), rows) for each in of_columns.values())]
    return all(_is_range(each, size) for each, size in parts)


def _is_range(parts: Sequence[tuple[int, int]], size: int) -> bool:
    """Return whether sorted parts, each with its beginning and its size, follow each other up to a size."""
    end = 0
    for begin, length in parts:
        if begin != end or length < 0:
            return False
        end += length
    return end == size


def _rank(table: str, rank: object, machines: Machines) -> int:
    if not isinstance(rank, int) or not 0 <= rank < machines.world_size:
        raise ConfigError(
            f"it puts a shard of {table} on rank {rank}; ranks are 0 to {machines.world_size - 1}"
        )
    return rank


def _parse_cache(table: str, entry: dict[str, Any]) -> CacheParams | None:
    """Return the size of a table's cache; None if the plan leaves it to torchrec."""
    share = entry.get("uvm_cache_load_factor")
    if share is None:
        return None
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share < 1:
        raise ConfigError(
            f"its uvm_cache_load_factor of {table} is {share!r}; it must be a number between 0 and 1"
        )
    return CacheParams(load_factor=float(share))


def _parse_shard(table: str, piece: dict[str, Any], machines: Machines) -> ShardMetadata:
    rank = _rank(table, piece["rank"], machines)
    device = "cpu" if machines.device == "cpu" else f"cuda:{rank % machines.local_world_size}"
    return ShardMetadata(
        shard_offsets=[piece["rows"][0], piece["columns"][0]],
        shard_sizes=[piece["rows"][1], piece["columns"][1]],
        placement=torch.distributed._remote_device(f"rank:{rank}/{device}"),  # noqa: SLF001 - torch has no public name for it
    )
