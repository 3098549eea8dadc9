"""Watches: the changes of the selected objects, sent as they happen."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.core.http import BrokenStreamError, Reply
from cloudrec_sandbox.kubernetes.objects import errors, selectors
from cloudrec_sandbox.kubernetes.objects.table import ADDED, DELETED, MODIFIED

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cloudrec_sandbox.kubernetes.api.call import Call
    from cloudrec_sandbox.kubernetes.objects.resources import Resource
    from cloudrec_sandbox.kubernetes.objects.table import Change, Entry, Table

_LONGEST_S = 1800.0  # if the client sets no timeout
_LOOK_S = 1.0  # how often a watch without changes checks whether its client is still there
_BOOKMARK_S = 60.0
_INITIAL_END = {"annotations": {"k8s.io/initial-events-end": "true"}}
_JSON = (("Content-Type", "application/json"),)


@dataclass(kw_only=True)
class Interruption:
    """An order for all running watches: gone, close or drop; `number` distinguishes later orders."""

    how: str = ""
    number: int = 0

    def order(self, how: str) -> None:
        """Interrupt the watches that run now."""
        if how not in ("gone", "close", "drop"):
            raise ValueError(f"watches is {how!r}; it is gone, close or drop")
        self.how, self.number = how, self.number + 1


@dataclass(kw_only=True)
class _Watch:
    table: Table
    resource: Resource
    namespace: str | None
    test: selectors.Test
    interruption: Interruption
    ends: float
    bookmarks: bool
    version: int

    def events(self, initial: list[bytes]) -> Iterator[bytes]:
        # Read before anything is sent: a client that has the first line may order an interruption.
        number, next_bookmark = self.interruption.number, time.monotonic() + _BOOKMARK_S
        yield b"".join(initial)
        while (now := time.monotonic()) < self.ends:
            if self.interruption.number != number:
                yield from self._interrupted()
                return
            with self.table.changed:
                if self.table.version == self.version:
                    self.table.changed.wait(min(_LOOK_S, self.ends - now))
                pieces = self._pieces()
            if self.bookmarks and time.monotonic() > next_bookmark:
                next_bookmark = time.monotonic() + _BOOKMARK_S
                pieces.append(self.bookmark({}))
            yield b"".join(pieces)
        if self.bookmarks:
            yield self.bookmark({})

    def _interrupted(self) -> Iterator[bytes]:
        if self.interruption.how == "drop":
            raise BrokenStreamError
        if self.interruption.how == "gone":
            yield self.too_old()

    def _pieces(self) -> list[bytes]:
        # The history no longer reaches back to the client's version: it must list again.
        if self.version < self.table.oldest:
            self.ends = 0
            return [self.too_old()]
        changes = self.table.since(self.version)
        self.version = self.table.version
        return [piece for change in changes if (piece := self._piece(change))]

    def _piece(self, change: Change) -> bytes | None:
        entry = change.entry
        if entry.key != self.resource.key:
            return None
        if self.namespace is not None and entry.obj["metadata"].get("namespace") != self.namespace:
            return None
        # A changed object that stops matching the selector is DELETED for this watch, and one that begins to
        # match is ADDED: the client sees only the objects that it selected.
        was = change.before is not None and self.test(change.before.obj)
        is_ = change.type != DELETED and self.test(entry.obj)
        if was or is_:
            kind = MODIFIED if was and is_ else ADDED if is_ else DELETED
            return self.event(kind, entry)
        return None

    def event(self, kind: str, entry: Entry) -> bytes:
        return b'{"type":"%b","object":%b}\n' % (kind.encode(), entry.whole(self.resource))

    def bookmark(self, metadata: Mapping[str, Any]) -> bytes:
        obj = {
            "kind": self.resource.kind,
            "apiVersion": self.resource.api_version,
            "metadata": {"resourceVersion": str(self.version), "creationTimestamp": None, **metadata},
        }
        return json.dumps({"type": "BOOKMARK", "object": obj}).encode() + b"\n"

    def too_old(self) -> bytes:
        error = errors.expired(f"too old resource version: {self.version} ({self.table.oldest})")
        return json.dumps({"type": "ERROR", "object": error.document()}).encode() + b"\n"


def answer(call: Call) -> Reply:
    """Return a stream of events from a version on; without a version, first all objects, then changes."""
    table, query = call.store.table, call.query
    asked = query.get("resourceVersion", "")
    if asked and not asked.isdigit():
        raise errors.invalid(
            "", "", "", [errors.cause("resourceVersion", f'Invalid value: "{asked}": it is no version')]
        )
    watch = _Watch(
        table=table,
        resource=call.resource,
        namespace=call.target.namespace,
        test=_test(call),
        interruption=call.world.interruption,
        ends=time.monotonic() + float(query.get("timeoutSeconds") or _LONGEST_S),
        bookmarks=call.target.flag("allowWatchBookmarks"),
        version=int(asked or 0),
    )
    return Reply(headers=_JSON, stream=watch.events(_initial(call, watch)))


def _test(call: Call) -> selectors.Test:
    query = call.query
    fields = query.get("fieldSelector", "")
    if call.target.name:
        fields = f"metadata.name={call.target.name}"
    return selectors.test_of(call.resource, query.get("labelSelector", ""), fields)


def _initial(call: Call, watch: _Watch) -> list[bytes]:
    sends_all = call.target.flag("sendInitialEvents")
    # Without a version there is no point to start from, so the client first gets all objects as they are.
    if watch.version and not sends_all:
        return []
    entries = watch.table.all(call.resource.key, watch.namespace)
    events = [watch.event(ADDED, entry) for entry in entries if watch.test(entry.obj)]
    watch.version = watch.table.version
    return [*events, watch.bookmark(_INITIAL_END)] if sends_all else events
