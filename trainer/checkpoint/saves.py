"""What a save is asked for, what becomes of it, and what the next one builds upon."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainer.checkpoint.background import Answer
    from trainer.checkpoint.coding import Quantization
    from trainer.checkpoint.commit import Reference, SaveId
    from trainer.checkpoint.committing import CommitPlan
    from trainer.checkpoint.entry import Initial, State
    from trainer.checkpoint.frames import Group
    from trainer.checkpoint.policy import Kind, Mode, Sizes
    from trainer.checkpoint.touched import Intervals


@dataclass(frozen=True, slots=True)
class CheckpointReport:
    """What a save cost."""

    step: int
    seconds: float  # that the training loop stood still
    bytes: int  # over all ranks
    write_s: float = 0.0  # from the cut to the commit
    kind: str = "full"


@dataclass(frozen=True, slots=True, kw_only=True)
class SavingOptions:
    """How checkpoints are written; the same on all ranks."""

    mode: Mode = "full"
    in_background: bool = False
    quantization: Quantization = "none"  # of the rows in differentials
    chain: int = 8  # differentials above a base before they are merged
    keep_every: int = 0  # steps; checkpoints at multiples of it stay for ever
    copied_share: float = 1 / 16  # of a rank's bytes: up to so many are copied at a cut; a fork freezes more


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a save is to hold."""

    step: int
    state: State
    extra: Mapping[str, Any]
    fingerprint: Mapping[str, Any]
    initial: Initial | None
    started: float


@dataclass(slots=True)
class Save:
    """A save that is not committed yet."""

    id: SaveId
    step: int
    kind: Kind
    base: str | None
    earlier: tuple[tuple[Reference, ...], ...]
    plan: CommitPlan | None  # on rank 0
    cuts: list[tuple[Intervals, int]]
    groups: list[Group]
    sizes: Sizes  # on this rank
    started: float
    stall_s: float = 0.0
    answer: Answer | None = None  # of this rank's writer

    @property
    def problem(self) -> str:
        """What is told if it fails."""
        return problem_of(self.step)


@dataclass(slots=True)
class Chain:
    """The committed checkpoint that the next one is built upon."""

    base: str | None  # as in a commit
    layers: tuple[tuple[Reference, ...], ...]

    @property
    def bottom(self) -> tuple[tuple[Reference, ...], ...]:
        """The layers of the base."""
        return self.layers[:1] if self.base is None else ()

    @property
    def differentials(self) -> int:
        """The layers above the base."""
        return len(self.layers) - len(self.bottom)


def problem_of(step: int) -> str:
    """What is told of a save that failed."""
    return f"the checkpoint of step {step} was not written, earlier ones are intact"
