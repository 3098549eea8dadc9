"""What trainer.predict and trainer.export do once torch is imported."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from trainer.checkpoint.reading import open_committed
from trainer.data.checks import BatchChecks
from trainer.data.formats import open_source
from trainer.distributed import choose_device
from trainer.errors import ConfigError, DataError
from trainer.exported import is_export, read_export
from trainer.location import is_local, local_path
from trainer.scorer import Scorer, TrainedModel, read_checkpoint

if TYPE_CHECKING:
    from pathlib import Path

    from trainer.config import TrainerConfig
    from trainer.data.source import Source
    from trainer.tables import Quantization

EVALUATION_BATCHES = 4  # as in a run's evaluation


def open_model(uri: str, step: int | None, quantization: Quantization) -> TrainedModel:
    """Read a checkpoint or an export, and quantise its tables if that is asked for."""
    try:
        folder = local_path(uri) if is_local(uri) else None
    except ValueError as error:
        raise ConfigError(f"checkpoint {error}") from error
    if folder is not None and is_export(folder):
        trained = read_export(folder)
        if step not in (None, trained.step):
            raise ConfigError(f"step is {step}, but {folder} is an export of step {trained.step}")
    else:
        trained = read_checkpoint(open_committed(uri, step))
    if quantization == "int4" and trained.shape.embedding_dim % 2:
        raise ConfigError(f"embedding_dim is {trained.shape.embedding_dim}; int4 needs an even one")
    return trained.quantized(quantization)


def score_split(
    trained: TrainedModel,
    *,
    dataset_path: str | None,
    dataset: str | None = None,
    split: str,
    batch_size: int | None,
    device_choice: str,
    out: Path | None,
) -> dict[str, Any]:
    """Score every row of a split of a path or a loader; writes the probabilities, gives back the metrics."""
    device = choose_device(device_choice, local_rank=0)
    if trained.quantization != "none":
        if device_choice == "cuda":
            raise ConfigError(f"device is cuda, but {trained.quantization} tables are scored on the CPU only")
        device = torch.device("cpu")
    config = _data_config(trained, dataset_path, dataset)
    source = open_source(config)
    _check_fits(trained, source)
    stream = source.batches(
        split,
        batch_size=batch_size
        or trained.config.eval_batch_size
        or EVALUATION_BATCHES * trained.config.batch_size,
        rank=0,
        world_size=1,
    )
    checks = BatchChecks(source, trained.shape.num_embeddings, hash_overflow=config.hash_overflow)
    logits, metrics = Scorer(trained, device).evaluate(checks.stream(stream))
    if out is not None:
        with out.open("wb") as file:  # np.save would add a suffix to the name
            np.save(file, torch.sigmoid(logits).numpy())
    return {"split": split, "step": trained.step, "quantization": trained.quantization, **metrics}


def _data_config(trained: TrainedModel, dataset_path: str | None, dataset: str | None) -> TrainerConfig:
    """Read other data as the run read its own, into the model's tables."""
    format_of_path = "auto" if dataset_path != trained.config.dataset_path else trained.config.dataset_format
    return trained.config.model_copy(
        update={
            "dataset_path": dataset_path,
            "dataset_format": format_of_path,
            "dataset": dataset,
            "num_embeddings": None,
            "num_embeddings_per_feature": tuple(trained.shape.num_embeddings.values()),
        }
    )


def _check_fits(trained: TrainedModel, dataset: Source) -> None:
    shape = trained.shape
    if tuple(shape.num_embeddings) != tuple(dataset.sparse_features):
        raise DataError(
            f"the model was trained on {', '.join(shape.num_embeddings)}, the dataset has "
            f"{', '.join(dataset.sparse_features)}; prepare the data as for the training"
        )
    if shape.num_dense != len(dataset.dense_features):
        raise DataError(
            f"the model takes {shape.num_dense} dense features, the dataset has {len(dataset.dense_features)}"
        )
    for name, rows in shape.num_embeddings.items():
        if dataset.num_embeddings[name] > rows and not trained.config.hash_overflow:
            raise DataError(
                f"the model's table of {name} has {rows} rows, but the dataset's ids need "
                f"{dataset.num_embeddings[name]}; prepare the data with the training's vocabulary"
            )
