"""How an add-on's objects get into a cluster and out of it again: ours alone, in order, none forgotten."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from cloudrec.cluster import inventory
from cloudrec.cluster.inventory import Reference, reference_to
from cloudrec.cluster.readiness import waiting
from cloudrec.errors import PreflightError, UsageError
from cloudrec.kube.errors import AbsentError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from cloudrec.cluster.inventory import Record
    from cloudrec.engine.clock import Clock
    from cloudrec.kube.client import Kube

_DEFINITION = "CustomResourceDefinition"
_DEFINED_S = 60.0
# What others need comes first; objects of kinds that the add-on itself defines come last.
_FIRST = {"Namespace": 0, _DEFINITION: 1}
_REST, _LAST = 2, 3


@dataclass(frozen=True, kw_only=True)
class Applied:
    """What an installation did.

    Attributes:
        record: what is kept of it.
        removed: objects of the version before it that are gone now.
    """

    record: Record
    removed: tuple[Reference, ...]


def apply_all(
    kube: Kube, record: Record, objects: Iterable[Mapping[str, Any]], *, clock: Clock, force: bool = False
) -> Applied:
    """Make a cluster have an add-on's objects, and no others of an older version of it.

    Args:
        kube: the cluster.
        record: what is to be kept, but for the objects.
        objects: what is applied.
        clock: by which is waited until kinds are defined.
        force: take over objects that somebody else has made.

    Raises:
        PreflightError: an object of that name is somebody else's.
    """
    labels = inventory.labels_of(record.name, record.cluster, record.owner)
    wanted = [
        _labelled(each, labels) for each in _ordered(objects) if not _is_anothers_place(kube, each, record)
    ]
    references = tuple(reference_to(each) for each in wanted)
    before = inventory.read(kube, record.name)
    old = before.objects if before else ()
    if not force:
        _check_owners(kube, wanted, record)
    inventory.write(kube, replace(record, objects=inventory.together(references, old), is_whole=False))
    defined = [each for each in references if each.kind == _DEFINITION]
    for manifest in (each for each in wanted if _rank(each, ()) < _REST):
        kube.apply(manifest, force=True)
    if late := waiting(kube, defined, clock, _DEFINED_S):
        raise PreflightError(f"{record.name}: {late[0].what}: {late[0].found}")
    for manifest in (each for each in wanted if _rank(each, ()) >= _REST):
        kube.apply(manifest, force=True)
    removed = delete_all(kube, [each for each in reversed(old) if each not in references], record.cluster)
    whole = replace(record, objects=references, is_whole=True)
    inventory.write(kube, whole)
    return Applied(record=whole, removed=removed)


def delete_all(kube: Kube, references: Sequence[Reference], cluster: str) -> tuple[Reference, ...]:
    """Delete objects that still bear our label, in this order, and return those that were there."""
    gone = []
    for each in references:
        try:
            found = kube.get(each.full_kind, each.name, namespace=each.namespace)
        except (UsageError, AbsentError):
            continue  # its kind is gone, and with it all objects of it
        if found is None or not inventory.is_ours(found, cluster):
            continue
        if kube.delete(
            each.full_kind, each.name, namespace=each.namespace, uid=str(found["metadata"].get("uid", ""))
        ):
            gone.append(each)
    return tuple(gone)


def used_kinds(kube: Kube, record: Record) -> list[str]:
    """Return how many objects there are of which kinds that an add-on defines, but for its own."""
    found = []
    for each in (each for each in record.objects if each.kind == _DEFINITION):
        definition = kube.get(each.full_kind, each.name)
        if definition is None or not inventory.is_ours(definition, record.cluster):
            continue
        spec = definition["spec"]
        version = next(row["name"] for row in spec["versions"] if row.get("storage"))
        kind = f"{spec['group']}/{version}/{spec['names']['kind']}"
        others = [
            row
            for row in kube.list(kind)
            if (row["metadata"].get("labels") or {}).get(inventory.ADDON) != record.name
        ]
        if others:
            found.append(f"{len(others)} of {spec['names']['kind']}")
    return found


def _labelled(manifest: Mapping[str, Any], labels: Mapping[str, str]) -> dict[str, Any]:
    made: dict[str, Any] = copy.deepcopy(dict(manifest))
    made.pop("status", None)
    metadata = made["metadata"]
    metadata["labels"] = {**(metadata.get("labels") or {}), **labels}
    metadata.pop("creationTimestamp", None)
    return made


def _ordered(objects: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    listed = list(objects)
    own = tuple(each["spec"]["group"] for each in listed if each["kind"] == _DEFINITION)
    return sorted(listed, key=lambda each: _rank(each, own))


def _rank(manifest: Mapping[str, Any], own_groups: Sequence[str]) -> int:
    if manifest["apiVersion"].partition("/")[0] in own_groups and manifest["kind"] != _DEFINITION:
        return _LAST
    return _FIRST.get(manifest["kind"], _REST)


def _is_anothers_place(kube: Kube, manifest: Mapping[str, Any], record: Record) -> bool:
    """Tell whether it is a namespace that somebody else has made: it is used, never changed nor removed."""
    if manifest["kind"] != "Namespace":
        return False
    found = kube.live(manifest)
    return found is not None and not inventory.is_ours(found, record.cluster)


def _check_owners(kube: Kube, wanted: Iterable[Mapping[str, Any]], record: Record) -> None:
    """Refuse to take over what somebody else has made, before anything is changed."""
    for manifest in wanted:
        try:
            found = kube.live(manifest)
        except (UsageError, AbsentError):
            continue  # its kind comes with the add-on
        if found is not None and not inventory.is_ours(found, record.cluster):
            reference = reference_to(manifest)
            where = f" in {reference.namespace}" if reference.namespace else ""
            raise PreflightError(
                f"{record.name}: {reference.kind} {reference.name}{where} is there already, and was not made "
                f"by cloudrec for the cluster {record.cluster!r}",
                remedy="leave it to whoever made it, or let cloudrec take it over with --force",
            )
