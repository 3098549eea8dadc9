"""Removes an add-on's objects: those of its kinds first, while its operator can still release them.

An object with a finalizer, a namespace and a kind's definition exist for a while after their deletion. A
removal waits for them, since an installation in the meantime would be refused. A namespace with objects of
others is kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudrec.errors import PreflightError, UsageError
from cloudrec.kubernetes.addons import inventory
from cloudrec.kubernetes.addons.inventory import DEFINITION, ObjectReference
from cloudrec.kubernetes.client.errors import AbsentError
from cloudrec.kubernetes.tenants import kept

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from cloudrec.engine.clock import Clock
    from cloudrec.kubernetes.addons.inventory import AddonRecord
    from cloudrec.kubernetes.client.client import Kube

_NAMESPACE = "Namespace"
GONE_S = 60.0  # limit for objects to exist after their deletion
_FIRST_POLL_S, _SLOWEST_POLL_S = 0.1, 2.0
_SHOWN = 4  # objects that a message names


def remove_objects(
    kube: Kube,
    record: AddonRecord,
    *,
    clock: Clock,
    report: Callable[[str], None],
    force: bool = False,
    wait_s: float = GONE_S,
) -> tuple[ObjectReference, ...]:
    """Delete an add-on's objects and wait until they are gone; return those that were deleted.

    Args:
        kube: the cluster.
        record: the add-on.
        clock: the clock for the wait.
        report: receives a line for each namespace that is kept.
        force: also delete the objects of others of its kinds.
        wait_s: the limit of each wait in seconds.

    Raises:
        PreflightError: other objects of its kinds exist, or an object is not gone in time.
    """
    users = list(_users(kube, record))
    if users and not force:
        raise PreflightError(
            f"{record.name} cannot be removed: its kinds are in use, by {_counted(users)}",
            remedy="delete these objects first, or delete them with it by --force",
        )
    groups = {each.name.partition(".")[2] for each in record.objects if each.kind == DEFINITION}
    last = tuple(reversed(record.objects))
    own = [each for each in last if each.kind != DEFINITION and each.version.partition("/")[0] in groups]
    for each in users:
        kube.delete(each.full_kind, each.name, namespace=each.namespace)
    gone = delete_all(kube, own, record.cluster)
    _await_gone(kube, record.name, (*users, *gone), clock, wait_s)
    spaces = [each for each in last if each.kind == _NAMESPACE]
    rest = delete_all(kube, [each for each in last if each not in (*own, *spaces)], record.cluster)
    _await_gone(kube, record.name, rest, clock, wait_s)
    emptied = delete_all(
        kube, [each for each in spaces if _is_free(kube, each, record, report)], record.cluster
    )
    _await_gone(kube, record.name, emptied, clock, wait_s)
    return (*gone, *rest, *emptied)


def _is_free(kube: Kube, space: ObjectReference, record: AddonRecord, report: Callable[[str], None]) -> bool:
    """Return whether a namespace of an add-on holds nothing of others; report why it is kept."""
    found = kube.get(space.full_kind, space.name)
    if found is None or not inventory.is_ours(found, record.cluster):
        return False
    if why := kept(kube, space.name, record.cluster):
        report(why)
    return not why


def delete_all(
    kube: Kube, references: Sequence[ObjectReference], cluster: str
) -> tuple[ObjectReference, ...]:
    """Delete the objects that have cloudrec's labels, in this order; return those that were deleted."""
    gone = []
    for each in references:
        try:
            found = kube.get(each.full_kind, each.name, namespace=each.namespace)
        except (UsageError, AbsentError):
            continue  # its kind is deleted, and all objects of that kind with it
        if found is None or not inventory.is_ours(found, cluster):
            continue
        if kube.delete(
            each.full_kind, each.name, namespace=each.namespace, uid=str(found["metadata"].get("uid", ""))
        ):
            gone.append(each)
    return tuple(gone)


def _await_gone(
    kube: Kube, name: str, references: Sequence[ObjectReference], clock: Clock, wait_s: float
) -> None:
    """Wait until deleted objects are gone; PreflightError with what they wait for."""
    deadline, poll_s = clock.now() + clock.limit(wait_s), _FIRST_POLL_S
    left = list(references)
    while True:
        is_late = clock.now() >= deadline
        left = [each for each in left if _ending(kube, each) is not None]
        if not left:
            return
        if is_late:
            break
        clock.sleep(poll_s)
        poll_s = min(2 * poll_s, _SLOWEST_POLL_S)
    shown = [_described(each, _ending(kube, each) or {}) for each in left[:_SHOWN]]
    more = f" and {len(left) - _SHOWN} more" if len(left) > _SHOWN else ""
    raise PreflightError(
        f"{name} is not removed yet: {'; '.join(shown)}{more}",
        remedy=f"`cloudrec addons remove {name}` continues; an object that keeps its finalizer waits for the "
        "controller which set it",
    )


def _ending(kube: Kube, reference: ObjectReference) -> Mapping[str, Any] | None:
    """Return a deleted object that still exists; None if it is gone, or was created again."""
    try:
        found = kube.get(reference.full_kind, reference.name, namespace=reference.namespace)
    except (UsageError, AbsentError):
        return None  # its kind is gone
    return found if found and found["metadata"].get("deletionTimestamp") else None


def _described(reference: ObjectReference, found: Mapping[str, Any]) -> str:
    where = f" in {reference.namespace}" if reference.namespace else ""
    kept = ", ".join((found.get("metadata") or {}).get("finalizers") or ())
    told = [
        each["message"]
        for each in (found.get("status") or {}).get("conditions") or ()
        if each.get("status") == "True" and each.get("type", "").startswith(("Terminating", "Namespace"))
    ]
    why = "; ".join(filter(None, [f"it keeps the finalizer {kept}" if kept else "", *told]))
    return f"{reference.kind} {reference.name}{where} is being deleted" + (f" ({why})" if why else "")


def _users(kube: Kube, record: AddonRecord) -> Iterator[ObjectReference]:
    """Yield the objects of an add-on's kinds that are not part of it."""
    for each in (each for each in record.objects if each.kind == DEFINITION):
        definition = kube.get(each.full_kind, each.name)
        if definition is None or not inventory.is_ours(definition, record.cluster):
            continue  # it is not deleted with the add-on
        if definition["metadata"].get("deletionTimestamp"):
            continue  # an earlier removal was decided
        spec = definition["spec"]
        version = next(row["name"] for row in spec["versions"] if row.get("storage"))
        kind = spec["names"]["kind"]
        for row in kube.list(f"{spec['group']}/{version}/{kind}"):
            given = row["metadata"]
            if (given.get("labels") or {}).get(inventory.ADDON) != record.name:
                yield ObjectReference(
                    version=f"{spec['group']}/{version}",
                    kind=kind,
                    namespace=given.get("namespace", ""),
                    name=given["name"],
                )


def _counted(users: Sequence[ObjectReference]) -> str:
    kinds = [each.kind for each in users]
    return ", ".join(f"{kinds.count(kind)} of {kind}" for kind in dict.fromkeys(kinds))
