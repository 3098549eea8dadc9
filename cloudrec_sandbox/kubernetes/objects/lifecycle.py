"""The rules that all kinds share: what a change may change, and what delays a deletion."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.kubernetes.objects import errors
from cloudrec_sandbox.kubernetes.objects.table import copied

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec_sandbox.kubernetes.objects.resources import Resource

# Lists that are stored as none when they are empty: protobuf has no empty lists. A change is judged before it
# is stored (pkg/registry/networking/networkpolicy/strategy.go, reflect.DeepEqual), so each apply of an empty
# list is a new generation.
_FORGOTTEN = {"networkpolicies": ("ingress", "egress")}

RESIZE = "resize"  # the subresource that changes the resources of a pod's containers
FOREGROUND, ORPHAN = "Foreground", "Orphan"
FOREGROUND_FINALIZER, ORPHAN_FINALIZER = "foregroundDeletion", "orphan"


def check_current(kind: Resource, metadata: Mapping[str, Any], old: Mapping[str, Any]) -> None:
    """Refuse a change from an old version, or for an object that has been replaced."""
    known, current = metadata.get("resourceVersion"), old["metadata"]["resourceVersion"]
    name = old["metadata"]["name"]
    # The same name can belong to a new object by now: a client that knows the old one must not change it.
    uid, right = metadata.get("uid"), old["metadata"]["uid"]
    if uid and uid != right:
        why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {right}"
        raise errors.conflict(kind.plural, kind.group, name, why)
    if known and not str(known).isdigit():
        raise errors.ApiError(500, "", f"invalid resource version: {known!r}")
    if known not in (None, "", current):
        raise errors.conflict(kind.plural, kind.group, name)


def check_preconditions(kind: Resource, old: Mapping[str, Any], wanted: Mapping[str, str]) -> None:
    """Refuse to delete an object that does not meet the preconditions."""
    for field, title in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
        asked, found = wanted.get(field), old["metadata"][field]
        if asked and asked != found:
            why = f"Precondition failed: {title} in precondition: {asked}, {title} in object meta: {found}"
            raise errors.conflict(kind.plural, kind.group, old["metadata"]["name"], why)


def place_of(obj: Mapping[str, Any]) -> tuple[str, str]:
    """Return namespace (empty without one) and name."""
    return obj["metadata"].get("namespace", ""), obj["metadata"]["name"]


def has_contents(kind: Resource) -> bool:
    """Return whether a deletion waits for the contents: a namespace's, a definition's."""
    return kind.key in ("namespaces", "customresourcedefinitions")


def mark_finalizers(metadata: dict[str, Any], propagation: str) -> None:
    """Add the finalizers of the propagation policy, which delay the deletion."""
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
    """Return what a change may change: only the status, a pod's resources, or all but the status."""
    if subresource == RESIZE:
        return {**copied(dict(old)), "spec": _resized(old["spec"], new.get("spec") or {})}
    if subresource == "status":
        return {**copied(dict(old)), **({"status": new["status"]} if "status" in new else {})}
    kept = {name: value for name, value in new.items() if name != "status" or not kind.has_status}
    if kind.has_status and "status" in old:
        kept["status"] = copied(old["status"])
    return kept


def _resized(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Return a pod's spec with another one's resources; all else is ignored (`podResizeStrategy`).

    Containers that were renamed or moved stay, so that the rules refuse them.
    """
    spec = copied(dict(old))
    if [each["name"] for each in spec["containers"]] != [
        each["name"] for each in new.get("containers") or ()
    ]:
        spec["containers"] = [copied(dict(each)) for each in new.get("containers") or ()]
    wanted = {
        each["name"]: each for field in ("containers", "initContainers") for each in new.get(field) or ()
    }
    for each in (*spec["containers"], *(spec.get("initContainers") or ())):
        for name in ("resources", "resizePolicy"):
            source = wanted.get(each["name"], each)
            if name in source:
                each[name] = copied(source[name])
            else:
                each.pop(name, None)
    return spec


def stamp_change(kind: Resource, old: Mapping[str, Any], new: dict[str, Any]) -> None:
    """Restore what no client may change; a changed spec is a new generation."""
    metadata, before = new["metadata"], old["metadata"]
    _check_ending(kind, metadata, before)
    # ObjectMeta in the API model: these are set by the server and read-only for clients.
    for name in ("name", "namespace", "uid", "creationTimestamp", "resourceVersion", "generation"):
        if name in before:
            metadata[name] = before[name]
    for name in ("deletionTimestamp", "deletionGracePeriodSeconds"):
        metadata.pop(name, None)
        if name in before:
            metadata[name] = before[name]
    # Only an explicitly empty list clears the owners; a write that leaves them out keeps them.
    kept = metadata.pop("managedFields", None)
    if kept not in ([], [{}]) and "managedFields" in before:
        metadata["managedFields"] = before["managedFields"]
    new |= {"apiVersion": kind.api_version, "kind": kind.kind}
    wishes = [
        {name: value for name, value in each.items() if name not in ("metadata", "status")}
        for each in (old, new)
    ]
    if kind.has_generation and wishes[0] != wishes[1]:
        metadata["generation"] = before.get("generation", 0) + 1


def forget_empty(kind: Resource, new: dict[str, Any]) -> None:
    """Drop the empty lists and maps that are not stored."""
    if kind.key in ("configmaps", "secrets"):
        for name in ("data", "binaryData"):
            if new.get(name) == {}:
                del new[name]
    for name in _FORGOTTEN.get(kind.key, ()):
        if new.get("spec", {}).get(name) == []:
            del new["spec"][name]


def _check_ending(kind: Resource, metadata: Mapping[str, Any], before: Mapping[str, Any]) -> None:
    """Refuse a time of deletion, and more finalizers after it (`ValidateObjectMetaAccessorUpdate`)."""
    name, causes = str(before["name"]), []
    if "deletionTimestamp" in metadata and metadata["deletionTimestamp"] != before.get("deletionTimestamp"):
        causes.append(errors.cause("metadata.deletionTimestamp", "Invalid value: field is immutable"))
    more = set(metadata.get("finalizers") or ()) - set(before.get("finalizers") or ())
    if "deletionTimestamp" in before and more:
        why = f"no new finalizers can be added if the object is being deleted, found {sorted(more)}"
        causes.append(errors.cause("metadata.finalizers", f"Forbidden: {why}", "FieldValueForbidden"))
    if causes:
        raise errors.invalid(kind.kind, kind.group, name, causes)
