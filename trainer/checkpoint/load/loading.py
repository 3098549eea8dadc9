"""Loading a checkpoint collectively, with or without verification."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

from trainer.checkpoint.format import catalogue
from trainer.checkpoint.format.commit import data_name
from trainer.checkpoint.format.runs import check_size, verify_runs
from trainer.checkpoint.load.storage import Layers, check_fits

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from trainer.base.entry import Initial, State
    from trainer.base.row_stamps import Intervals
    from trainer.checkpoint.agreement import Ranks
    from trainer.checkpoint.format.runs import Run
    from trainer.checkpoint.store.base import Store


@dataclass(frozen=True, slots=True)
class LoadTarget:
    """The state to fill, and the fingerprint that the checkpoint must have (None: any)."""

    state: State
    fingerprint: Mapping[str, Any] | None
    initial: Initial | None


def load_trusted(ranks: Ranks, store: Store, step: int, target: LoadTarget) -> Layers:
    """Fill the target from a checkpoint without verifying its bytes.

    Raises:
        CheckpointError: on all ranks.
    """
    problem = _unloadable(store, step)
    layers = ranks.each(problem, lambda: Layers(store, catalogue.find_commit(store, step)))
    _prepare(ranks, problem, layers, target)
    ranks.together(problem, lambda: layers.fill(target.state, target.initial))
    return layers


def load_checked(
    ranks: Ranks, store: Store, step: int, target: LoadTarget, *, sound: Collection[str]
) -> Layers:
    """Fill the target from a checkpoint and verify every byte.

    Each rank verifies the runs that it reads whole while it reads them. Runs that no rank has read whole,
    because the sharding plan changed, are read again afterwards, shared among the ranks. The files of the
    manifests in `sound` are known to be intact and are not read again.

    Raises:
        DamagedError: on all ranks: a checksum does not match; the contents of the target are undefined.
        CheckpointError: on all ranks: it cannot be loaded for another reason.
    """
    layers = ranks.trusting(unusable(step), lambda: _open(ranks, store, step, sound))
    problem = _unloadable(store, step)
    _prepare(ranks, problem, layers, target)
    checked: set[Run] = set()
    ranks.trusting(problem, lambda: layers.fill(target.state, target.initial, checked))
    runs = layers.runs()
    mine = [number for number, run in enumerate(runs) if run in checked]
    done = set(chain.from_iterable(ranks.gather(mine)))
    known = {data_name(name) for name in sound}
    rest = [run for number, run in enumerate(runs) if number not in done and run.file not in known]
    ranks.trusting(unusable(step), lambda: verify_runs(store, rest[ranks.rank :: ranks.world_size]))
    return layers


def intervals_of(state: State) -> list[Intervals]:
    """Return the distinct Intervals that the row stamps of a state refer to."""
    found = {
        id(shard.stamps.intervals): shard.stamps.intervals
        for entry in state.values()
        for shard in entry.shards
        if shard.stamps is not None
    }
    return list(found.values())


def unusable(step: int) -> str:
    """Return the beginning of the message for a checkpoint that cannot be verified."""
    return f"the checkpoint of step {step} cannot be used"


def _unloadable(store: Store, step: int) -> str:
    return f"the checkpoint of step {step} in {store.uri} cannot be loaded"


def _open(ranks: Ranks, store: Store, step: int, sound: Collection[str]) -> Layers:
    """Read all manifests, and check the sizes of this rank's part of the files."""
    layers = Layers(store, catalogue.find_commit(store, step))
    unknown = [each for each in layers.commit.references if each.name not in sound]
    for reference in unknown[ranks.rank :: ranks.world_size]:
        check_size(store, reference)
    return layers


def _prepare(ranks: Ranks, problem: str, layers: Layers, target: LoadTarget) -> None:
    """Refuse a checkpoint that does not fit the target, and reset the row stamps."""
    wanted = set(chain.from_iterable(ranks.gather(sorted(target.state))))
    ranks.together(problem, lambda: check_fits(layers, wanted, target.fingerprint))
    for intervals in intervals_of(target.state):
        intervals.begin()
