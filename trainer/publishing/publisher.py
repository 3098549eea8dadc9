"""Publishing one checkpoint: a full version, a delta, or both, and the manifest last.

A publisher that dies leaves files that no manifest names; a later one removes them. Of two at once, the first
to create its manifest wins, since versions have consecutive numbers and a manifest is created conditionally.
"""

from __future__ import annotations

import logging
import time
import uuid
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from trainer.base.errors import ConfigError
from trainer.checkpoint.store.base import NameTakenError, Store
from trainer.publishing.changes import CheckpointChanges
from trainer.publishing.identity import describe, is_of
from trainer.publishing.model import CommittedModel
from trainer.publishing.retention import remove_old, tidied
from trainer.publishing.writing import ExportWriter, changes_file, npy, write_vocabulary
from trainer.serving import exported
from trainer.serving.publication.format import (
    ForeignManifestError,
    ParentVersion,
    PublicationError,
    PublicationManifest,
    PublishedArray,
    data_folder,
    encode_manifest,
    manifest_name,
    version_name,
)
from trainer.serving.publication.reader import PublicationReader

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from trainer.checkpoint.format.commit import Commit
    from trainer.serving.publication.format import StoredPiece

_LOG = logging.getLogger(__name__)
MOST_SHARE = 0.5  # of a full version's bytes: deltas since the last full version are at most this
MOST_DELTAS = 100  # since the last full version


@dataclass(frozen=True, kw_only=True)
class PublishingOptions:
    """How checkpoints are published.

    Args:
        precision: of the tables; None: that of the version before, at first fp32.
        keep: the newest versions that can be loaded; None: all.
        full: whether a full version is written in any case.
    """

    precision: str | None = None
    keep: int | None = None
    full: bool = False


@dataclass(frozen=True, kw_only=True)
class PublishReport:
    """What was published.

    Args:
        version: its name.
        step: of the checkpoint.
        precision: of the tables.
        full: whether it is full.
        delta: whether it is a delta.
        found_by: how the changed rows were found; empty without a delta.
        rows: that the delta has.
        rows_compared: with those of the version before.
        delta_bytes: of the delta's rows.
        bytes: written in all.
        checkpoint_bytes: of the checkpoint's layers that were read for the delta's rows.
        seconds: that it took.
        is_new: False if this checkpoint was published before.
    """

    version: str
    step: int
    precision: str
    full: bool = False
    delta: bool = False
    found_by: str = ""
    rows: int = 0
    rows_compared: int = 0
    delta_bytes: int = 0
    bytes: int = 0
    checkpoint_bytes: int = 0
    seconds: float = 0.0
    is_new: bool = True

    def to_json(self) -> dict[str, Any]:
        """Return JSON values."""
        return asdict(self)


class Publisher:
    """Publishes checkpoints of a store in one place.

    Args:
        out: the place: a folder, or a URI in a bucket.
        options: how.
    """

    def __init__(self, out: str, options: PublishingOptions) -> None:
        self._reader = PublicationReader(out)
        self._store = Store(self._reader.pieces.objects)
        self._options = options

    def newest(self) -> PublicationManifest | None:
        """Return the newest version; None if there is none.

        Raises:
            PublicationError: it cannot be read; if a full version is wanted, only if it is not ours.
        """
        for number in reversed(self._reader.versions.numbers()):
            try:
                return self._reader.versions.manifest(number)
            except ForeignManifestError:
                raise
            except PublicationError as error:
                if not self._options.full:
                    raise
                _LOG.warning("a full version takes the place of a damaged one: %s", error)
        return None

    def publish(self, checkpoints: Store, commit: Commit) -> PublishReport:
        """Publish a committed checkpoint, unless it is the newest version already.

        Raises:
            ConfigError: the model cannot have this precision, or the publication has another.
            PublicationError: another publisher wrote the version at the same time, or what is there is
            damaged. CheckpointError: the checkpoint is damaged, or is removed by now.
        """
        started = time.monotonic()
        before = self.newest()
        precision = self._precision(before)
        if before is not None and is_of(before.source, commit) and not self._options.full:
            return PublishReport(
                version=before.name, step=before.step, precision=before.precision, is_new=False
            )
        model = CommittedModel(checkpoints, commit, precision)
        with tidied(self._reader.pieces.objects):
            writing = _Writing(self._store, self._reader, model, before, precision)
            try:
                report = writing.write(full=self._options.full)
            except BaseException:
                writing.discard()
                raise
            remove_old(self._store, self._reader, keep=self._options.keep)
        return replace(report, seconds=round(time.monotonic() - started, 3))

    def _precision(self, before: PublicationManifest | None) -> str:
        asked = self._options.precision
        if before is None:
            return asked or "fp32"
        if asked not in (None, before.precision) and not self._options.full:
            raise ConfigError(
                f"precision is {asked}, but {self._reader.uri} has {before.precision} since version "
                f"{before.name}; leave it out, or change it with --full"
            )
        return asked or before.precision


