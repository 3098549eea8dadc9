"""An array of a version, made from a full version or from the one that is held, and from deltas.

This module must not import torch.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import numpy as np

from trainer.serving.publication.format import PublicationError
from trainer.serving.publication.pieces import READ_BYTES

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from trainer.serving.publication.format import PublishedArray
    from trainer.serving.publication.pieces import PieceReader
    from trainer.serving.publication.routes import LoadRoute
    from trainer.serving.publication.spare import SpareArrays

    Array = npt.NDArray[Any]


def build_array(
    pieces: PieceReader, spare: SpareArrays, route: LoadRoute, name: str, held: Array | None
) -> Array:
    """Return an array of a route's version; `held`, that of the version in memory, is not changed.

    Raises:
        PublicationError: a file is missing or damaged, or the versions do not fit one another.
    """
    building = _Building(pieces, spare, name, held if route.full is None else None)
    if route.full is not None:
        building.begin(route.full.arrays.get(name))
    for manifest in route.deltas:
        building.change(manifest.arrays.get(name))
    array, wanted = building.array, route.target.arrays[name]
    if array is None or (array.shape, array.dtype.str) != (wanted.shape, wanted.dtype):
        raise PublicationError(
            f"{pieces.uri}: the versions before {route.target.name} do not lead to its {name}; "
            "publish with --full"
        )
    return array


def read_change(pieces: PieceReader, name: str, published: PublishedArray) -> tuple[Array, Array]:
    """Return the numbers of the rows of a delta, and the rows.

    Raises:
        PublicationError: a file is missing or damaged, or the numbers are none of rows.
    """
    change, (rows, *width) = published.change, published.shape
    if change is None or change.numbers is None or change.values is None:
        return np.empty(0, np.int64), np.empty((0, *width), published.dtype)
    numbers = np.frombuffer(pieces.file(change.numbers), published.number_type).astype(np.int64)
    if (np.diff(numbers) <= 0).any() or (numbers >= rows).any() or (numbers < 0).any():
        raise PublicationError(
            f"{pieces.uri}/{change.numbers.object}: the rows of {name} are not ascending numbers below "
            f"{rows}; publish with --full"
        )
    pieces.check_room(change.values)
    values = np.empty((change.count, *width), published.dtype)
    pieces.read_into(change.values, memoryview(bytes_of(values)))  # type: ignore[arg-type] # it is a buffer
    return numbers, values


def bytes_of(array: Array) -> Array:
    """Return the bytes of a contiguous array."""
    return array.reshape(-1).view(np.uint8)


class StoredRows:
    """The rows of a published array without all of them in memory; a full version's are not verified."""

    def __init__(self, pieces: PieceReader, route: LoadRoute, name: str) -> None:
        self._pieces = pieces
        self._base = None if route.full is None else route.full.arrays.get(name)
        self._array = route.target.arrays[name]
        self._changes: list[tuple[Array, Array]] = []
        for manifest in route.deltas:
            published = manifest.arrays.get(name)
            if published is None or not self._array.fits(published):
                self._base, self._changes = None, []  # rows of another kind: a later delta has all
            else:
                self._changes.append(read_change(pieces, name, published))
        if not self._array.fits(self._base):
            self._base = None

    def take(self, numbers: Array) -> Array:
        """Return rows; the numbers are ascending."""
        rows = np.zeros((len(numbers), *self._array.shape[1:]), self._array.dtype)
        if self._base is not None:
            self._take_base(numbers, rows, self._base)
        for changed, values in self._changes:
            at = np.searchsorted(changed, numbers)
            found = np.flatnonzero(at < len(changed))
            found = found[changed[at[found]] == numbers[found]]
            rows[found] = values[at[found]]
        return rows

    def _take_base(self, numbers: Array, rows: Array, base: PublishedArray) -> None:
        if base.whole is None:
            return
        size = base.row_bytes
        first = base.whole.bytes - base.shape[0] * size
        step = max(READ_BYTES // size, 1)
        held = numbers[: np.searchsorted(numbers, base.shape[0])]
        at = 0
        while at < len(held):
            stop = int(np.searchsorted(held, held[at] + step))
            low, high = int(held[at]), int(held[stop - 1]) + 1
            data = self._pieces.part(base.whole, first + low * size, (high - low) * size)
            block = np.frombuffer(data, base.dtype).reshape(high - low, *base.shape[1:])
            rows[at:stop] = block[held[at:stop] - low]
            at = stop


class _Building:
    """One array on its way to a version."""

    def __init__(self, pieces: PieceReader, spare: SpareArrays, name: str, held: Array | None) -> None:
        self.array = held
        self._pieces = pieces
        self._spare = spare
        self._name = name
        self._is_own = False  # and may be changed

    def begin(self, published: PublishedArray | None) -> None:
        """Read all rows of a full version."""
        if published is None or published.whole is None:
            return  # an array that a later version adds
        piece = published.whole
        self._pieces.check_room(piece)
        array = self._spare.new(self._name, published.shape, published.dtype)
        head = bytearray(piece.bytes - array.nbytes)
        target = memoryview(bytes_of(array))  # type: ignore[arg-type] # it is a buffer
        self._pieces.read_into(piece, target, head=memoryview(head))
        if _header(head) != (published.shape, published.dtype):
            raise PublicationError(
                f"{self._pieces.uri}/{piece.object}: is no array {published.dtype} {list(published.shape)}; "
                "publish with --full"
            )
        self.array, self._is_own = array, True

    def change(self, published: PublishedArray | None) -> None:
        """Apply a delta."""
        if published is None or published.change is None:
            self.array = None  # the version does not have it
            return
        held = self.array
        if held is not None and (held.shape[1:], held.dtype.str) != (published.shape[1:], published.dtype):
            held = None  # rows of another kind: all are in the delta
        before, rows = 0 if held is None else len(held), published.shape[0]
        numbers, values = read_change(self._pieces, self._name, published)
        added = len(numbers) - int(np.searchsorted(numbers, before))
        if added != max(rows - before, 0):
            raise PublicationError(
                f"{self._pieces.uri}: {self._name} grows from {before} to {rows} rows, of which the delta "
                f"has {added}; publish with --full"
            )
        if held is not None and before == rows and not len(numbers):
            return
        if held is None or before != rows or not self._is_own:
            held = self._spare.prepare(self._name, held, published.shape, published.dtype)
        held[numbers] = values
        self._spare.changed(self._name, held, numbers)
        self.array, self._is_own = held, True


def _header(head: bytearray) -> tuple[Sequence[int], str] | None:
    """Return sizes and type in the header of a .npy file; None if it is none, or of Fortran's order."""
    try:
        stream = io.BytesIO(bytes(head))
        if np.lib.format.read_magic(stream) != (1, 0):
            return None
        shape, fortran, dtype = np.lib.format.read_array_header_1_0(stream)
    except (ValueError, TypeError, KeyError, SyntaxError):
        return None
    return None if fortran or stream.read() else (shape, dtype.str)
