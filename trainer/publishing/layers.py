"""The rows in some layers of a checkpoint, read without the layers below."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain, pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from trainer.checkpoint.format.runs import Files
from trainer.checkpoint.load.storage import Layers, dtype_of, row_numbers, row_values

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt
    from torch import Tensor

    from trainer.base.entry import State
    from trainer.checkpoint.format.commit import Commit, ManifestReference, Part
    from trainer.checkpoint.format.runs import Run
    from trainer.checkpoint.store.base import Store

    Numbers = npt.NDArray[np.int64]


class LayerRows(NamedTuple):
    """Rows of a tensor, by their numbers."""

    numbers: Numbers
    values: Tensor


class SomeLayers:
    """Some layers, of which the last is the newest; every byte that is read is verified.

    Args:
        store: of the checkpoint.
        commit: for its other properties.
        layers: the layers.

    Raises:
        DamagedError: a manifest is missing or damaged.
    """

    def __init__(
        self, store: Store, commit: Commit, layers: tuple[tuple[ManifestReference, ...], ...]
    ) -> None:
        self._store = store
        # What is filled from these layers must be in them, so neither a base nor a layer below counts.
        self._layers = Layers(store, replace(commit, base=None, layers=layers))
        self._checked: set[Run] = set()
        self._numbers: dict[str, Numbers] = {}

    @property
    def read_bytes(self) -> int:
        """The bytes read so far, without manifests."""
        return sum(run.length for run in self._checked)

    def numbers(self, name: str) -> Numbers:
        """Return the numbers of a tensor's rows that are in any of the layers, ascending."""
        if name not in self._numbers:
            with Files(self._store, self._checked) as files:
                found = [row_numbers(files, file, part) for file, part in self._parts(name)]
            self._numbers[name] = np.unique(np.concatenate([np.empty(0, np.int64), *found]))
        return self._numbers[name]

    def rows(self, name: str) -> LayerRows | None:
        """Return the newest values of these rows; None if the layers hold only some columns of one."""
        numbers = self.numbers(name)
        parts = self._parts(name)
        if not parts:
            return None
        first = parts[0][1]
        values = torch.empty(len(numbers), *first.shape[1:], dtype=dtype_of(first))
        edges = sorted({edge for _, part in parts for edge in _columns(part)})
        covered = np.zeros((max(len(edges) - 1, 1), len(numbers)), dtype=bool)
        with Files(self._store, self._checked) as files:
            for file, part in parts:
                held = row_numbers(files, file, part)
                at: Numbers = np.searchsorted(numbers, held)  # type: ignore[assignment] # an array, as held is
                low, high = _columns(part)
                target = values[:, low:high] if values.dim() > 1 else values
                for place, rows in row_values(files, file, part, len(held)):
                    target[torch.from_numpy(at[place])] = rows
                for piece, (start, _) in enumerate(pairwise(edges)):
                    covered[piece, at] |= low <= start < high
        whole = bool(covered.all()) and edges[0] == 0 and edges[-1] == _width(first.shape)
        return LayerRows(numbers, values) if whole else None

    def fill(self, state: State) -> None:
        """Fill tensors that the newest layer has whole."""
        self._layers.fill(state, None, self._checked)

    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Return the shape of every tensor, by name."""
        return self._layers.shapes()

    def _parts(self, name: str) -> list[tuple[str, Part]]:
        return list(chain.from_iterable(self._layers.named.get(name, [])))


def _width(shape: tuple[int, ...]) -> int:
    return shape[1] if len(shape) > 1 else 1


def _columns(part: Part) -> tuple[int, int]:
    """Return the first column of a part and the one behind its last; a vector has one."""
    if len(part.shape) == 1:
        return 0, 1
    return part.offsets[1], part.offsets[1] + part.sizes[1]
