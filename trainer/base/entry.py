"""The trainer's state as named tensors in pieces: the form in which it is saved, loaded and hashed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from torch import Tensor

    from trainer.base.row_stamps import RowStamps


@dataclass(frozen=True, slots=True)
class TensorShard:
    """A rectangle of a global tensor: where it starts, and its live memory."""

    tensor: Tensor
    offsets: tuple[int, ...]  # one for every dimension of the global tensor
    stamps: RowStamps | None = None  # which of its rows were touched when; None: any may have changed


@dataclass(frozen=True, slots=True)
class Entry:
    """This rank's part of one global tensor.

    Every rank has a replicated tensor whole; it is saved and hashed on rank 0 only.
    """

    shape: tuple[int, ...]  # of the global tensor
    shards: tuple[TensorShard, ...]  # this rank's; may be none
    replicated: bool = False


State: TypeAlias = Mapping[str, Entry]  # by canonical name, the same on every world size and plan


class Initial(Protocol):
    """The state before the first step; it is not written to checkpoints because it can be computed again."""

    @property
    def identity(self) -> str:
        """A text that is equal for two objects whose `make` computes the same state."""
        ...

    def known_as(self, identity: str) -> Initial | None:
        """Return what computes the state with this identity, as an earlier version may; None if unknown."""
        ...

    def make(self) -> None:
        """Compute that state of every tensor that has stamps, in place."""
        ...
