"""Memory for new versions of arrays, without a copy of all rows each time.

A model that is served is never changed, so its next version needs other memory. Once nothing uses the version
before it any more, that one's memory is brought up to date: it lacks the rows that changed in the last two
versions, and gets those. So two versions of a table are in memory, and an update copies twice the changed
rows. While the older one is still in use, a third is made by copying all rows. This module must not import
torch.
"""

from __future__ import annotations

import threading
import weakref
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    Array = npt.NDArray[Any]


@dataclass
class _ArrayMemory:
    """The memory of one version of an array.

    Attributes:
        data: its bytes.
        root: the array that all users' views are of: it lives while there are some.
        behind: the rows that differ from the newest version; None if that is not known.
    """

    data: Array
    root: weakref.ref[Array] | None = None
    behind: list[Array] | None = field(default_factory=list)

    def hand_out(self, shape: tuple[int, ...], dtype: str) -> Array:
        """Return the array to use."""
        # numpy lets a view refer to the first array above what is no array: to this one, not to `data`.
        root = np.frombuffer(self.data.data, dtype)
        self.root = weakref.ref(root)
        return root.reshape(shape)

    @property
    def is_used(self) -> bool:
        """Whether anyone holds the array or a part of it."""
        return self.root is not None and self.root() is not None


class SpareArrays:
    """The memory of the arrays of one publication's versions."""

    def __init__(self) -> None:
        self._known: dict[str, list[_ArrayMemory]] = {}  # the newest version's last
        self._lock = threading.Lock()

    def new(self, name: str, shape: tuple[int, ...], dtype: str) -> Array:
        """Return an array without contents; the versions before are not built upon."""
        with self._lock:
            memory = self._spare(name, shape, dtype, None) or _ArrayMemory(_allocate(shape, dtype))
            self._known[name] = [memory]
        memory.behind = []
        return memory.hand_out(shape, dtype)

    def prepare(self, name: str, held: Array | None, shape: tuple[int, ...], dtype: str) -> Array:
        """Return an array with the rows of `held`, as far as there are some."""
        with self._lock:
            memories = self._known.get(name, [])
            newest = memories[-1] if memories else None
            builds_on = held is not None and newest is not None and _address(newest.data) == _address(held)
            spare = self._spare(name, shape, dtype, newest)
        memory = spare or _ArrayMemory(_allocate(shape, dtype), behind=None)
        array = memory.hand_out(shape, dtype)
        if held is not None:
            if spare is not None and builds_on and memory.behind is not None and held.shape == shape:
                for rows in memory.behind:
                    array[rows] = held[rows]
            else:
                size = min(len(held), shape[0])
                array[:size] = held[:size]
        memory.behind = []
        with self._lock:
            self._known[name] = [newest, memory] if builds_on and newest is not None else [memory]
        return array

    def changed(self, name: str, array: Array, rows: Array) -> None:
        """Note that the newest version of an array got other rows."""
        with self._lock:
            for memory in self._known.get(name, []):
                if _address(memory.data) == _address(array) or memory.behind is None:
                    continue
                memory.behind.append(rows)
                if sum(map(len, memory.behind)) > len(array):  # it is copied whole
                    memory.behind = None

    def settle(self, arrays: Mapping[str, Array]) -> None:
        """Forget the memory of arrays that the newest version does not have."""
        with self._lock:
            self._known = {name: found for name, found in self._known.items() if name in arrays}

    def _spare(
        self, name: str, shape: tuple[int, ...], dtype: str, newest: _ArrayMemory | None
    ) -> _ArrayMemory | None:
        size = prod(shape) * np.dtype(dtype).itemsize
        for memory in self._known.get(name, []):
            if memory is not newest and not memory.is_used and memory.data.nbytes == size:
                return memory
        return None


def _allocate(shape: tuple[int, ...], dtype: str) -> Array:
    return np.empty(prod(shape) * np.dtype(dtype).itemsize, np.uint8)


def _address(array: Array) -> int:
    return int(array.__array_interface__["data"][0])
