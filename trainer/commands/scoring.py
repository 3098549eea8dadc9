"""The part of trainer.commands.predict and trainer.commands.export that needs torch."""

from __future__ import annotations

import logging
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from trainer.base.distributed import choose_device
from trainer.base.errors import ConfigError, DatasetError, NonFiniteLossError
from trainer.base.location import is_local, local_path
from trainer.checkpoint.load.reading import open_committed
from trainer.commands.raw import encoded
from trainer.data.checks import BatchChecks
from trainer.data.encoding import REMEDY
from trainer.data.formats import manifest
from trainer.data.formats.open import open_source
from trainer.retrieval.items import find_items
from trainer.retrieval.recall import RecallMeter, joined, named
from trainer.serving.exported import is_export, read_export
from trainer.serving.scorer import Scorer, TrainedModel, check_quantization, read_checkpoint
from trainer.tables.tables import BITS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    import numpy.typing as npt

    from trainer.base.config import TrainerConfig
    from trainer.data.batch import Batch
    from trainer.data.source import SampleSource
    from trainer.models.protocol import RetrievalModel
    from trainer.report.metrics import Metrics
    from trainer.retrieval.items import Items
    from trainer.tables.tables import Quantization

_LOG = logging.getLogger(__name__)
EVALUATION_BATCHES = 4  # as in a run's evaluation


def open_model(uri: str, step: int | None, quantization: Quantization) -> TrainedModel:
    """Read a checkpoint or an export, and quantise its tables unless `quantization` is "none"."""
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
    check_quantization(trained.shape, quantization)
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
    vectors: str | None = None,
) -> dict[str, Any]:
    """Score every row of a split of a path or a loader; write the probabilities, return the metrics."""
    config = _data_config(trained, dataset_path, dataset)
    opened = _open(trained, config, batch_size=batch_size, device_choice=device_choice)
    model = opened.scorer.retrieval
    if vectors is not None and out is not None:
        if model is None:
            raise ConfigError(
                f"vectors is {vectors}, but the model {trained.shape.model} has none of users and items; "
                "leave it out"
            )
        items = find_items(opened.source) if vectors == "item" else None
        result = _write_vectors(opened, model, opened.stream(split), items, out)
        return {"split": split, "step": trained.step, **result}
    found = _score(opened, [split])
    metrics = found.metrics
    if model is not None:
        metrics |= _recalls(opened, model, split, trained.config.recall_at)
    _write(out, torch.sigmoid(found.logits).numpy())
    return {"split": split, "step": trained.step, "quantization": trained.quantization, **metrics}


def score_raw(
    trained: TrainedModel,
    *,
    files: Sequence[str],
    max_bad_rows: int,
    batch_size: int | None,
    device_choice: str,
    out: Path | None,
) -> dict[str, Any]:
    """Score the rows of raw files; write the probabilities, NaN for bad rows, and return the metrics."""
    with encoded(trained, files, max_bad_rows=max_bad_rows) as made:
        config = _data_config(trained, str(made.dataset), None)
        opened = _open(trained, config, batch_size=batch_size, device_choice=device_choice)
        found = _score(opened, ["train", "test"])
    scores = torch.sigmoid(found.logits).numpy()
    if made.bad_rows:
        every = np.full(len(scores) + len(made.bad_rows), np.nan, scores.dtype)
        good = np.ones(len(every), np.bool_)
        good[list(made.bad_rows)] = False
        every[good] = scores
        scores = every
    _write(out, scores)
    bad = len(made.bad_rows)
    return {"step": trained.step, "quantization": trained.quantization, "bad_rows": bad, **found.metrics}


def item_vectors(
    trained: TrainedModel, where: str, *, device_choice: str = "auto"
) -> tuple[str, npt.NDArray[np.int64], torch.Tensor]:
    """Return the feature that identifies an item, and the ids and vectors of all items in some data.

    Args:
        trained: a retrieval model.
        where: a prepared dataset, or raw files as `predict --raw` takes them.
        device_choice: `--device`.

    Raises:
        ConfigError: the model is not for retrieval.
        DatasetError: the data does not fit the model.
    """
    if Scorer(trained, torch.device("cpu")).retrieval is None:
        raise ConfigError(
            f"items is {where}, but the model {trained.shape.model} has no vectors of items; leave it out"
        )
    if is_dataset(where):
        return _items_in(trained, where, device_choice)
    with encoded(trained, [where], max_bad_rows=0) as made:
        return _items_in(trained, str(made.dataset), device_choice)


def is_dataset(where: str) -> bool:
    """Whether a place holds a prepared dataset, or is not on this machine."""
    return not is_local(where) or (local_path(where) / manifest.FILE_NAME).is_file()  # boundary: its own name


def _items_in(
    trained: TrainedModel, dataset_path: str, device_choice: str
) -> tuple[str, npt.NDArray[np.int64], torch.Tensor]:
    config = _data_config(trained, dataset_path, None)
    opened = _open(trained, config, batch_size=None, device_choice=device_choice)
    model = opened.scorer.retrieval
    assert model is not None  # noqa: S101 - for the type checker: the caller has looked
    items = find_items(opened.source)
    return trained.shape.features[items.feature], items.ids, _item_vectors(opened, model, items)


class _Scored(NamedTuple):
    logits: torch.Tensor
    metrics: Metrics


class _OpenedData(NamedTuple):
    """A model and the data that it scores."""

    source: SampleSource
    checks: BatchChecks
    scorer: Scorer
    batch_size: int

    def stream(self, *splits: str) -> Iterator[Batch]:
        """Yield the checked batches of splits, one after the other."""
        batches = (
            self.source.batches(each, batch_size=self.batch_size, rank=0, world_size=1) for each in splits
        )
        return self.checks.stream(chain.from_iterable(batches))


