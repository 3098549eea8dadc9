"""Which rows changed since the published version: from the checkpoint's layers, or by comparing all rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from trainer.checkpoint.format.commit import DamagedError
from trainer.publishing.identity import layers_above, shared_layers
from trainer.publishing.layers import SomeLayers
from trainer.publishing.model import canonical
from trainer.serving.publication.building import StoredRows

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from trainer.publishing.model import CommittedModel
    from trainer.serving.publication.format import PublicationManifest, PublishedArray
    from trainer.serving.publication.reader import PublicationReader

    Array = npt.NDArray[Any]

FROM_LAYERS = "layers"  # the rows of the checkpoint's layers since
COMPARED_LAYERS = "layers, compared"  # the layers were merged: those of their rows that differ
COMPARED = "compared"  # all rows


class ChangedRows(NamedTuple):
    """Rows of an array that may be new; their numbers ascend, also from one to the next."""

    numbers: Array
    rows: Array


class CheckpointChanges:
    """The changes from a published version to a checkpoint.

    Attributes:
        compared: rows that were compared with published ones so far.
    """

    def __init__(self, model: CommittedModel, reader: PublicationReader, parent: PublicationManifest) -> None:
        self._model = model
        self._pieces = reader.pieces
        self._parent = parent
        self._route = reader.versions.route(parent.version)
        self._shared = shared_layers(parent.source, model.commit)
        self._layers = (
            None
            if self._shared is None
            else SomeLayers(model.store, model.commit, model.commit.layers[self._shared :])
        )
        self._dropped = self._find_dropped()
        self.compared = 0
        self._ways: set[str] = set()

    @property
    def found_by(self) -> str:
        """How the rows were found: of several ways, the longest."""
        return max(self._ways, key=[FROM_LAYERS, COMPARED_LAYERS, COMPARED].index, default=FROM_LAYERS)

    @property
    def layer_bytes(self) -> int:
        """The bytes of the checkpoint's layers that were read for rows."""
        return 0 if self._layers is None else self._layers.read_bytes

    def of(self, name: str, array: PublishedArray) -> Iterator[ChangedRows]:
        """Yield the changed rows of an array, which has this type and shape now."""
        published = self._parent.arrays.get(name)
        if published is None or not array.fits(published):
            self._ways.add(COMPARED)
            for start, rows in self._model.blocks(name):
                yield ChangedRows(np.arange(start, start + len(rows)), rows)
            return
        found = self._in_layers(name, published, array)
        if found is not None:
            if self._layers_were_merged:
                self._ways.add(COMPARED_LAYERS)
                yield self._differing(StoredRows(self._pieces, self._route, name), found, published)
            else:
                self._ways.add(FROM_LAYERS)
                yield found
            return
        self._ways.add(COMPARED)
        stored = StoredRows(self._pieces, self._route, name)
        for start, rows in self._model.blocks(name):
            block = ChangedRows(np.arange(start, start + len(rows)), rows)
            yield self._differing(stored, block, published)

    @property
    def _layers_were_merged(self) -> bool:
        return self._shared is not None and bool(layers_above(self._parent.source, self._shared))

    def _in_layers(self, name: str, published: PublishedArray, array: PublishedArray) -> ChangedRows | None:
        """Return the rows in the layers since; None if others may have changed, too."""
        if self._layers is None or published.shape != array.shape:
            return None
        if self._layers_were_merged:
            if self._dropped is None:
                return None
            gone = self._dropped.numbers(canonical(name))
            if len(np.setdiff1d(gone, self._layers.numbers(canonical(name)), assume_unique=True)):
                return None  # as after a return to an earlier checkpoint
        found = self._layers.rows(canonical(name))
        return None if found is None else ChangedRows(found.numbers, self._model.encode(name, found.values))

    def _find_dropped(self) -> SomeLayers | None:
        """Return the layers that only the published checkpoint has; None if they are gone."""
        if self._shared is None or not self._layers_were_merged:
            return None
        try:
            return SomeLayers(
                self._model.store, self._model.commit, layers_above(self._parent.source, self._shared)
            )
        except DamagedError:
            return None

    def _differing(self, stored: StoredRows, found: ChangedRows, published: PublishedArray) -> ChangedRows:
        """Leave out the rows that are published already."""
        self.compared += len(found.numbers)
        before = stored.take(found.numbers)
        # Bytes, because NaN differs from itself, and 0.0 equals -0.0.
        rows = np.ascontiguousarray(found.rows)
        differs = (_bytes_of(rows) != _bytes_of(before)).any(axis=1)
        differs |= found.numbers >= published.shape[0]
        return ChangedRows(found.numbers[differs], rows[differs])


def _bytes_of(rows: Array) -> Array:
    return rows.reshape(len(rows), -1).view(np.uint8)
