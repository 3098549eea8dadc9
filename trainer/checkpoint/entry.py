"""The trainer's state as named pieces, whoever holds them: what is saved, loaded and hashed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class Shard:
    """A rectangle of a global tensor: where it starts, and its live memory."""

    tensor: Tensor
    offsets: tuple[int, ...]  # one for every dimension of the global tensor


@dataclass(frozen=True, slots=True)
class Entry:
    """What this rank holds of one global tensor.

    A replicated tensor is held whole by every rank, and counted once: on rank 0.
    """

    shape: tuple[int, ...]  # of the global tensor
    shards: tuple[Shard, ...]  # this rank's; may be none
    replicated: bool = False


State: TypeAlias = Mapping[str, Entry]  # by canonical name, the same on every world size and plan
