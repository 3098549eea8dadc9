"""The types of a save: its options, its request, its progress and its report."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from trainer.checkpoint.save.limits import StreamLimits

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainer.base.entry import Initial, State
    from trainer.base.row_stamps import Intervals
    from trainer.checkpoint.format.catalogue import Fallback
    from trainer.checkpoint.format.coding import Quantization
    from trainer.checkpoint.format.commit import SaveId
    from trainer.checkpoint.format.frames import Group
    from trainer.checkpoint.history import Chain
    from trainer.checkpoint.save.background import JobResult
    from trainer.checkpoint.save.committing import CommitPlan
    from trainer.checkpoint.save.table_stream import TableStream
    from trainer.checkpoint.store.near import NearOptions


Kind = Literal["full", "differential", "merged"]
Mode = Literal["auto", "full", "incremental"]


@dataclass(frozen=True, slots=True)
class Sizes:
    """Bytes that one rank, or all ranks, would write."""

    full: int
    touched: int  # of the touched rows, and of all tensors that are always written whole

    def plus(self, other: Sizes) -> Sizes:
        """Return the sum of two ranks."""
        return Sizes(self.full + other.full, self.touched + other.touched)


@dataclass(frozen=True, slots=True)
class CheckpointReport:
    """The time and bytes of a committed save."""

    step: int
    seconds: float  # that the training loop was paused
    bytes: int  # over all ranks
    write_s: float = 0.0  # from the cut to the commit
    kind: str = "full"
    fallback: Fallback | None = None  # None: not known


@dataclass(frozen=True, slots=True, kw_only=True)
class SavingOptions:
    """How checkpoints are written; the same on all ranks."""

    mode: Mode = "full"
    in_background: bool = False
    quantization: Quantization = "none"  # of the rows in differentials
    chain: int = 8  # differentials above a base before they are merged
    keep_every: int = 0  # steps; checkpoints at multiples of it stay forever
    near: NearOptions | None = None  # this machine's copies of what it writes to a bucket; None for none
    stream: StreamLimits = field(default_factory=StreamLimits)  # of the tables of a device
    scrub_bytes_per_s: float = 0.0  # at which files of the newest checkpoint are read again; 0: never
    scrub_again_s: float = 3600.0  # until a file is read again
    copied_share: float = 1 / 16  # of a rank's bytes: up to this share is copied at a cut; above it, a fork


@dataclass(frozen=True, slots=True)
class Wanted:
    """A requested save."""

    step: int
    state: State
    extra: Mapping[str, Any]
    fingerprint: Mapping[str, Any]
    initial: Initial | None
    started: float


@dataclass(slots=True)
class Save:
    """A save in progress."""

    id: SaveId
    step: int
    kind: Kind
    above: Chain  # the layers below the new one
    plan: CommitPlan | None  # on rank 0
    cuts: list[tuple[Intervals, int]]
    groups: list[Group]
    sizes: Sizes  # on this rank
    needed: tuple[str, ...]  # the saves whose files this one and the one before need, as OWNER.NUMBER
    started: float
    tables: TableStream | None = None  # of a device; the groups have everything else
    stall_s: float = 0.0  # until training continued
    answer: JobResult | None = None  # of this rank's writer

    @property
    def stall_in_all_s(self) -> float:
        """Also the time that training waited later, until rows were copied that it was about to change."""
        return self.stall_s + (0.0 if self.tables is None else self.tables.stall_s)

    @property
    def problem(self) -> str:
        """The beginning of the message if it fails."""
        return problem_of(self.step)


def problem_of(step: int) -> str:
    """Return the beginning of the message for a save that failed."""
    return f"the checkpoint of step {step} was not written, earlier ones are intact"
