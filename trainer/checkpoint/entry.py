"""The trainer's state as named pieces, whoever holds them: what is saved, loaded and hashed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from torch import Tensor

    from trainer.checkpoint.touched import RowStamps


@dataclass(frozen=True, slots=True)
class Shard:
    """A rectangle of a global tensor: where it starts, and its live memory."""

    tensor: Tensor
    offsets: tuple[int, ...]  # one for every dimension of the global tensor
    stamps: RowStamps | None = None  # which of its rows were touched when; None: any may have changed


@dataclass(frozen=True, slots=True)
class Entry:
    """What this rank holds of one global tensor.

    A replicated tensor is held whole by every rank, and counted once: on rank 0.
    """

    shape: tuple[int, ...]  # of the global tensor
    shards: tuple[Shard, ...]  # this rank's; may be none
    replicated: bool = False


State: TypeAlias = Mapping[str, Entry]  # by canonical name, the same on every world size and plan


class Initial(Protocol):
    """The state before the first step, which need not be written because it can be made again."""

    @property
    def identity(self) -> str:
        """Equal where `make` would make the same."""
        ...

    def make(self) -> None:
        """Put every tensor that has stamps into that state, in place."""
        ...
