"""Applies an add-on's objects in order, and deletes them again; objects of other owners are not changed."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from cloudrec.errors import PreflightError, UsageError
from cloudrec.kubernetes.addons import inventory
from cloudrec.kubernetes.addons.inventory import DEFINITION, ObjectReference, reference_to
from cloudrec.kubernetes.addons.readiness import waiting
from cloudrec.kubernetes.addons.removal import delete_all
from cloudrec.kubernetes.client.errors import AbsentError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from cloudrec.engine.clock import Clock
    from cloudrec.kubernetes.addons.inventory import AddonRecord
    from cloudrec.kubernetes.client.client import Kube

_DEFINED_S = 60.0  # limit for the server to accept new kinds
# Namespaces and definitions come first, since other objects need them; objects of the kinds that the add-on
# defines come last.
_FIRST = {"Namespace": 0, DEFINITION: 1}
_REST, _LAST = 2, 3


@dataclass(frozen=True, kw_only=True)
class Applied:
    """The result of an installation.

    Attributes:
        record: its record in the inventory.
        removed: objects of the earlier version that were deleted.
    """

    record: AddonRecord
    removed: tuple[ObjectReference, ...]


def apply_all(
    kube: Kube,
    record: AddonRecord,
    objects: Iterable[Mapping[str, Any]],
    *,
    clock: Clock,
    force: bool = False,
) -> Applied:
    """Apply an add-on's objects, and delete the objects that only its earlier version had.

    Args:
        kube: the cluster.
        record: the record for the inventory, without the objects.
        objects: the objects to apply.
        clock: the clock for the wait until new kinds are accepted.
        force: take over objects of other owners.

    Raises:
        PreflightError: an object of that name has another owner, or a new kind is not accepted in time.
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
    # Before the first change: if this process is killed, the inventory still names every object.
    inventory.write(kube, replace(record, objects=inventory.together(references, old), is_whole=False))
    defined = [each for each in references if each.kind == DEFINITION]
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


def _labelled(manifest: Mapping[str, Any], labels: Mapping[str, str]) -> dict[str, Any]:
    made: dict[str, Any] = copy.deepcopy(dict(manifest))
    made.pop("status", None)
    metadata = made["metadata"]
    metadata["labels"] = {**(metadata.get("labels") or {}), **labels}
    metadata.pop("creationTimestamp", None)
    return made


def _ordered(objects: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    listed = list(objects)
    own = tuple(each["spec"]["group"] for each in listed if each["kind"] == DEFINITION)
    return sorted(listed, key=lambda each: _rank(each, own))


def _rank(manifest: Mapping[str, Any], own_groups: Sequence[str]) -> int:
    if manifest["apiVersion"].partition("/")[0] in own_groups and manifest["kind"] != DEFINITION:
        return _LAST
    return _FIRST.get(manifest["kind"], _REST)


def _is_anothers_place(kube: Kube, manifest: Mapping[str, Any], record: AddonRecord) -> bool:
    """Return whether an object is another owner's namespace, which is used but not changed or deleted."""
    if manifest["kind"] != "Namespace":
        return False
    found = kube.live(manifest)
    return found is not None and not inventory.is_ours(found, record.cluster)


def _check_owners(kube: Kube, wanted: Iterable[Mapping[str, Any]], record: AddonRecord) -> None:
    """Raise PreflightError if an object exists and has another owner; called before the first change."""
    for manifest in wanted:
        try:
            found = kube.live(manifest)
        except (UsageError, AbsentError):
            continue  # its kind comes with the add-on
        if found is not None and not inventory.is_ours(found, record.cluster):
            reference = reference_to(manifest)
            where = f" in {reference.namespace}" if reference.namespace else ""
            raise PreflightError(
                f"{record.name}: {reference.kind} {reference.name}{where} exists already, and was not made "
                f"by cloudrec for the cluster {record.cluster!r}",
                remedy="leave it to its owner, or let cloudrec take it over with --force",
            )
