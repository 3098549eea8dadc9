"""What a published version says of its checkpoint, so that the next one knows what changed since."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudrec_contract.objectstore.base import is_name
from trainer.checkpoint.format.commit import ManifestReference

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainer.checkpoint.format.commit import Commit

    Layer = tuple[ManifestReference, ...]


def describe(uri: str, commit: Commit) -> dict[str, Any]:
    """Return the `source` of a version: where its checkpoint is, whose it is, and its layers."""
    return {
        "checkpoint": uri,
        "step": commit.step,
        "owner": commit.owner,
        "number": commit.number,
        "base": commit.base,
        "layers": [[[each.name, each.bytes, each.crc32] for each in layer] for layer in commit.layers],
    }


def is_of(source: Mapping[str, Any], commit: Commit) -> bool:
    """Whether a version was made from this checkpoint: its layers' names and checksums are equal."""
    return source.get("step") == commit.step and _layers(source) == commit.layers


def shared_layers(source: Mapping[str, Any], commit: Commit) -> int | None:
    """Return how many layers two checkpoints share from the base on; None if the base itself differs.

    The initial state is a base without a layer: with it, two checkpoints may share none.
    """
    if source.get("base") != commit.base:
        return None
    before = _layers(source)
    if not before:
        return None  # what it published is not known
    pairs = zip(before, commit.layers, strict=False)
    count = next((number for number, (mine, other) in enumerate(pairs) if mine != other), None)
    shared = min(len(before), len(commit.layers)) if count is None else count
    return None if commit.base is None and not shared else shared


def layers_above(source: Mapping[str, Any], shared: int) -> tuple[Layer, ...]:
    """Return the layers of a version's checkpoint without the first ones."""
    return _layers(source)[shared:]


def _layers(source: Mapping[str, Any]) -> tuple[Layer, ...]:
    try:
        return tuple(
            tuple(ManifestReference(_name(name), int(size), int(crc32)) for name, size, crc32 in layer)
            for layer in source["layers"]
        )
    except (KeyError, TypeError, ValueError, OverflowError):
        return ()  # of something else: nothing is shared


def _name(value: object) -> str:
    """Return a name that a version gives, if it is one of a checkpoint's; ValueError otherwise."""
    if not isinstance(value, str) or not is_name(value):
        raise ValueError(f"{value!r} is no name of an object")
    return value
