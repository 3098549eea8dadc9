"""Collective actions: an error on one rank is raised on all ranks, so that no rank waits for another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import distributed

from trainer.base.errors import CheckpointError
from trainer.checkpoint.format.commit import DamagedError
from trainer.checkpoint.store.owner import FencedError

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Ranks:
    """The ranks that save and load together; `group` must carry CPU objects (gloo)."""

    rank: int
    world_size: int
    group: distributed.ProcessGroup | None = None

    def gather(self, value: T) -> list[T]:
        """Return every rank's value, in the order of ranks; the value must be picklable."""
        if self.world_size == 1:
            return [value]
        gathered: list[Any] = [None] * self.world_size
        distributed.all_gather_object(gathered, value, group=self.group)
        return gathered

    def together(self, problem: str, action: Callable[[], T]) -> list[T]:
        """Run the action on every rank and return all results, in the order of ranks.

        Raises:
            CheckpointError: on all ranks, if any rank's action failed; it begins with `problem`.
        """
        result: Any = None
        failure = None
        try:
            result = action()
        except Exception as error:  # noqa: BLE001 - sent to all ranks, which raise; else they would wait
            failure = _describe_failure(error)
        outcomes = self.gather((result, failure))
        for rank, (_, message) in enumerate(outcomes):
            if message is not None:
                where = f"rank {rank}: " if self.world_size > 1 else ""
                kind = FencedError if message.fenced else CheckpointError
                raise kind(f"{problem}: {where}{message.text}")
        return [outcome[0] for outcome in outcomes]

    def each(self, problem: str, action: Callable[[], T]) -> T:
        """Run the action on every rank and return this rank's result; results are not sent, only failures."""
        held: list[T] = []
        self.together(problem, lambda: held.append(action()))
        return held[0]

    def trusting(self, problem: str, action: Callable[[], T]) -> T:
        """Run the action on every rank and return this rank's result.

        Raises:
            DamagedError: on all ranks, if any rank's action raised one; its message is the lowest rank's.
            CheckpointError: see `together`.
        """
        held: list[T] = []

        def act() -> str | None:
            try:
                held.append(action())
            except DamagedError as error:
                return str(error)
            return None

        for damage in self.together(problem, act):
            if damage is not None:
                raise DamagedError(damage)
        return held[0]

    def gather_numbers(self, number: int) -> list[int]:
        """Return every rank's number, in the order of ranks.

        One tensor collective; `gather` needs two, since it pickles its values and first exchanges sizes.
        """
        if self.world_size == 1:
            return [number]
        parts = [torch.empty(1, dtype=torch.int64) for _ in range(self.world_size)]
        distributed.all_gather(parts, torch.tensor([number]), group=self.group)
        return [int(part) for part in parts]

    def first(self, problem: str, action: Callable[[], T]) -> T:
        """Run the action on rank 0 only; every rank returns its result, or raises its error."""
        result: Any = self.together(problem, action if self.rank == 0 else _nothing)[0]
        return result


def _nothing() -> Any:  # noqa: ANN401 - it replaces an action of any type
    return None


@dataclass(frozen=True, slots=True)
class _Failure:
    text: str
    fenced: bool = False


def _describe_failure(error: Exception) -> _Failure:
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return _Failure(
            f"{where}{error.strerror or error}; fix that (free space, permissions), or give another folder"
        )
    return _Failure(
        str(error) if isinstance(error, CheckpointError) else repr(error), isinstance(error, FencedError)
    )
