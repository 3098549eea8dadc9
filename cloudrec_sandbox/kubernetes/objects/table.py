"""Objects in memory, with the version of each change and a bounded history of changes for watches.

A stored object is never changed in place: a change stores a new object, so that readers need no copy, and the
JSON of a version is made once.
"""

from __future__ import annotations

import json
import marshal
import threading
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.kubernetes.objects import events

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cloudrec_sandbox.kubernetes.objects.resources import Resource

ADDED, MODIFIED, DELETED = "ADDED", "MODIFIED", "DELETED"
HISTORY = 20_000  # changes that watches can go back
_FIRST = 1000  # versions are opaque to clients, but 0 means "any version" in requests


def copied(obj: dict[str, Any]) -> dict[str, Any]:
    """Return a deep copy of JSON, several times faster than `copy.deepcopy`."""
    fresh: dict[str, Any] = marshal.loads(marshal.dumps(obj))  # noqa: S302 - its own bytes
    return fresh


class Entry:
    """One version of an object."""

    __slots__ = ("_tail", "key", "obj", "version")

    def __init__(self, key: str, obj: dict[str, Any], version: int) -> None:
        self.key = key
        self.obj = obj
        self.version = version
        self._tail: bytes | None = None

    def item(self, resource: Resource) -> bytes:
        """Return its JSON without kind and apiVersion, as lists of built-in kinds have it."""
        if resource.group == events.GROUP:
            return _json(events.from_core(self.obj))
        if self._tail is None:
            self._tail = _json(self.obj)
        return self._tail

    def whole(self, resource: Resource) -> bytes:
        """Return its JSON as `resource` serves it."""
        head = f'{{"kind":"{resource.kind}","apiVersion":"{resource.api_version}"'.encode()
        tail = self.item(resource)
        return head + b"}" if tail == b"{}" else head + b"," + tail[1:]


def _json(obj: dict[str, Any]) -> bytes:
    rest = {name: value for name, value in obj.items() if name not in ("kind", "apiVersion")}
    return json.dumps(rest, separators=(",", ":")).encode()


@dataclass(frozen=True, slots=True)
class Change:
    """One change; `before` is None for a new object, and `entry` is the last state of a deleted one."""

    version: int
    type: str
    entry: Entry
    before: Entry | None


Name = tuple[str, str]  # namespace ("" without) and name


class Table:
    """All objects. Everything is used under `lock`; `changed` is notified of each change."""

    def __init__(self, lock: threading.RLock) -> None:
        self.lock = lock
        self.changed = threading.Condition(lock)
        self.limit = HISTORY
        self.version = _FIRST
        self.changes: list[Change] = []
        self._entries: dict[str, dict[Name, Entry]] = defaultdict(dict)
        self._names: dict[str, tuple[str, Name]] = {}
        self._owned: dict[str, set[str]] = defaultdict(set)
        self._subscribers: list[Callable[[str, str, dict[str, Any]], None]] = []
        self._watchers: list[Callable[[str, Entry], None]] = []

    @property
    def oldest(self) -> int:
        """Return the oldest version from which a watch can start."""
        return self.changes[0].version - 1 if self.changes else self.version

    def since(self, version: int) -> list[Change]:
        """Return the changes after a version, which is not older than `oldest`."""
        return self.changes[version - self.oldest :] if self.changes else []

    def compact(self) -> None:
        """Forget the history."""
        self.changes.clear()

    def subscribe(self, callback: Callable[[str, str, dict[str, Any]], None]) -> None:
        """Call back with each change's type, the key of its kind, and a copy of the object, in order."""
        self._subscribers.append(callback)

    def watch_entries(self, callback: Callable[[str, Entry], None]) -> None:
        """Call back with each change's type and the stored entry, which must not be changed."""
        self._watchers.append(callback)

    def get(self, key: str, name: Name) -> Entry | None:
        """Return one object; None if there is none."""
        return self._entries[key].get(name)

    def all(self, key: str, namespace: str | None = None) -> list[Entry]:
        """Return all entries of a kind, by namespace and name; of one namespace if given."""
        entries = self._entries[key]
        names = entries if namespace is None else (name for name in entries if name[0] == namespace)
        return [entries[name] for name in sorted(names)]

    def by_uid(self, uid: str) -> Entry | None:
        """Return the object with a uid; None if there is none."""
        found = self._names.get(uid)
        return self.get(*found) if found else None

    def owned_by(self, uid: str) -> list[Entry]:
        """Return the objects that name an object among their owners."""
        return [entry for each in sorted(self._owned.get(uid, ())) if (entry := self.by_uid(each))]

    def keys(self) -> Iterator[str]:
        """Yield the kinds that have objects."""
        return (key for key, entries in list(self._entries.items()) if entries)

    def put(self, key: str, name: Name, obj: dict[str, Any]) -> Entry:
        """Store an object, with the next version."""
        before = self._entries[key].get(name)
        entry = self._stamped(key, obj)
        self._entries[key][name] = entry
        self._unlink(before)
        uid = obj["metadata"]["uid"]
        self._names[uid] = (key, name)
        for owner in obj["metadata"].get("ownerReferences") or ():
            self._owned[owner["uid"]].add(uid)
        self._notify(Change(entry.version, MODIFIED if before else ADDED, entry, before))
        return entry

    def remove(self, key: str, name: Name) -> Entry:
        """Remove an object; return its last state, with the version of its deletion."""
        before = self._entries[key].pop(name)
        self._unlink(before)
        entry = self._stamped(key, copied(before.obj))
        self._notify(Change(entry.version, DELETED, entry, before))
        return entry

    def _stamped(self, key: str, obj: dict[str, Any]) -> Entry:
        self.version += 1
        obj["metadata"]["resourceVersion"] = str(self.version)
        return Entry(key, obj, self.version)

    def _unlink(self, entry: Entry | None) -> None:
        if entry is None:
            return
        metadata = entry.obj["metadata"]
        self._names.pop(metadata["uid"], None)
        for owner in metadata.get("ownerReferences") or ():
            dependents = self._owned[owner["uid"]]
            dependents.discard(metadata["uid"])
            if not dependents:
                del self._owned[owner["uid"]]

    def _notify(self, change: Change) -> None:
        self.changes.append(change)
        if len(self.changes) > 2 * self.limit:
            # Trimmed by half, not one by one: each deletion at the start of a list moves the rest.
            del self.changes[: len(self.changes) - self.limit]
        for watcher in self._watchers:
            watcher(change.type, change.entry)
        for callback in self._subscribers:
            callback(change.type, change.entry.key, copied(change.entry.obj))
        self.changed.notify_all()
