"""The Checkpointer: collective saves and loads of a run's state."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Self

from trainer.checkpoint.agreement import Ranks
from trainer.checkpoint.claimed_store import ClaimedStore
from trainer.checkpoint.history import History
from trainer.checkpoint.load.loader import Loader
from trainer.checkpoint.load.loading import LoadTarget
from trainer.checkpoint.load.scrubber import Scrubber
from trainer.checkpoint.save.freezing import Freezer
from trainer.checkpoint.save.planner import SavePlanner
from trainer.checkpoint.save.saver import Saver
from trainer.checkpoint.save.saves import SavingOptions, Wanted

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from torch.distributed import ProcessGroup

    from trainer.base.entry import Initial, State
    from trainer.checkpoint.save.device import SideDevice
    from trainer.checkpoint.save.saves import CheckpointReport
    from trainer.checkpoint.vocabulary import Vocabulary


class Checkpointer:
    """Saves and loads one run's checkpoints, in a folder or bucket that all ranks can reach.

    Every method but `close` is collective: all ranks call it, in the same order, and an error on one
    rank is raised on all of them. `group` must carry CPU objects (gloo).
    """

    def __init__(
        self,
        uri: str,
        *,
        keep: int,
        rank: int,
        world_size: int,
        group: ProcessGroup | None = None,
        options: SavingOptions | None = None,
        device: SideDevice | None = None,
    ) -> None:
        """`device` holds tables; by default it is the GPU that a saved state has tensors on, if any."""
        if keep < 1:
            raise ValueError(f"keep is {keep}; at least one checkpoint must stay")
        options = options or SavingOptions()
        self._ranks = Ranks(rank, world_size, group)
        self._claimed = ClaimedStore(uri, self._ranks, near=options.near)
        store = self._claimed.store
        self._history = History(self._ranks, store)
        self._loader = Loader(self._ranks, store, self._history)
        self._freezer = Freezer(store.uri, options, rank=rank)
        self._scrubber = None
        if options.scrub_bytes_per_s and rank == 0:
            self._scrubber = Scrubber(
                store,
                lambda: self._history.chain,
                bytes_per_s=options.scrub_bytes_per_s,
                again_s=options.scrub_again_s,
            )
        planner = SavePlanner(
            self._ranks,
            self._claimed,
            self._history,
            options,
            keep=keep,
            device=device,
            scrubber=self._scrubber,
        )
        self._saver = Saver(
            self._ranks, store, self._history, options, planner=planner, freezer=self._freezer
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Abort a save that is in progress, and release the lock so that another run can use the folder."""
        if self._scrubber is not None:
            self._scrubber.close()
        self._saver.close()
        self._claimed.release()

    def take_damage(self) -> list[str]:
        """Return the damage to files of the newest checkpoint that was found since the last call.

        Only rank 0 looks. Not collective.
        """
        return [] if self._scrubber is None else self._scrubber.take_reports()

    def steps(self) -> tuple[int, ...]:
        """Return the steps of all committed checkpoints, oldest first; their files are not verified."""
        return self._history.steps()

    def newest_extra(self) -> dict[str, Any] | None:
        """Return the `extra` of the newest readable commit, even if its data is damaged, or None."""
        return self._history.newest_extra()

    def keep(self, vocabulary: Vocabulary) -> None:
        """Copy a vocabulary's files beside the checkpoints, unless they exist there already.

        Raises:
            CheckpointError: on all ranks: a file cannot be copied, or is damaged.
        """
        self._ranks.first("the vocabulary cannot be kept", lambda: vocabulary.keep_in(self._claimed.store))

    def newest(self) -> int | None:
        """Return the step of the newest checkpoint whose checksums all match; None if there is no checkpoint.

        A damaged checkpoint is skipped, with a warning that names the damage.

        Raises:
            CheckpointError: checkpoints exist, but all are damaged or of another format version.
        """
        return self._loader.newest()

    def load_newest(
        self, state: State, fingerprint: Mapping[str, Any] | None = None, *, initial: Initial | None = None
    ) -> tuple[int, dict[str, Any]] | None:
        """Verify and load the newest checkpoint in one pass; return its step and its `extra`.

        Equivalent to `newest` and then `load`, but reads each byte about once. Damage is found while `state`
        is filled or right after; `state` is then filled again from the checkpoint before. If there is no
        checkpoint, returns None and leaves `state` unchanged.

        Raises:
            CheckpointError: as in `newest` and `load`; the contents of `state` are undefined then.
        """
        return self._loader.load_newest(LoadTarget(state, fingerprint, initial))

    def save(
        self,
        step: int,
        state: State,
        extra: Mapping[str, Any],
        fingerprint: Mapping[str, Any],
        *,
        initial: Initial | None = None,
        wait: bool = True,
    ) -> CheckpointReport | None:
        """Write a checkpoint of the current state; older ones beyond `keep` are removed after its commit.

        `extra` and `fingerprint` are JSON values, taken from rank 0. If the step already has a good
        checkpoint, as right after a resume, nothing is written. `initial` is the state that the run began
        with, if differentials may be computed from it.

        With `wait`, the checkpoint is committed on return. Without `wait`, and if this Checkpointer writes
        in the background, the method returns None, and `poll` returns the report later. An earlier save that
        is still in progress is waited for first.

        Raises:
            CheckpointError: on all ranks; earlier checkpoints are intact.
        """
        wanted = Wanted(step, state, extra, fingerprint, initial, started=time.perf_counter())
        return self._saver.save(wanted, wait=wait)

    def foresee(self, state: State) -> None:
        """Allocate the memory for the first save's copies; call it about half an interval before that save.

        Reads the row stamps once, to estimate the size. Not collective.
        """
        self._freezer.foresee(state)

    @property
    def near_bytes(self) -> int:
        """The bytes that this rank found on its own machine's disk instead of the bucket."""
        near = self._claimed.store.near
        return 0 if near is None else near.read_bytes

    def poll(self, *, wait: bool = False) -> list[CheckpointReport]:
        """Return the reports of saves committed since the last call; cheap, so call it often during a save.

        With `wait`, first waits until the save in progress has ended.

        Raises:
            CheckpointError: on all ranks: a save failed on any rank.
        """
        return self._saver.poll(wait=wait)

    @property
    def is_saving(self) -> bool:
        """Whether a save is in progress, the same on all ranks."""
        return self._saver.is_saving

    def load(
        self,
        step: int,
        state: State,
        fingerprint: Mapping[str, Any] | None = None,
        *,
        initial: Initial | None = None,
    ) -> dict[str, Any]:
        """Copy a committed checkpoint into `state`, in place; return its `extra`.

        The world size and the sharding may differ from those of the save. The names in the `state` of all
        ranks together must be exactly the names in the checkpoint.

        Raises:
            CheckpointError: it belongs to another model or dataset, or names do not match.
        """
        return self._loader.load(step, LoadTarget(state, fingerprint, initial))
