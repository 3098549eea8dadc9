"""Sources of models for a server: which one a folder is, and that of exports."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING

from trainer.base.errors import CheckpointError, ConfigError
from trainer.serving.document import FILE_NAME
from trainer.serving.exported import is_export, read_export
from trainer.serving.publication.source import PublicationSource, is_publication

if TYPE_CHECKING:
    from pathlib import Path

    from trainer.serving.live import ModelSource
    from trainer.serving.scorer import TrainedModel

_DIGITS = re.compile(r"\d+")
_SHOWN = 12  # digits of a digest


def open_source(path: Path) -> ModelSource:
    """Return the source that a folder is: a publication, an export, or a folder of exports.

    Raises:
        ConfigError: it has no model.
    """
    if not path.is_dir():
        raise ConfigError(
            f"{path}: is no folder of a model; `python -m trainer.export --checkpoint DIR --out FOLDER` "
            "writes one"
        )
    return PublicationSource(str(path)) if is_publication(path) else ExportSource(path)


class ExportSource:
    """An export, or a folder of exports of which the last by name is the newest.

    Numbers in names count as numbers, so day-10 is newer than day-9. A version's name has digits of the
    digest of its config.json, which is written last, so an export that is replaced in its place is another
    version.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def newest(self) -> str:
        """See ModelSource."""
        name, _ = self._newest()
        return name

    def load(self, version: str, held: TrainedModel | None, /) -> TrainedModel:
        """See ModelSource."""
        del held  # an export has everything
        name, folder = self._newest()
        if name != version:
            raise CheckpointError(f"{folder}: is {name}, not {version}: it was replaced; it is tried again")
        trained = read_export(folder)
        if self._newest()[0] != version:
            raise CheckpointError(f"{folder}: was replaced while it was read; it is tried again")
        return trained

    def _newest(self) -> tuple[str, Path]:
        folder = self._folder
        if not is_export(folder):
            try:
                exports = [each for each in folder.iterdir() if is_export(each)]
            except OSError as error:
                raise CheckpointError(f"{folder}: cannot be listed: {error.strerror}") from error
            if not exports:
                raise CheckpointError(
                    f"{folder}: has no {FILE_NAME}, and no folder in it has one; `python -m trainer.export "
                    "--checkpoint DIR --out FOLDER` writes an export"
                )
            folder = max(exports, key=lambda each: _natural(each.name))
        try:
            digest = hashlib.sha256((folder / FILE_NAME).read_bytes()).hexdigest()[:_SHOWN]
        except OSError as error:
            raise CheckpointError(f"{folder / FILE_NAME}: cannot be read: {error.strerror}") from error
        return (digest if folder == self._folder else f"{folder.name}@{digest}"), folder


def _natural(name: str) -> tuple[list[str], list[int], str]:
    """Return a key by which names sort with their numbers as numbers."""
    return _DIGITS.split(name), [int(each) for each in _DIGITS.findall(name)], name
