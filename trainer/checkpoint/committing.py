"""The last part of a save, done by one process for all ranks: gather the manifests, commit, prune."""

from __future__ import annotations

import zlib
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Self

from trainer.checkpoint import catalogue
from trainer.checkpoint.commit import (
    Commit,
    DamagedError,
    Manifest,
    Part,
    Reference,
    SaveId,
    check_complete,
    commit_name,
    data_name,
    encode_commit,
    parse_manifest,
)
from trainer.checkpoint.owner import Ownership
from trainer.checkpoint.store import MissingError
from trainer.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from trainer.checkpoint.store import Store


@dataclass(frozen=True, slots=True)
class CommitPlan:
    """What will be committed, but for the new layer's manifests; can be sent as JSON."""

    step: int
    save: SaveId
    world_size: int
    base: str | None
    earlier: tuple[tuple[Reference, ...], ...]
    fingerprint: Mapping[str, Any]
    extra: Mapping[str, Any]
    keep: int
    keep_every: int
    damaged: tuple[int, ...]

    def to_json(self) -> dict[str, Any]:
        """For `from_json`."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Self:
        """What `to_json` was called on."""
        earlier = tuple(tuple(Reference(**each) for each in layer) for layer in values["earlier"])
        kept = {"save": SaveId(**values["save"]), "earlier": earlier, "damaged": tuple(values["damaged"])}
        return cls(**values | kept)


def commit_layer(store: Store, plan: CommitPlan, wait: Callable[[str], None]) -> Commit:
    """Commit what all ranks have written; `wait` is called while a manifest, named, is not there.

    Raises:
        FencedError: a newer run writes here.
        CheckpointError: the layer is not whole, or the step has another run's checkpoint.
    """
    references: list[Reference] = []
    parts: list[Part] = []
    for rank in range(plan.world_size):
        name = f"{plan.save.stem(plan.step, rank)}.json"
        reference, manifest = _gather(store, name, wait)
        references.append(reference)
        parts.extend(manifest.parts)
    check_complete(parts)
    commit = Commit(
        step=plan.step,
        owner=plan.save.owner,
        number=plan.save.number,
        world_size=plan.world_size,
        base=plan.base,
        layers=(*plan.earlier, tuple(references)),
        fingerprint=plan.fingerprint,
        extra=plan.extra,
    )
    ownership = Ownership(store, plan.save.owner)
    ownership.check()
    check_free(store, plan.step, plan.damaged)
    name = commit_name(plan.step, plan.save.owner)
    store.remove([name])  # of this run itself, and damaged: nobody else writes it
    store.create(name, encode_commit(commit))
    ownership.check()
    return commit


def prune_after(store: Store, plan: CommitPlan) -> None:
    """Remove what the new commit makes superfluous."""
    damaged = set(plan.damaged) - {plan.step}
    catalogue.prune(store, keep=plan.keep, keep_every=plan.keep_every, damaged=damaged, newest=plan.save)


def check_free(store: Store, step: int, damaged: tuple[int, ...]) -> None:
    """Refuse a step that has a checkpoint which counts and is not damaged."""
    try:
        found = catalogue.find_commit(store, step)
    except DamagedError:  # or there is none
        return
    if step not in damaged:
        raise CheckpointError(
            f"{store.uri}/{commit_name(step, found.owner)}: is there already, from a run that this one did "
            "not go on from; give another checkpoint_dir"
        )


def _gather(store: Store, name: str, wait: Callable[[str], None]) -> tuple[Reference, Manifest]:
    while True:
        try:
            data = store.read(name)
            break
        except MissingError:
            wait(name)
    manifest = parse_manifest(f"{store.uri}/{name}", data)
    size = store.sizes(data_name(name)).get(data_name(name))
    if size != manifest.bytes:
        raise CheckpointError(
            f"{store.uri}/{data_name(name)}: rank 0 finds {size} bytes, {manifest.bytes} were written; "
            "checkpoint_dir must be a folder that all nodes share"
        )
    return Reference(name, manifest.bytes, zlib.crc32(data)), manifest
