"""The base of all controllers: one kind, whose objects come a step closer to their spec at each look."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

from cloudrec_sandbox.kubernetes.objects.errors import ApiError
from cloudrec_sandbox.kubernetes.storage.mirror import controller_of, key_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from cloudrec_sandbox.kubernetes.storage.cluster import Cluster, Worker
    from cloudrec_sandbox.kubernetes.storage.mirror import Key, Object


_AGAIN_S = 10.0  # after a refusal
_FEW = 30  # owned objects whose changes are handled at once
_GATHER_S = 0.5  # real seconds; the Job controller of Kubernetes waits one second


class Controller(ABC):
    """Controls the objects of one kind.

    `look` is called under the store's lock after each change of an object or of what it owns. If it
    cannot finish now, it orders another look.
    """

    resource: ClassVar[str]
    kind: ClassVar[str]
    source: ClassVar[str]

    def __init__(self, cluster: Cluster, worker: Worker) -> None:
        self.cluster = cluster
        self.worker = worker
        cluster.mirror.subscribe(self._note)

    @abstractmethod
    def look(self, obj: Object) -> None:
        """Bring an object a step closer to its spec; it belongs to the mirror and must not be changed."""

    def gone(self, key: Key) -> None:  # noqa: B027 - most controllers do nothing then
        """Clean up after an object that is gone."""

    def concerned(self, _resource: str, _obj: Object) -> Iterable[Key]:
        """Return the objects of this kind, besides the owner, that a change of another object affects."""
        return ()

    def look_at(self, key: Key) -> None:
        """Look at an object, by its key."""
        self.worker.soon((self.resource, key), lambda: self._look(key))

    def gather(self, key: Key, count: int) -> None:
        """Look at an object that owns `count` others: with many, changes are gathered for a moment first."""
        if count < _FEW:
            self.look_at(key)
        else:
            self.worker.gather(_GATHER_S, (self.resource, key), lambda: self._look(key))

    def look_later(self, obj: Mapping[str, Any], seconds: float) -> None:
        """Look again after `seconds` of virtual time."""
        key = key_of(obj)
        self.worker.later(seconds, (self.resource, key), lambda: self._look(key))

    def record(self, obj: Mapping[str, Any], reason: str, message: str, *, warning: bool = False) -> None:
        """Record an event."""
        self.cluster.event(obj, reason, message, source=self.source, warning=warning)

    def make(self, owner: Mapping[str, Any], resource: str, obj: dict[str, Any]) -> Object | None:
        """Create an object with a controller; return None if it is refused, after recording that."""
        obj["metadata"]["namespace"] = owner["metadata"]["namespace"]
        obj["metadata"]["ownerReferences"] = [reference(owner)]
        try:
            return self.cluster.store.create(resource, obj)
        except ApiError as error:
            # AlreadyExists: an older object of this name is still ending, and its end leads to the next look.
            if error.reason != "AlreadyExists":
                self.record(owner, "FailedCreate", f"Error creating: {error.message}", warning=True)
                self.look_later(owner, _AGAIN_S)
            return None

    def remove(self, resource: str, obj: Mapping[str, Any], grace_s: int | None = None) -> None:
        """Delete an object, unless its deletion is in progress."""
        if "deletionTimestamp" not in obj["metadata"]:
            space, name = key_of(obj)
            self.cluster.attempt(lambda: self.cluster.store.delete(resource, space, name, grace_s))

    def _note(self, _event: str, resource: str, obj: Object) -> None:
        if resource == self.resource:
            self.look_at(key_of(obj))
            return
        owner = controller_of(obj)
        if owner is not None and owner["kind"] == self.kind:
            count = self.cluster.mirror.count(owner["uid"])
            self.gather((obj["metadata"].get("namespace", ""), owner["name"]), count)
        for key in self.concerned(resource, obj):
            self.look_at(key)

    def _look(self, key: Key) -> None:
        with self.cluster.store.lock:
            obj = self.cluster.mirror.get(self.resource, *key)
            if obj is None:
                self.gone(key)
            else:
                self.look(obj)


def reference(owner: Mapping[str, Any]) -> dict[str, Any]:
    """Return an ownerReference to a controlling object."""
    metadata = owner["metadata"]
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
