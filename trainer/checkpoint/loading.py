"""Loading by all ranks together."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

from trainer.checkpoint import catalogue
from trainer.checkpoint.commit import data_name
from trainer.checkpoint.runs import check_size, verify_runs
from trainer.checkpoint.storage import Layers, check_fits

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from trainer.checkpoint.agreement import Ranks
    from trainer.checkpoint.entry import Initial, State
    from trainer.checkpoint.runs import Run
    from trainer.checkpoint.store import Store
    from trainer.checkpoint.touched import Intervals


@dataclass(frozen=True, slots=True)
class Target:
    """Where a checkpoint is to be loaded into, and what it must belong to (None: anything)."""

    state: State
    fingerprint: Mapping[str, Any] | None
    initial: Initial | None


def load_trusted(ranks: Ranks, store: Store, step: int, target: Target) -> Layers:
    """Fill the target from a checkpoint whose bytes are taken to be as written.

    Raises:
        CheckpointError: on all ranks.
    """
    problem = _unloadable(store, step)
    layers = ranks.each(problem, lambda: Layers(store, catalogue.find_commit(store, step)))
    _prepare(ranks, problem, layers, target)
    ranks.together(problem, lambda: layers.fill(target.state, target.initial))
    return layers


def load_checked(ranks: Ranks, store: Store, step: int, target: Target, *, sound: Collection[str]) -> Layers:
    """Fill the target from a checkpoint and see that every byte of it is as written.

    A rank checks what it reads whole as it reads it. What none has read whole, since the plan was another,
    is read once more afterwards, by all ranks together; but not the files of the manifests in `sound`.

    Raises:
        DamagedError: on all ranks: something is not as written; the target is spoilt.
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
    """What the stamps of a state are compared with."""
    found = {
        id(shard.stamps.intervals): shard.stamps.intervals
        for entry in state.values()
        for shard in entry.shards
        if shard.stamps is not None
    }
    return list(found.values())


def unusable(step: int) -> str:
    """What is told of a checkpoint of which it cannot be found out whether it is sound."""
    return f"the checkpoint of step {step} cannot be used"


def _unloadable(store: Store, step: int) -> str:
    return f"the checkpoint of step {step} in {store.uri} cannot be loaded"


def _open(ranks: Ranks, store: Store, step: int, sound: Collection[str]) -> Layers:
    """Read all manifests, and look at some of the files' sizes."""
    layers = Layers(store, catalogue.find_commit(store, step))
    unknown = [each for each in layers.commit.references if each.name not in sound]
    for reference in unknown[ranks.rank :: ranks.world_size]:
        check_size(store, reference)
    return layers


def _prepare(ranks: Ranks, problem: str, layers: Layers, target: Target) -> None:
    """Refuse what does not fit, and forget what was touched."""
    wanted = set(chain.from_iterable(ranks.gather(sorted(target.state))))
    ranks.together(problem, lambda: check_fits(layers, wanted, target.fingerprint))
    for intervals in intervals_of(target.state):
        intervals.begin()
