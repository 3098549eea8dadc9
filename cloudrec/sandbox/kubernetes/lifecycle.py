"""The rules that all kinds share: what a change may change, what holds up an end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudrec.sandbox.kubernetes import errors
from cloudrec.sandbox.kubernetes.table import copied

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec.sandbox.kubernetes.resources import Resource

FOREGROUND, ORPHAN = "Foreground", "Orphan"
FOREGROUND_FINALIZER, ORPHAN_FINALIZER = "foregroundDeletion", "orphan"


def check_current(kind: Resource, metadata: Mapping[str, Any], old: Mapping[str, Any]) -> None:
    """Refuse a change that was made from an old version, or for an object that is another by now."""
    known, current = metadata.get("resourceVersion"), old["metadata"]["resourceVersion"]
    name = old["metadata"]["name"]
    uid, right = metadata.get("uid"), old["metadata"]["uid"]
    if uid and uid != right:
        why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {right}"
        raise errors.conflict(kind.plural, kind.group, name, why)
    if known not in (None, "", current):
        raise errors.conflict(kind.plural, kind.group, name)


def check_preconditions(kind: Resource, old: Mapping[str, Any], wanted: Mapping[str, str]) -> None:
    """Refuse to delete what is not what was meant."""
    for field, title in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
        asked, found = wanted.get(field), old["metadata"][field]
        if asked and asked != found:
            why = f"Precondition failed: {title} in precondition: {asked}, {title} in object meta: {found}"
            raise errors.conflict(kind.plural, kind.group, old["metadata"]["name"], why)


def place_of(obj: Mapping[str, Any]) -> tuple[str, str]:
    """Namespace (empty without one) and name."""
    return obj["metadata"].get("namespace", ""), obj["metadata"]["name"]


def has_contents(kind: Resource) -> bool:
    """Whether its end waits for what is in it: a namespace's, a definition's."""
    return kind.key in ("namespaces", "customresourcedefinitions")


def mark_finalizers(metadata: dict[str, Any], propagation: str) -> None:
    """Have the end wait for what it owns, as the propagation policy asks."""
    marks = {FOREGROUND: FOREGROUND_FINALIZER, ORPHAN: ORPHAN_FINALIZER}
    kept = [each for each in metadata.get("finalizers") or () if each not in marks.values()]
    if propagation in marks:
        kept.append(marks[propagation])
    metadata.pop("finalizers", None)
    if kept:
        metadata["finalizers"] = kept


def separated(
    kind: Resource, old: Mapping[str, Any], new: Mapping[str, Any], subresource: str
) -> dict[str, Any]:
    """What a change may change: a status on its own, or all else."""
    if subresource == "status":
        return {**copied(dict(old)), **({"status": new["status"]} if "status" in new else {})}
    kept = {name: value for name, value in new.items() if name != "status" or not kind.has_status}
    if kind.has_status and "status" in old:
        kept["status"] = copied(old["status"])
    return kept


def stamp_change(kind: Resource, old: Mapping[str, Any], new: dict[str, Any]) -> None:
    """What no client changes stays; a change of what is wished is a generation."""
    metadata, before = new["metadata"], old["metadata"]
    for name in ("name", "namespace", "uid", "creationTimestamp", "resourceVersion", "generation"):
        if name in before:
            metadata[name] = before[name]
    for name in ("deletionTimestamp", "deletionGracePeriodSeconds"):
        metadata.pop(name, None)
        if name in before:
            metadata[name] = before[name]
    kept = metadata.pop("managedFields", None)
    if kept != [] and "managedFields" in before:
        metadata["managedFields"] = before["managedFields"]
    new |= {"apiVersion": kind.api_version, "kind": kind.kind}
    wishes = [
        {name: value for name, value in each.items() if name not in ("metadata", "status")}
        for each in (old, new)
    ]
    if kind.has_generation and wishes[0] != wishes[1]:
        metadata["generation"] = before.get("generation", 0) + 1