class _Writing:
    """One version while it is written."""

    def __init__(
        self,
        store: Store,
        reader: PublicationReader,
        model: CommittedModel,
        before: PublicationManifest | None,
        precision: str,
    ) -> None:
        self._store, self._reader, self._model = store, reader, model
        self._before = before
        self._number = max(reader.versions.numbers(), default=0) + 1
        self._token = uuid.uuid4().hex
        self._folder = data_folder(self._number, self._token)
        self._precision = precision
        self._arrays = {name: PublishedArray(*model.kind_of(name)) for name in model.sizes}
        self._found: dict[str, Any] = {}

    def write(self, *, full: bool) -> PublishReport:
        """Write all objects, and the manifest last."""
        files: dict[str, StoredPiece] = {}
        changes = self._changes()
        arrays = None if changes is None else self._write_delta(changes, files, full=full)
        full = full or arrays is None or not files
        if arrays is not None:
            self._arrays = arrays
        if full:
            self._write_full(files)
        elif not self._keeps_vocabulary(files):
            files |= write_vocabulary(self._store, self._folder, self._model)
        manifest = self._manifest(files, full=full, delta=arrays is not None)
        written = self._store.sizes(f"{self._folder}/")
        self._store.remove(written.keys() - manifest.objects)  # as a changes.bin without rows
        self._commit(manifest)
        delta = manifest.delta
        changed = [each.change for each in manifest.arrays.values() if each.change is not None]
        return PublishReport(
            version=manifest.name,
            step=manifest.step,
            precision=manifest.precision,
            full=manifest.full,
            delta=delta,
            found_by=manifest.found_by,
            rows=sum(each.count for each in changed),
            rows_compared=0 if changes is None else changes.compared,
            delta_bytes=manifest.delta_bytes,
            bytes=sum(written.values()),
            checkpoint_bytes=0 if changes is None else changes.layer_bytes,
        )

    def discard(self) -> None:
        """Remove what was written, unless the version was published."""
        try:
            manifest = self._reader.versions.manifest(self._number)
        except PublicationError:
            return  # not there, or not known: a later publisher removes what no version names
        if manifest.token != self._token:
            self._store.remove(self._store.sizes(f"{self._folder}/"))

    def _changes(self) -> CheckpointChanges | None:
        """Return what finds the changed rows; None if there is no version to compare with."""
        before = self._before
        if before is None or before.precision != self._precision or before.version + 1 != self._number:
            return None
        try:
            return CheckpointChanges(self._model, self._reader, before)
        except PublicationError as error:
            _LOG.warning("a full version is written, since the version before is damaged: %s", error)
            return None

    def _write_delta(
        self, changes: CheckpointChanges, files: dict[str, StoredPiece], *, full: bool
    ) -> dict[str, PublishedArray] | None:
        """Write the delta, and the dense part if the version is not full; None if it is too large."""
        try:
            with changes_file(self._store, self._folder) as file:
                arrays = {
                    name: file.add_rows(array, changes.of(name, array))
                    for name, array in self._arrays.items()
                }
                self._found = {"found_by": changes.found_by}
                limit = MOST_SHARE * sum(each.shape[0] * each.row_bytes for each in arrays.values())
                size = sum(each.change.bytes for each in arrays.values() if each.change)
                _check_size(size, limit)
                if not (full or self._is_base_due(size, limit)):
                    files |= {path: file.add(data) for path, data in self._dense()}
        except _TooLargeError:
            self._found = {}
            return None
        except PublicationError as error:
            _LOG.warning("a full version is written, since the version before is damaged: %s", error)
            self._found = {}
            return None
        return arrays

    def _is_base_due(self, size: int, limit: float) -> bool:
        """Whether the deltas since the last full version become too many or too large with one more."""
        before = self._before
        assert before is not None  # noqa: S101 - a delta has a version before it
        route = self._reader.versions.route(before.version)
        deltas = [*route.deltas]
        return len(deltas) + 1 > MOST_DELTAS or sum(each.delta_bytes for each in deltas) + size > limit

    def _write_full(self, files: dict[str, StoredPiece]) -> None:
        writer = ExportWriter(self._store, self._folder, self._model)
        self._arrays = {name: writer.array(name, array) for name, array in self._arrays.items()}
        files |= {path: writer.file(path, data) for path, data in self._dense()}
        files |= write_vocabulary(self._store, f"{self._folder}/export", self._model)
        wholes = {f"{name}.npy": each.whole for name, each in self._arrays.items()}
        pieces = {path: wholes.get(path) or files[path] for path in self._listed(files)}
        writer.document(pieces.items())

    def _keeps_vocabulary(self, files: dict[str, StoredPiece]) -> bool:
        """Take over the vocabulary of the version before, if it is the same."""
        vocabulary, before = self._model.described.vocabulary, self._before
        if vocabulary is None or before is None:
            return vocabulary is None
        wanted = {file.path: file.sha256 for file in vocabulary.encoding.files}
        found = {path: before.files[path] for path in wanted if path in before.files}
        if {path: piece.sha256 for path, piece in found.items()} != wanted:
            return False
        files |= found
        return True

    def _dense(self) -> Iterator[tuple[str, bytes]]:
        for name, value in self._model.described.dense.items():
            yield f"dense/{name}.npy", npy(value.detach().cpu().contiguous().numpy())

    def _listed(self, files: Mapping[str, StoredPiece]) -> tuple[str, ...]:
        """Return the paths in config.json, in the order of trainer.serving.exported."""
        names = [f"{name}.npy" for name in self._arrays]
        tables = [name for name in names if name.startswith("tables/")]
        dense = [path for path in files if path.startswith("dense/")]
        return (*tables, *dense, *(name for name in names if name not in tables))

    def _manifest(self, files: Mapping[str, StoredPiece], *, full: bool, delta: bool) -> PublicationManifest:
        before = None
        if delta and self._before is not None:
            before = ParentVersion(self._before.version, self._reader.versions.sha256(self._before.version))
        return PublicationManifest(
            version=self._number,
            token=self._token,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            parent=before,
            full=full,
            delta=delta,
            precision=self._precision,
            step=self._model.commit.step,
            source=describe(self._model.store.uri, self._model.commit),
            found_by=self._found.get("found_by", ""),
            export=exported.describe(self._model.described),
            arrays=self._arrays,
            files=dict(files),
            listed=self._listed(files),
        )

    def _commit(self, manifest: PublicationManifest) -> None:
        try:
            self._store.create(manifest_name(self._number), encode_manifest(manifest))
        except NameTakenError as error:
            raise PublicationError(
                f"{self._reader.uri}: another publisher wrote version {version_name(self._number)} at "
                "the same time, and this one is discarded; let one publish here, or give another --out"
            ) from error


def _check_size(size: int, limit: float) -> None:
    if size > limit:
        raise _TooLargeError


class _TooLargeError(Exception):
    """The delta is so large that a full version takes its place."""
