"""What controllers and kubelets know of all objects, updated by the store's changes, found without copying.

The objects that it returns are the store's own and must not be changed.
"""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from cloudrec_sandbox.kubernetes.objects.table import Entry
    from cloudrec_sandbox.kubernetes.storage.store import Store

Object = dict[str, Any]
Key = tuple[str, str]  # namespace ("" without) and name


class Mirror:
    """All objects by kind, owner and node; read it under the store's lock."""

    def __init__(self, store: Store) -> None:
        self._objects: dict[str, dict[Key, Object]] = defaultdict(dict)
        self._owned: dict[str, dict[tuple[str, Key], Object]] = defaultdict(dict)
        self._on_node: dict[str, dict[Key, Object]] = defaultdict(dict)
        self._listeners: list[Callable[[str, str, Object], None]] = []
        with store.lock:
            store.table.watch_entries(self._on_entry)
            for kind in store.resources.stored():
                for obj in store.list(kind.key):
                    self._note("ADDED", kind.key, obj)

    def subscribe(self, callback: Callable[[str, str, Object], None]) -> None:
        """Call back with (ADDED, MODIFIED or DELETED; the plural; the object) once a change is in the mirror.

        It is called in the thread that made the change, and should only take a note.
        """
        self._listeners.append(callback)

    def get(self, resource: str, namespace: str, name: str) -> Object | None:
        """Return one object, or None."""
        return self._objects[resource].get((namespace, name))

    def all(self, resource: str, namespace: str | None = None) -> list[Object]:
        """Return all objects of a kind, or of a namespace."""
        found = self._objects[resource].items()
        return [obj for (place, _), obj in found if namespace is None or place == namespace]

    def owned(self, owner: Mapping[str, Any], resource: str) -> list[Object]:
        """Return the objects that an object controls."""
        found = self._owned.get(owner["metadata"]["uid"], {})
        return [obj for (kind, _), obj in found.items() if kind == resource]

    def count(self, uid: str) -> int:
        """Return how many objects an object controls."""
        return len(self._owned.get(uid, ()))

    def on_node(self, node: str) -> list[Object]:
        """Return the pods of a node."""
        return list(self._on_node.get(node, {}).values())

    def selected(self, namespace: str, selector: Mapping[str, str]) -> Iterator[Object]:
        """Yield the pods of a namespace that have all these labels."""
        for pod in self.all("pods", namespace):
            if selector.items() <= labels(pod).items():
                yield pod

    def _on_entry(self, event: str, entry: Entry) -> None:
        self._note(event, entry.key, entry.obj)
        for callback in self._listeners:
            callback(event, entry.key, entry.obj)

    def _note(self, event: str, resource: str, obj: Object) -> None:
        key = key_of(obj)
        old = self._objects[resource].pop(key, None)
        # Under the old object's owner and node, and under the new one's, since a change can move it.
        for each in filter(None, (old, obj)):
            self._forget(resource, key, each)
        if event == "DELETED":
            return
        self._objects[resource][key] = obj
        if owner := controller_of(obj):
            self._owned[owner["uid"]][resource, key] = obj
        if resource == "pods" and (node := obj["spec"].get("nodeName")):
            self._on_node[node][key] = obj

    def _forget(self, resource: str, key: Key, obj: Object) -> None:
        if owner := controller_of(obj):
            self._owned[owner["uid"]].pop((resource, key), None)
            if not self._owned[owner["uid"]]:
                del self._owned[owner["uid"]]
        if resource == "pods" and (node := obj["spec"].get("nodeName")):
            self._on_node[node].pop(key, None)


def key_of(obj: Mapping[str, Any]) -> Key:
    """Return namespace and name."""
    return obj["metadata"].get("namespace", ""), obj["metadata"]["name"]


def labels(obj: Mapping[str, Any]) -> Mapping[str, str]:
    """Return its labels."""
    found: Mapping[str, str] = obj["metadata"].get("labels") or {}
    return found


def controller_of(obj: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the owner that controls it; None if it has none."""
    for owner in obj["metadata"].get("ownerReferences") or ():
        if owner.get("controller"):
            found: Mapping[str, Any] = owner
            return found
    return None


def seconds(stamp: str) -> float:
    """Return a time as objects have it, in seconds since the epoch."""
    return datetime.fromisoformat(stamp).timestamp()


def is_ending(obj: Mapping[str, Any]) -> bool:
    """Return whether its deletion has begun."""
    return "deletionTimestamp" in obj["metadata"]


def phase(pod: Mapping[str, Any]) -> str:
    """Return the pod's phase."""
    return str(pod.get("status", {}).get("phase", "Pending"))


def is_over(pod: Mapping[str, Any]) -> bool:
    """Return whether the pod has ended."""
    return phase(pod) in ("Succeeded", "Failed")


def condition(obj: Mapping[str, Any], kind: str) -> Mapping[str, Any] | None:
    """Return one of the status's conditions; None if it has none."""
    for each in obj.get("status", {}).get("conditions") or ():
        if each["type"] == kind:
            found: Mapping[str, Any] = each
            return found
    return None


def is_true(obj: Mapping[str, Any], kind: str) -> bool:
    """Return whether a condition is true."""
    found = condition(obj, kind)
    return found is not None and found["status"] == "True"


def with_conditions(
    obj: Mapping[str, Any], wanted: Iterable[Mapping[str, Any]], moment: str, *, probed: bool = False
) -> list[dict[str, Any]]:
    """Return the conditions of `obj` with some set; the time is set for those that change.

    Args:
        obj: the object.
        wanted: type, status, perhaps reason and message of each to set.
        moment: the present time.
        probed: whether the conditions also have the time of the last check, as a Job's do.
    """
    conditions = [dict(each) for each in obj.get("status", {}).get("conditions") or ()]
    for wish in wanted:
        old = next((each for each in conditions if each["type"] == wish["type"]), None)
        if old is None:
            old = {"type": wish["type"]}
            conditions.append(old)
        if old.get("status") != wish["status"]:
            old["lastTransitionTime"] = moment
            if probed:
                old["lastProbeTime"] = moment
        for name in ("reason", "message"):
            old.pop(name, None)
        old.update(wish)
    return conditions