def _open(
    trained: TrainedModel, config: TrainerConfig, *, batch_size: int | None, device_choice: str
) -> _OpenedData:
    device = choose_device(device_choice, local_rank=0)
    if trained.quantization in BITS:
        if device_choice == "cuda":
            raise ConfigError(f"device is cuda, but {trained.quantization} tables are scored on the CPU only")
        device = torch.device("cpu")
    source = open_source(config)
    _check_features(trained, source)
    _check_tasks(trained, source)
    _check_encoding(trained, source)
    _check_sizes(trained, source)
    size = batch_size or trained.config.eval_batch_size or EVALUATION_BATCHES * trained.config.batch_size
    checks = BatchChecks(source, trained.shape.rows_of_features, hash_overflow=config.hash_overflow)
    return _OpenedData(source, checks, Scorer(trained, device), size)


def _score(opened: _OpenedData, splits: Sequence[str]) -> _Scored:
    """Score splits, one after the other."""
    stream = opened.stream(*splits)
    if opened.source.has_labels:
        return _Scored(*opened.scorer.evaluate(stream))
    logits = torch.cat([torch.empty(0), *(each for each, _ in opened.scorer.score(stream))])
    if not logits.isfinite().all():
        raise NonFiniteLossError(
            "a score is not finite: the model has diverged; take an earlier checkpoint, with --step"
        )
    return _Scored(logits, {"samples": len(logits)})


def _write(out: Path | None, scores: npt.NDArray[np.float32]) -> None:
    if out is not None:
        with out.open("wb") as file:  # np.save would add a suffix to the name
            np.save(file, scores)


def _write_vectors(
    opened: _OpenedData, model: RetrievalModel, stream: Iterable[Batch], items: Items | None, out: Path
) -> dict[str, Any]:
    """Write the vectors of all items and their ids, or without items those of the rows' users."""
    if items is not None:
        found = _item_vectors(opened, model, items)
        with out.with_name(f"{out.name.removesuffix('.npy')}.ids.npy").open("wb") as file:
            np.save(file, items.ids)
    else:
        found = joined([users for _, users, _ in opened.scorer.towers(model, stream)])
    with out.open("wb") as file:
        np.save(file, found.numpy())
    return {"vectors": "user" if items is None else "item", "rows": len(found), "width": found.shape[1]}


def _item_vectors(opened: _OpenedData, model: RetrievalModel, items: Items) -> torch.Tensor:
    stream = items.batches(batch_size=opened.batch_size, rank=0, world_size=1)
    return joined([vectors for _, _, vectors in opened.scorer.towers(model, stream)])


def _recalls(
    opened: _OpenedData, model: RetrievalModel, split: str, limits: Sequence[int]
) -> dict[str, float | None]:
    items = find_items(opened.source)
    meter = RecallMeter(items, limits)
    for batch, users, _ in opened.scorer.towers(model, opened.stream(split)):
        meter.update(users, items.ids_of(batch), batch.labels)
    return named(limits, meter.hits(_item_vectors(opened, model, items)))


def _data_config(trained: TrainedModel, dataset_path: str | None, dataset: str | None) -> TrainerConfig:
    """Return the configuration to read other data in the way that the run read its data."""
    format_of_path = "auto" if dataset_path != trained.config.dataset_path else trained.config.dataset_format
    return trained.config.model_copy(
        update={
            "dataset_path": dataset_path,
            "dataset_format": format_of_path,
            "dataset": dataset,
            "num_embeddings": None,
            "num_embeddings_per_feature": tuple(trained.shape.rows_of_features.values()),
        }
    )


def _check_features(trained: TrainedModel, dataset: SampleSource) -> None:
    shape = trained.shape
    if shape.features != tuple(dataset.sparse_features):
        raise DatasetError(
            f"the model was trained on {', '.join(shape.features)}, the dataset has "
            f"{', '.join(dataset.sparse_features)}; prepare the data as for the training"
        )
    if shape.num_dense != len(dataset.dense_features):
        raise DatasetError(
            f"the model takes {shape.num_dense} dense features, the dataset has {len(dataset.dense_features)}"
        )


def _check_tasks(trained: TrainedModel, dataset: SampleSource) -> None:
    found = () if dataset.schema is None else dataset.schema.tasks
    if trained.shape.tasks != found:
        learned, there = (", ".join(each) or "one label" for each in (trained.shape.tasks, found))
        raise DatasetError(
            f"the model learned {learned}, the dataset has {there}; prepare the data with the labels of the "
            "training"
        )


def _check_encoding(trained: TrainedModel, dataset: SampleSource) -> None:
    """Refuse data with another encoding than the training data: equal ids would mean other values."""
    learned = None if trained.vocabulary is None else trained.vocabulary.encoding
    if learned is None or dataset.encoding is None:
        _LOG.warning(
            "how %s was encoded is unknown, so whether ids mean what they meant in the training cannot be "
            "checked; scores are right only if they do",
            "the data that the model learned from" if learned is None else "the dataset",
        )
    elif learned.digest != dataset.encoding.digest:
        raise DatasetError(
            "the dataset is encoded otherwise than the data that the model learned from: the digest of its "
            f"encoding is {dataset.encoding}, the model's is {learned}, so equal ids mean different values; "
            f"{REMEDY}"
        )


def _check_sizes(trained: TrainedModel, dataset: SampleSource) -> None:
    for name, rows in trained.shape.rows_of_features.items():
        if dataset.num_embeddings[name] > rows and not trained.config.hash_overflow:
            raise DatasetError(
                f"the model's table of {name} has {rows} rows, but the dataset's ids need "
                f"{dataset.num_embeddings[name]}; {REMEDY}"
            )
