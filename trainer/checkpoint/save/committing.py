"""The last part of a save, done by rank 0's process: gather the manifests of all ranks, commit, prune."""

from __future__ import annotations

import zlib
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Self

from trainer.base.errors import CheckpointError
from trainer.checkpoint.format import catalogue
from trainer.checkpoint.format.commit import (
    Commit,
    DamagedError,
    LayerManifest,
    ManifestReference,
    Part,
    SaveId,
    check_complete,
    commit_name,
    data_name,
    encode_commit,
    parse_manifest,
)
from trainer.checkpoint.store.base import MissingError
from trainer.checkpoint.store.owner import Ownership

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from trainer.checkpoint.store.base import Store


@dataclass(frozen=True, slots=True)
class CommitPlan:
    """The contents of a commit without the new layer's manifests; can be sent as JSON."""

    step: int
    save: SaveId
    world_size: int
    base: str | None
    earlier: tuple[tuple[ManifestReference, ...], ...]
    fingerprint: Mapping[str, Any]
    extra: Mapping[str, Any]
    keep: int
    keep_every: int
    damaged: tuple[int, ...]

    def to_json(self) -> dict[str, Any]:
        """Return JSON values for `from_json`."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Self:
        """Return the plan that `to_json` described."""
        earlier = tuple(tuple(ManifestReference(**each) for each in layer) for layer in values["earlier"])
        kept = {"save": SaveId(**values["save"]), "earlier": earlier, "damaged": tuple(values["damaged"])}
        return cls(**values | kept)


def commit_layer(store: Store, plan: CommitPlan, wait: Callable[[str], None]) -> Commit:
    """Commit the files of all ranks; calls `wait` with a manifest's name while that manifest does not exist.

    Raises:
        FencedError: a newer run has claimed the store.
        CheckpointError: the layer is incomplete, or the step has another run's checkpoint.
    """
    references: list[ManifestReference] = []
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
    # Only this run writes this name, so an object here is its own damaged commit.
    store.remove([name])
    store.create(name, encode_commit(commit))
    # A run that claimed the store before the commit existed may not have seen it: then it does not count.
    ownership.check()
    return commit


def prune_after(store: Store, plan: CommitPlan) -> catalogue.Fallback | None:
    """Remove the checkpoints that the new commit replaces; return its fallback, None if not known."""
    # The step's own damaged checkpoint was replaced by this commit.
    damaged = set(plan.damaged) - {plan.step}
    return catalogue.prune(
        store, keep=plan.keep, keep_every=plan.keep_every, damaged=damaged, newest=plan.save
    )


def check_free(store: Store, step: int, damaged: tuple[int, ...]) -> None:
    """Refuse a step that already has an undamaged checkpoint that counts."""
    try:
        found = catalogue.find_commit(store, step)
    except DamagedError:  # or there is none
        return
    if step not in damaged:
        raise CheckpointError(
            f"{store.uri}/{commit_name(step, found.owner)}: is there already, from a run that this one did "
            "not resume from; give another checkpoint_dir"
        )


def _gather(store: Store, name: str, wait: Callable[[str], None]) -> tuple[ManifestReference, LayerManifest]:
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
    return ManifestReference(name, manifest.bytes, zlib.crc32(data)), manifest
