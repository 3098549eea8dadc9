"""Acting together: what fails on one rank fails on all, with the same message, and nobody waits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import distributed

from trainer.checkpoint.commit import DamagedError
from trainer.checkpoint.owner import FencedError
from trainer.errors import CheckpointError

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
        """Every rank's value, in the order of ranks."""
        if self.world_size == 1:
            return [value]
        gathered: list[Any] = [None] * self.world_size
        distributed.all_gather_object(gathered, value, group=self.group)
        return gathered

    def together(self, problem: str, action: Callable[[], T]) -> list[T]:
        """Act on every rank and give back all results.

        Raises:
            CheckpointError: on all ranks, if any rank's action failed; it begins with `problem`.
        """
        result: Any = None
        failure = None
        try:
            result = action()
        except Exception as error:  # noqa: BLE001 - told to all ranks, who raise; else they would wait
            failure = _tell(error)
        outcomes = self.gather((result, failure))
        for rank, (_, message) in enumerate(outcomes):
            if message is not None:
                where = f"rank {rank}: " if self.world_size > 1 else ""
                kind = FencedError if message.fenced else CheckpointError
                raise kind(f"{problem}: {where}{message.text}")
        return [outcome[0] for outcome in outcomes]

    def each(self, problem: str, action: Callable[[], T]) -> T:
        """Act on every rank; this rank's own result, which need not travel."""
        held: list[T] = []
        self.together(problem, lambda: held.append(action()))
        return held[0]

    def trusting(self, problem: str, action: Callable[[], T]) -> T:
        """Act on every rank; this rank's own result.

        Raises:
            DamagedError: on all ranks, if any rank's action raised one, in the words of the first.
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
        """Every rank's number, cheaper than by `gather`."""
        if self.world_size == 1:
            return [number]
        parts = [torch.empty(1, dtype=torch.int64) for _ in range(self.world_size)]
        distributed.all_gather(parts, torch.tensor([number]), group=self.group)
        return [int(part) for part in parts]

    def first(self, problem: str, action: Callable[[], T]) -> T:
        """Act on rank 0 alone; its result, or its error, is everybody's."""
        result: Any = self.together(problem, action if self.rank == 0 else _nothing)[0]
        return result


def _nothing() -> Any:  # noqa: ANN401 - stands for any action
    return None


@dataclass(frozen=True, slots=True)
class _Failure:
    text: str
    fenced: bool = False


def _tell(error: Exception) -> _Failure:
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return _Failure(
            f"{where}{error.strerror or error}; mend that (free space, permissions), or give another folder"
        )
    return _Failure(
        str(error) if isinstance(error, CheckpointError) else repr(error), isinstance(error, FencedError)
    )
