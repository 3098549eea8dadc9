"""The setup of a run before its first step: numerics, data, and sizes that fit each other."""

from __future__ import annotations

import logging
import math
import os
from typing import TYPE_CHECKING

import torch

from trainer.base.config import DLRM_MODELS, MODELS, MULTI_TASK_MODELS
from trainer.base.errors import ConfigError, DatasetError
from trainer.data.formats.open import open_source
from trainer.models.model import ModelShape
from trainer.models.registry import find_factory, table_width, takes_sequences

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cloudrec_contract.features import FeatureSchema
    from trainer.base.config import TrainerConfig
    from trainer.base.distributed import World
    from trainer.data.source import SampleSource

_LOG = logging.getLogger(__name__)


def set_numerics(config: TrainerConfig, world: World) -> None:
    """Configure torch's threads, determinism and the arithmetic of float32 products."""
    cores = len(os.sched_getaffinity(0))
    torch.set_num_threads(config.threads or max(1, cores // world.local_size))
    if world.device.type == "cuda":
        torch.set_float32_matmul_precision("high" if config.precision == "tf32" else "highest")
    else:
        torch.set_float32_matmul_precision(exact_on_cpus())
    torch.use_deterministic_algorithms(config.deterministic)
    torch.utils.deterministic.fill_uninitialized_memory = False
    if world.device.type == "cpu" and lacks_arithmetic(config.precision, torch.cpu.get_capabilities()):
        _LOG.warning(
            "precision is %s, for which this CPU has no instructions: it is slower than fp32 here, bf16 0.4 "
            "times as fast where it was measured; take fp32, or a CPU with AMX or AVX512-BF16",
            config.precision,
        )


def lacks_arithmetic(precision: str, capabilities: Mapping[str, object]) -> bool:
    """Whether a CPU must emulate a precision; `capabilities` are named as torch.cpu.get_capabilities does."""
    if precision not in ("bf16", "fp16"):
        return False
    return not any(precision in name and has is True for name, has in capabilities.items())


def exact_on_cpus() -> str:
    """Return torch's name for the fastest float32 products of this CPU that are as exact as float32.

    "medium" means oneDNN, twice as fast as MKL on some CPUs. It takes the permission to round to bfloat16
    where it has AMX; elsewhere it computes in fp32.
    """
    return "highest" if torch.cpu._is_amx_tile_supported() else "medium"  # noqa: SLF001 - no public way to ask


def open_dataset(config: TrainerConfig, world: World) -> SampleSource:
    """Open and check the data, each rank a part; DatasetError on all ranks if one finds damage."""
    error: DatasetError | None = None
    try:
        dataset = open_source(config)
        if config.verify_data:
            dataset.verify(part=world.rank, parts=world.size)
    except DatasetError as found:
        error = found
    bad_ranks = world.sum([float(error is not None)])[0]
    if error is not None:
        raise error
    if bad_ranks:
        raise DatasetError("another rank found bad data; that rank's message names it")
    if not dataset.has_labels:
        raise DatasetError(
            f"dataset {config.dataset_path}: was prepared from rows without labels, so it can be scored "
            "only; train on rows that have some"
        )
    return dataset


def count_steps(config: TrainerConfig, dataset: SampleSource, world: World) -> int:
    """Return the steps of the whole run; ConfigError if a step has more samples than the training split."""
    rows, batch = dataset.train.rows, config.batch_size * world.size
    if batch > rows:
        raise ConfigError(
            f"batch_size {config.batch_size} on {world.size} ranks makes steps of {batch} samples, but the "
            f"training split has {rows}; set batch_size to at most {max(1, rows // world.size)}"
        )
    steps = config.num_epochs * math.ceil(rows / batch)
    return min(steps, config.num_iterations or steps)


def model_shape(config: TrainerConfig, dataset: SampleSource) -> ModelShape:
    """Return the model's sizes for this data; ConfigError if a table is too small for the data's ids."""
    features = dataset.sparse_features
    sizes: tuple[int, ...]
    if config.num_embeddings is not None:
        sizes = (config.num_embeddings,) * len(features)
    elif config.num_embeddings_per_feature is not None:
        sizes = config.num_embeddings_per_feature
    else:
        sizes = tuple(dataset.num_embeddings[name] for name in features)
    if len(sizes) != len(features):
        raise ConfigError(
            f"num_embeddings_per_feature has {len(sizes)} sizes, but the dataset has {len(features)} "
            f"categorical features ({features[0]} to {features[-1]}); give one size for each"
        )
    for name, size in zip(features, sizes, strict=True):
        needed = dataset.num_embeddings[name]
        if size < needed and not config.hash_overflow:
            raise ConfigError(
                f"the table of {name} has {size} rows, but the dataset's ids need {needed}; leave "
                "num_embeddings and num_embeddings_per_feature out, which takes what the dataset needs, "
                "set hash_overflow to take ids modulo the rows, or prepare it with fewer ids"
            )
    rows = dict(zip(features, sizes, strict=True))
    return make_shape(config, dataset.dense_features, rows, dataset.hotness, dataset.schema)


def make_shape(
    config: TrainerConfig,
    dense: Sequence[str],
    rows: Mapping[str, int],
    hotness: tuple[int, ...] = (),
    schema: FeatureSchema | None = None,
) -> ModelShape:
    """Return the model's sizes.

    Args:
        config: the configuration.
        dense: the dense features.
        rows: what the table of each sparse feature needs.
        hotness: ids per sample of each feature, if known.
        schema: tables, dimensions and pooling; None: each feature has its own table.

    Raises:
        ConfigError: the model cannot have these features.
    """
    factory = find_factory(config.model, config.model_source)
    tables, dims = {name: name for name in rows}, dict.fromkeys(rows, config.embedding_dim)
    sparse = () if schema is None else schema.sparse
    sequences = {
        each.name: each.max_length or 1
        for each in sparse
        if each.kind == "sequence" and takes_sequences(factory) and each.pooling != "position"
    }
    positions = {each.name: each.max_length or 1 for each in sparse if each.pooling == "position"}
    for each in sparse:
        tables[each.name] = _module_name(each.table)
        dims[each.name] = each.dim or config.embedding_dim
    _check_inputs(config, dense, dims)
    labels = () if schema is None or not schema.tasks else schema.labels
    _check_tasks(config, [each.name for each in labels])
    sizes: dict[str, int] = {}
    widths: dict[str, int] = {}
    for name, table in tables.items():
        sizes[table] = max(sizes.get(table, 0), rows[name])
        widths[table] = table_width(factory, dims[name], config.model)
    return ModelShape(
        num_dense=len(dense),
        num_embeddings=sizes,
        embedding_dim=config.embedding_dim,
        dense_arch_layer_sizes=config.dense_arch_layer_sizes,
        over_arch_layer_sizes=config.over_arch_layer_sizes,
        interaction="dcn" if config.model == "dcn_v2" else config.interaction,
        dcn_num_layers=config.dcn_num_layers,
        dcn_low_rank_dim=config.dcn_low_rank_dim,
        hotness=hotness,
        feature_tables={} if all(name == table for name, table in tables.items()) else tables,
        dims={table: width for table, width in widths.items() if width != config.embedding_dim},
        mean_pooled=tuple(
            each.name
            for each in sparse
            if each.pooling == "mean"
            or (each.kind == "sequence" and each.name not in {**sequences, **positions})
        ),
        weighted=() if schema is None else tuple(each.name for each in schema.weighted),
        sequences=sequences,
        positions=positions,
        item=() if schema is None else schema.item,
        managed=() if schema is None else tuple(dict.fromkeys(tables[name] for name in schema.managed)),
        dense_names=tuple(dense),
        model=config.model,
        tasks=tuple(each.name for each in labels),
        task_weights=tuple(each.weight for each in labels),
    )


def _check_tasks(config: TrainerConfig, tasks: Sequence[str]) -> None:
    if tasks and config.model in MODELS and config.model not in MULTI_TASK_MODELS:
        raise ConfigError(
            f"model {config.model} gives one score a sample, but the data has {len(tasks)} labels "
            f"({', '.join(tasks)}); take --model {' or '.join(MULTI_TASK_MODELS)}, or prepare the data with "
            "one label"
        )


def _module_name(table: str) -> str:
    """Return a table's name in torch's module: `items`, `type` and others are taken there."""
    return f"{table}_" if hasattr(torch.nn.ModuleDict, table) or table == "training" else table


def _check_inputs(config: TrainerConfig, dense: Sequence[str], dims: Mapping[str, int]) -> None:
    if config.model not in DLRM_MODELS:
        return
    if not dense:
        raise ConfigError(
            f"the data has no dense features, and model {config.model} has an MLP of them; take --model "
            "deepfm or wide_deep, or prepare the data with one"
        )
    for name, dim in dims.items():
        if dim != config.embedding_dim:
            raise ConfigError(
                f"model {config.model} needs vectors of one width, but {name} has dim {dim} in the feature "
                f"schema and embedding_dim is {config.embedding_dim}; set them equal, or take "
                "--model wide_deep"
            )
