"""A run's knowledge of its checkpoints: which exist, which are intact, and which the next one builds upon."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from trainer.checkpoint.format import catalogue
from trainer.checkpoint.format.commit import DamagedError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from trainer.checkpoint.agreement import Ranks
    from trainer.checkpoint.format.commit import Commit, ManifestReference, SaveId
    from trainer.checkpoint.store.base import Store


@dataclass(frozen=True, slots=True)
class Chain:
    """The committed checkpoint that the next one is built upon."""

    base: str | None  # as in a commit
    layers: tuple[tuple[ManifestReference, ...], ...]
    bytes_above: int = 0  # written since the base, including layers that were merged since

    @property
    def bottom(self) -> tuple[tuple[ManifestReference, ...], ...]:
        """The layers of the base."""
        return self.layers[:1] if self.base is None else ()

    @property
    def differentials(self) -> int:
        """The layers above the base."""
        return len(self.layers) - len(self.bottom)


@dataclass(frozen=True, slots=True)
class Written:
    """A committed layer, and the fallback of its checkpoint."""

    layer: tuple[ManifestReference, ...]
    fallback: catalogue.Fallback | None = None  # None: not known

    @property
    def bytes(self) -> int:
        """Its size, over all ranks."""
        return sum(reference.bytes for reference in self.layer)


class History:
    """The checkpoints of a store that this run verified, found damaged, or wrote.

    Its contents are the same on all ranks. `steps`, `newest_extra` and `build_upon` are collective.
    """

    def __init__(self, ranks: Ranks, store: Store) -> None:
        self._ranks = ranks
        self._store = store
        self._sizes: dict[int, int] = {}  # of the steps that this run wrote or verified, in bytes
        self._damaged: set[int] = set()
        self._sound_files: set[str] = set()
        self._fallback: catalogue.Fallback | None = None  # of the newest checkpoint; None: not known
        self.chain: Chain | None = None

    def steps(self) -> tuple[int, ...]:
        """Return the steps of all committed checkpoints, oldest first; their files are not verified."""
        return self._ranks.first(
            "checkpoints cannot be listed",
            lambda: tuple(each.step for each in catalogue.list_commits(self._store)),
        )

    def newest_extra(self) -> dict[str, Any] | None:
        """Return the `extra` of the newest readable commit, even if its data is damaged, or None."""
        return self._ranks.first("checkpoints cannot be listed", self._newest_extra)

    def size_of(self, step: int) -> int | None:
        """Return the bytes of a checkpoint that this run wrote or verified; None for any other."""
        return self._sizes.get(step)

    @property
    def damaged(self) -> tuple[int, ...]:
        """The steps of the checkpoints that are known to be damaged."""
        return tuple(sorted(self._damaged))

    @property
    def sound_files(self) -> Collection[str]:
        """The manifests whose data was verified completely, by name."""
        return self._sound_files

    @property
    def is_newest_alone(self) -> bool:
        """Whether every other kept checkpoint shares a file with the newest; False if that is not known."""
        return self._fallback is not None and self._fallback.step is None

    def trust(self, commit: Commit) -> None:
        """Note that every byte of this checkpoint was verified."""
        self.trust_files(reference.name for reference in commit.references)
        self._sizes[commit.step] = commit.bytes

    def trust_files(self, manifests: Iterable[str]) -> None:
        """Note that every byte that these manifests describe was verified."""
        self._sound_files.update(manifests)

    def distrust(self, step: int) -> None:
        """Note that the checkpoint of this step is damaged."""
        self._damaged.add(step)

    def renounce(self, find: Callable[[], Collection[str]]) -> bool:
        """Distrust the checkpoints with a file that is damaged; return whether the chain has one. Collective.

        Args:
            find: returns the names of the manifests whose files are damaged; called on rank 0 only.
        """

        def look() -> tuple[frozenset[str], list[int]]:
            names = frozenset(find())
            listed = catalogue.list_commits(self._store) if names else []
            commits = [each.commit for each in listed if each.commit is not None]
            return names, [each.step for each in commits if names & {ref.name for ref in each.references}]

        names, steps = self._ranks.first("checkpoints cannot be listed", look)
        self._sound_files -= names
        for step in steps:
            self._damaged.add(step)
            self._sizes.pop(step, None)
        layers = () if self.chain is None else self.chain.layers
        return any(each.name in names for layer in layers for each in layer)

    def build_upon(self, commit: Commit) -> None:
        """Note that the state was loaded from this checkpoint, so the next save builds upon it."""
        chain = Chain(commit.base, commit.layers)
        above = sum(each.bytes for layer in chain.layers[len(chain.bottom) :] for each in layer)
        self.chain = replace(chain, bytes_above=above)
        self._fallback = self._ranks.first(
            "checkpoints cannot be listed",
            lambda: catalogue.find_fallback(self._store, commit.step, self._damaged),
        )

    def add(self, step: int, written: Written, *, above: Chain) -> None:
        """Note that this run committed a layer above this chain, which is empty if the layer is full."""
        is_full = above.base is None and not above.layers
        before = 0 if is_full or self.chain is None else self.chain.bytes_above
        layers = (*above.layers, written.layer)
        self.chain = Chain(above.base, layers, bytes_above=0 if is_full else before + written.bytes)
        self._fallback = written.fallback
        self._sizes[step] = written.bytes
        self._damaged.discard(step)

    def find(self, step: int, save: SaveId) -> Written | None:
        """Read from the store what this save committed; None if it committed nothing."""
        try:
            found = catalogue.find_commit(self._store, step)
        except DamagedError:  # or missing
            return None
        if (found.owner, found.number) != (save.owner, save.number):
            return None
        return Written(found.layers[-1], catalogue.find_fallback(self._store, step, self._damaged))

    def _newest_extra(self) -> dict[str, Any] | None:
        commits = (each.commit for each in reversed(catalogue.list_commits(self._store)))
        return next((dict(commit.extra) for commit in commits if commit is not None), None)
