"""Watches objects through all that ends a watch: time, a lost connection, a sleep, a forgotten version.

Of what it has seen it keeps names and versions only, so a thousand pods watched for a week cost no more than
for a minute.
"""

from __future__ import annotations

import json
import random
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from cloudrec.kube.errors import ExpiredError, KubeError, OverloadedError, UnreachableError
from cloudrec.kube.wire import Request, Wire

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from cloudrec.kube.kinds import Kind

_SERVER_S = 240  # the server ends a watch after so long
_SILENT_S = 60.0  # bookmarks come about once a minute on real servers
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.2, 15.0
_GONE, _TOO_MANY, _SERVER = 410, 429, 500


@dataclass(frozen=True, kw_only=True)
class Event:
    """A change: ADDED, MODIFIED or DELETED, and the object after it.

    Of an object that went while nobody was listening only metadata is known.
    """

    type: str
    object: dict[str, Any]


class _Listing(Protocol):
    @property
    def items(self) -> list[dict[str, Any]]: ...

    @property
    def version(self) -> str: ...


def watch(
    wire: Wire,
    kind: Kind,
    *,
    namespace: str,
    query: Mapping[str, Any],
    listing: Callable[[], _Listing],
    timeout_s: float | None,
) -> Iterator[Event]:
    """Yield what there is and then each change; see `Kube.watch`."""
    watcher = _Watcher(wire, kind, namespace=namespace, query=query, listing=listing)
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    pause_s = _FIRST_PAUSE_S
    while deadline is None or time.monotonic() < deadline:
        try:
            for event in watcher.some(deadline):
                pause_s = _FIRST_PAUSE_S
                yield event
        except (UnreachableError, OverloadedError) as error:
            asked = error.wait_s if isinstance(error, OverloadedError) else None
            wait_s = pause_s * (1 + random.random()) if asked is None else asked  # noqa: S311 - jitter
            pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)
            if deadline is not None:
                wait_s = min(wait_s, max(deadline - time.monotonic(), 0.0))
            time.sleep(wait_s)


class _Watcher:
    """Knows up to where it has seen changes, and of what it has told."""

    def __init__(
        self,
        wire: Wire,
        kind: Kind,
        *,
        namespace: str,
        query: Mapping[str, Any],
        listing: Callable[[], _Listing],
    ) -> None:
        self._wire, self._kind, self._namespace, self._query = wire, kind, namespace, query
        self._listing = listing
        self._version = ""  # empty: a list is due
        self._told: dict[tuple[str, str], tuple[str, str]] = {}  # namespace and name: uid and version

    def some(self, deadline: float | None) -> Iterator[Event]:
        """Yield the changes of one list, or of one request of a watch."""
        if not self._version:
            yield from self._anew()
        else:
            try:
                yield from self._changes(deadline)
            except ExpiredError:
                self._version = ""
                time.sleep(_FIRST_PAUSE_S)  # a server that forgets at once is not asked all the time

    def _anew(self) -> Iterator[Event]:
        """List, and tell what is other than what was told of before."""
        found = self._listing()
        before = dict(self._told)
        for item in found.items:
            key, seen = _key(item), _seen(item)
            old = before.pop(key, None)
            if old is not None and old[0] != seen[0]:
                yield Event(type="DELETED", object=_shell(self._kind, key, old[0]))
                old = None
            self._told[key] = seen
            if old != seen:
                yield Event(type="ADDED" if old is None else "MODIFIED", object=item)
        for key, (uid, _) in before.items():
            del self._told[key]
            yield Event(type="DELETED", object=_shell(self._kind, key, uid))
        self._version = found.version

    def _changes(self, deadline: float | None) -> Iterator[Event]:
        left = _SERVER_S if deadline is None else max(min(_SERVER_S, int(deadline - time.monotonic()) + 1), 1)
        request = Request(
            method="GET",
            path=self._kind.path(namespace=self._namespace),
            what=f"watch {self._kind.plural}",
            query={
                **self._query,
                "watch": True,
                "allowWatchBookmarks": True,
                "resourceVersion": self._version,
                "timeoutSeconds": left,
            },
            read_s=min(_SILENT_S, left + 5.0),
        )
        with self._wire.stream(request) as lines:
            for line in lines:
                event = self._event(line)
                if event is not None:
                    yield event
                if deadline is not None and time.monotonic() >= deadline:
                    return

    def _event(self, line: bytes) -> Event | None:
        if not line.strip():
            return None
        try:
            told = json.loads(line)
        except ValueError as error:
            raise UnreachableError("a watch was cut off in the middle of a line", was_sent=True) from error
        kind, item = told.get("type"), told.get("object") or {}
        if kind == "ERROR":
            raise _failure(item)
        self._version = str(item["metadata"]["resourceVersion"])
        if kind == "BOOKMARK":
            return None
        key = _key(item)
        if kind == "DELETED":
            self._told.pop(key, None)
        else:
            self._told[key] = _seen(item)
        return Event(type=kind, object=item)


def _failure(status: Mapping[str, Any]) -> KubeError:
    code, said = int(status.get("code") or 0), str(status.get("message", ""))
    if code == _GONE:
        return ExpiredError(f"the watch was ended: {said}", status=code)
    if code == _TOO_MANY or code >= _SERVER:
        return OverloadedError(f"the watch was ended: {said}", status=code)
    return KubeError(f"the watch was ended: {said}", status=code)


def _key(item: Mapping[str, Any]) -> tuple[str, str]:
    metadata = item["metadata"]
    return str(metadata.get("namespace", "")), str(metadata["name"])


def _seen(item: Mapping[str, Any]) -> tuple[str, str]:
    metadata = item["metadata"]
    return str(metadata.get("uid", "")), str(metadata.get("resourceVersion", ""))


def _shell(kind: Kind, key: tuple[str, str], uid: str) -> dict[str, Any]:
    namespace, name = key
    place = {"namespace": namespace} if namespace else {}
    metadata = {"name": name, "uid": uid, **place}
    return {"apiVersion": kind.version, "kind": kind.name, "metadata": metadata}
