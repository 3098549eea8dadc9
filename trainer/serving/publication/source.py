"""A publication as a source of models for a server."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from trainer.checkpoint.store.base import Store
from trainer.checkpoint.vocabulary import Vocabulary
from trainer.data.encoding import of_model
from trainer.serving.publication.format import PRECISIONS, VERSIONS, PublicationError
from trainer.serving.publication.reader import PublicationReader, PublishedVersion
from trainer.serving.scorer import TrainedModel, parse_shape, scoring_config

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from torch import Tensor

    from trainer.data.encoding import KnownEncoding
    from trainer.serving.publication.format import PublicationManifest


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedModel(TrainedModel):
    """A model of a publication, which knows its version.

    Args:
        published: the version, whose arrays the tables are.
    """

    published: PublishedVersion


class PublicationSource:
    """The versions of a publication, newest last.

    Args:
        uri: its folder, or a URI in a bucket.
    """

    def __init__(self, uri: str) -> None:
        self._reader = PublicationReader(uri)
        self.uri = self._reader.uri

    def newest(self) -> str:
        """Return the name of the newest complete version; PublicationError if there is none."""
        return self._reader.newest()

    def load(self, version: str, held: TrainedModel | None, /) -> PublishedModel:
        """Return the model of a version.

        Args:
            version: its name.
            held: the model that is served now, which is not changed. If it is a version of this publication,
                only what changed since is read.

        Raises:
            PublicationError: a file is missing, damaged, of a newer format or foreign.
        """
        before = held.published if isinstance(held, PublishedModel) else None
        published = self._reader.load(version, before)
        manifest = published.manifest
        try:
            return self._model(published, manifest)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise PublicationError(
                f"{self.uri}: version {manifest.name} describes no model that this trainer knows: {error!r}; "
                "publish with --full, with this version of cloudrec"
            ) from error

    def _model(self, published: PublishedVersion, manifest: PublicationManifest) -> PublishedModel:
        export = manifest.export
        encoding = of_model(export, self.uri)
        if PRECISIONS[manifest.precision] != export["quantization"]:
            raise ValueError(f"precision {manifest.precision}, quantization {export['quantization']}")
        return PublishedModel(
            config=scoring_config(export["config"]),
            shape=parse_shape(export["model"]),
            step=int(export["step"]),
            quantization=export["quantization"],
            tables=_of_kind(published, "tables/"),
            dense={name: _tensor(data) for name, data in self._reader.dense(manifest).items()},
            managed=_of_kind(published, "managed/"),
            vocabulary=None if encoding is None else self._vocabulary(manifest, encoding),
            published=published,
        )

    def _vocabulary(self, manifest: PublicationManifest, encoding: KnownEncoding) -> Vocabulary:
        prefixes = set()
        for file in encoding.files:
            name = manifest.files[file.path].object
            prefix, _, last = name.rpartition("/")
            if last != file.name:
                raise ValueError(f"the vocabulary file {file.path} is {name}")
            prefixes.add(prefix)
        if len(prefixes) > 1:
            raise ValueError(f"the vocabulary is in several folders: {', '.join(sorted(prefixes))}")
        return Vocabulary(encoding, Store(self._reader.pieces.objects), next(iter(prefixes), ""))


def is_publication(folder: Path) -> bool:
    """Whether a folder holds published versions."""
    return (folder / VERSIONS).is_dir()


def _of_kind(published: PublishedVersion, kind: str) -> Mapping[str, Tensor]:
    return {
        name.removeprefix(kind): torch.from_numpy(array)
        for name, array in published.arrays.items()
        if name.startswith(kind)
    }


def _tensor(npy: bytes) -> Tensor:
    array: np.ndarray[Any, Any] = np.load(io.BytesIO(npy), allow_pickle=False)
    return torch.from_numpy(array)
