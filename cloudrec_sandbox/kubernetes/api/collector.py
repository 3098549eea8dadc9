"""Garbage collection: dependents end with their owners, contents with namespaces, objects with their kind.

It runs after the deletion, in its own thread, as in a real cluster: a client that deletes something must poll
until it is gone.
"""

from __future__ import annotations

import queue
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.kubernetes.objects.errors import ApiError
from cloudrec_sandbox.kubernetes.objects.lifecycle import FOREGROUND_FINALIZER, ORPHAN_FINALIZER, place_of
from cloudrec_sandbox.kubernetes.objects.table import DELETED, Entry, copied

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec_sandbox.kubernetes.api.world import Cluster

_PAUSE_S = 0.05
_NAMESPACES, _DEFINITIONS = "namespaces", "customresourcedefinitions"


class Collector:
    """Checks after each change what has to be deleted now."""

    def __init__(self, world: Cluster) -> None:
        self._world = world
        self._store = store = world.store
        self._queue: queue.SimpleQueue[tuple[str, str, dict[str, Any]] | None] = queue.SimpleQueue()
        store.table.watch_entries(self._note)
        self._thread = threading.Thread(target=self._run, name="collector", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop its thread."""
        self._queue.put(None)
        self._thread.join()

    def _note(self, type_: str, entry: Entry) -> None:
        metadata = entry.obj["metadata"]
        if type_ == DELETED or "deletionTimestamp" in metadata or "ownerReferences" in metadata:
            self._queue.put((type_, entry.key, entry.obj))

    def _run(self) -> None:
        while True:
            try:
                change = self._queue.get(timeout=_PAUSE_S)
            except queue.Empty:
                self._settle()
                continue
            if change is None:
                return
            with self._store.lock, suppress(ApiError):
                self._look(*change)
            self._settle()

    def _settle(self) -> None:
        """Run the steps of the agenda that are due, even if no client calls."""
        with self._store.lock:
            self._world.settle()

    def _look(self, type_: str, key: str, obj: dict[str, Any]) -> None:
        metadata = obj["metadata"]
        if type_ == DELETED:
            self._collect_dependents(metadata["uid"])
            self._look_at_owners(metadata)
            self._look_at_holders(key, metadata)
            return
        entry = self._store.table.get(key, place_of(obj))
        # The change is old by now: another object may have its name.
        if entry is None or entry.obj["metadata"]["uid"] != metadata["uid"]:
            return
        if "deletionTimestamp" in entry.obj["metadata"]:
            self._continue_ending(entry)
        elif "ownerReferences" in entry.obj["metadata"]:
            self._collect(entry)

    def _collect_dependents(self, uid: str) -> None:
        for entry in self._store.table.owned_by(uid):
            with suppress(ApiError):
                self._collect(entry)

    def _collect(self, entry: Entry) -> None:
        """Delete an object if none of its owners exists any more."""
        references = entry.obj["metadata"].get("ownerReferences") or ()
        owners = [self._store.table.by_uid(each["uid"]) for each in references]
        if references and not any(owners):
            self._delete(entry)

    def _continue_ending(self, entry: Entry) -> None:
        finalizers = entry.obj["metadata"].get("finalizers") or ()
        if entry.key == _NAMESPACES:
            self._empty_namespace(entry)
        elif entry.key == _DEFINITIONS:
            self._empty_definition(entry)
        elif ORPHAN_FINALIZER in finalizers:
            for dependent in self._store.table.owned_by(entry.obj["metadata"]["uid"]):
                self._disown(dependent, entry.obj["metadata"]["uid"])
            self._drop_finalizer(entry, ORPHAN_FINALIZER)
        elif FOREGROUND_FINALIZER in finalizers:
            self._end_foreground(entry)

    def _end_foreground(self, entry: Entry) -> None:
        uid = entry.obj["metadata"]["uid"]
        for dependent in self._store.table.owned_by(uid):
            if "deletionTimestamp" not in dependent.obj["metadata"]:
                self._delete(dependent)
        # Only dependents with blockOwnerDeletion delay their owner's end.
        blocking = [
            each
            for dependent in self._store.table.owned_by(uid)
            for each in dependent.obj["metadata"]["ownerReferences"]
            if each["uid"] == uid and each.get("blockOwnerDeletion")
        ]
        if not blocking:
            self._drop_finalizer(entry, FOREGROUND_FINALIZER)

    def _look_at_owners(self, metadata: Mapping[str, Any]) -> None:
        """Check the owners, which may have waited for this object's end."""
        for reference in metadata.get("ownerReferences") or ():
            owner = self._store.table.by_uid(reference["uid"])
            if owner is not None and "deletionTimestamp" in owner.obj["metadata"]:
                self._continue_ending(owner)

    def _look_at_holders(self, key: str, metadata: Mapping[str, Any]) -> None:
        """Check the namespace or the definition, which may have waited for this object's end."""
        namespace = self._store.table.get(_NAMESPACES, ("", metadata.get("namespace", "")))
        if namespace is not None and "deletionTimestamp" in namespace.obj["metadata"]:
            self._empty_namespace(namespace)
        for definition in self._store.table.all(_DEFINITIONS):
            if "deletionTimestamp" in definition.obj["metadata"] and key == self._kind_of(definition):
                self._empty_definition(definition)

    def _empty_namespace(self, entry: Entry) -> None:
        name = entry.obj["metadata"]["name"]
        contents = [
            each for key in list(self._store.table.keys()) for each in self._store.table.all(key, name)
        ]
        if self._end_all(contents):
            self._store.table.remove(_NAMESPACES, ("", name))

    def _empty_definition(self, entry: Entry) -> None:
        if self._end_all(self._store.table.all(self._kind_of(entry))):
            self._store.table.remove(_DEFINITIONS, place_of(entry.obj))

    def _end_all(self, entries: list[Entry]) -> bool:
        """Delete those whose deletion has not begun; return whether none is left."""
        for entry in entries:
            if "deletionTimestamp" not in entry.obj["metadata"]:
                self._delete(entry)
        return not any(self._store.table.get(entry.key, place_of(entry.obj)) for entry in entries)

    def _delete(self, entry: Entry) -> None:
        namespace, name = place_of(entry.obj)
        self._store.delete(entry.key, namespace, name)

    def _disown(self, entry: Entry, uid: str) -> None:
        obj = copied(entry.obj)
        left = [each for each in obj["metadata"]["ownerReferences"] if each["uid"] != uid]
        obj["metadata"].pop("ownerReferences")
        if left:
            obj["metadata"]["ownerReferences"] = left
        self._store.table.put(entry.key, place_of(obj), obj)

    def _drop_finalizer(self, entry: Entry, name: str) -> None:
        obj = copied(entry.obj)
        obj["metadata"]["finalizers"] = [each for each in obj["metadata"]["finalizers"] if each != name]
        self._store.update(entry.key, obj)

    def _kind_of(self, definition: Entry) -> str:
        """Return the key of the kind that a definition defines; empty while it is not served."""
        spec = definition.obj["spec"]
        wanted = (spec["group"], spec["names"]["plural"])
        served = self._store.resources.served()
        return next((each.key for each in served if (each.group, each.plural) == wanted), "")
