"""The store of a run's checkpoints: locked on this machine, and claimed against other runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer.base.location import local_path
from trainer.checkpoint.format import catalogue
from trainer.checkpoint.format.commit import SaveId
from trainer.checkpoint.store.base import open_store
from trainer.checkpoint.store.lock import DirectoryLock
from trainer.checkpoint.store.owner import claim

if TYPE_CHECKING:
    from trainer.checkpoint.agreement import Ranks
    from trainer.checkpoint.store.near import NearOptions


class ClaimedStore:
    """A store that this run may write to until it releases the store or a newer run claims it.

    Construction is collective: rank 0 takes the lock and the claim; its error is raised on all ranks.
    """

    def __init__(self, uri: str, ranks: Ranks, *, near: NearOptions | None = None) -> None:
        self.store = open_store(uri, near=near)
        self._uri = uri
        self._lock: DirectoryLock | None = None
        self._saves = 0
        self._owner = ranks.first("checkpoint_dir cannot be used", self._take_over)

    def next_save(self) -> SaveId:
        """Return an id that no other save has, of this run or of another."""
        self._saves += 1
        return SaveId(self._owner, self._saves)

    def release(self) -> None:
        """Let another run on this machine use the store."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _take_over(self) -> int:
        """Lock the folder, if it is local, and claim the store; return this run's owner number."""
        # The lock protects against a run on the same machine; the claim also against one elsewhere.
        if self.store.local_file("owners") is not None:
            folder = local_path(self._uri)
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = DirectoryLock(folder)
        number = claim(self.store, lambda: catalogue.adoptable(self.store)).number
        # Safe after the claim: a run that still writes its temporary files is fenced and cannot commit.
        self.store.tidy()
        return number
