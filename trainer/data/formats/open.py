"""Opening the configured data: the choice of the format and of the files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer.base.errors import ConfigError, DatasetError
from trainer.base.location import local_path
from trainer.data.formats import criteo_tsv, manifest, npy_days, parquet
from trainer.data.formats.loader import open_loader
from trainer.data.formats.prepared import PreparedSource
from trainer.data.source import SPARSE_NAMES, SampleSource

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from trainer.base.config import TrainerConfig

_SUFFIXES = {"criteo_tsv": criteo_tsv.SUFFIXES, "parquet": parquet.SUFFIXES}


def open_source(config: TrainerConfig) -> SampleSource:
    """Open the data that a configuration names.

    Raises:
        ConfigError: nothing is named, or the format needs something that is not configured.
        DatasetError: the data is missing, damaged or of another format.
    """
    if config.dataset is not None:
        return open_loader(config.dataset, config)
    if config.dataset_path is None:
        raise ConfigError("dataset_path is not set; give --dataset_path DIR, made by `cloudrec data prepare`")
    kind: str = config.dataset_format
    if kind == "prepared":
        return PreparedSource(config.dataset_path)
    try:
        path = local_path(config.dataset_path)
    except ValueError as error:
        raise DatasetError(f"dataset {error}") from error
    if kind == "auto":
        kind = _guess(path)
    if kind == "prepared":
        return PreparedSource(config.dataset_path)
    if not path.exists():
        raise DatasetError(f"dataset {path}: no such file or folder")
    if kind == "npy_days":
        if not path.is_dir():
            raise DatasetError(
                f"dataset {path}: a file, but npy_days is a folder of day_N_dense.npy and so on"
            )
        return npy_days.open_days(path, _sizes(config))
    files = _files_by_split(path, _SUFFIXES[kind])
    opener = criteo_tsv.open_tsv if kind == "criteo_tsv" else parquet.open_parquet
    return opener(files, _sizes(config), test_fraction=config.test_fraction)


def _guess(path: Path) -> str:
    """Return the format that the names of the files suggest; "prepared" if no other format fits."""
    if path.is_dir() and not (path / manifest.FILE_NAME).exists():
        if npy_days.has_days(path):
            return "npy_days"
        folder = path / "train" if (path / "train").is_dir() else path
        for kind, suffixes in _SUFFIXES.items():
            if _list(folder, suffixes):
                return kind
    for kind, suffixes in _SUFFIXES.items():
        if path.is_file() and path.name.endswith(suffixes):
            return kind
    return "prepared"


def _files_by_split(path: Path, suffixes: tuple[str, ...]) -> dict[str, list[Path]]:
    """Return the files of each split: a file or a folder of files is one; train and test folders are two."""
    if path.is_file():
        return {"train": [path]}
    folders = {"train": path}
    if (path / "train").is_dir():
        folders = {split: path / split for split in ("train", "test") if (path / split).is_dir()}
    files = {split: _list(folder, suffixes) for split, folder in folders.items()}
    for split, found in files.items():
        if not found:
            raise DatasetError(f"dataset {folders[split]}: holds no file named *{' or *'.join(suffixes)}")
    return files


def _list(folder: Path, suffixes: tuple[str, ...]) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.name.endswith(suffixes))


def _sizes(config: TrainerConfig) -> Sequence[int] | None:
    if config.num_embeddings is not None:
        return (config.num_embeddings,) * len(SPARSE_NAMES)
    return config.num_embeddings_per_feature
