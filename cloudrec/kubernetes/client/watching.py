"""Watches objects without a gap: it starts the watch again after a time-out, a lost connection or a 410.

It keeps only the names and versions of the objects, so the memory that it needs does not grow with time.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from cloudrec.kubernetes.client.errors import ApiUnreachableError, ExpiredError, KubeError, OverloadedError
from cloudrec.kubernetes.client.wire import ApiRequest, Wire
from cloudrec_contract.safe_json import safe_object

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from cloudrec.kubernetes.client.kinds import Kind

_SERVER_S = 240  # the server ends a watch after this time
_SILENT_S = 60.0  # bookmarks come about once a minute on real servers
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.2, 15.0
_GONE, _TOO_MANY, _SERVER = 410, 429, 500


@dataclass(frozen=True, kw_only=True)
class WatchEvent:
    """A change: ADDED, MODIFIED or DELETED, and the object after it.

    An object that was deleted while the connection was lost has only name, namespace and uid.
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
) -> Iterator[WatchEvent]:
    """Yield the present objects and then each change; see `Kube.watch`."""
    watcher = _Watcher(wire, kind, namespace=namespace, query=query, listing=listing)
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    pause_s = _FIRST_PAUSE_S
    while deadline is None or time.monotonic() < deadline:
        try:
            for event in watcher.some(deadline):
                pause_s = _FIRST_PAUSE_S
                yield event
        except (ApiUnreachableError, OverloadedError) as error:
            named_s = error.wait_s if isinstance(error, OverloadedError) else None
            wait_s = pause_s * (1 + random.random()) if named_s is None else named_s  # noqa: S311 - jitter
            pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)
            if deadline is not None:
                wait_s = min(wait_s, max(deadline - time.monotonic(), 0.0))
            time.sleep(wait_s)


class _Watcher:
    """One watch: the version up to which changes were read, and the objects that were reported."""

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
        self._reported: dict[tuple[str, str], tuple[str, str]] = {}  # namespace and name: uid and version

    def some(self, deadline: float | None) -> Iterator[WatchEvent]:
        """Yield the changes of one list, or of one request of a watch."""
        if not self._version:
            yield from self._listed()
        else:
            try:
                yield from self._changes(deadline)
            except ExpiredError:
                self._version = ""
                time.sleep(_FIRST_PAUSE_S)  # limits the lists if the server refuses each new version

    def _listed(self) -> Iterator[WatchEvent]:
        """Yield the differences between a new list and the objects that were reported."""
        found = self._listing()
        before = dict(self._reported)
        for item in found.items:
            key, seen = _key(item), _seen(item)
            old = before.pop(key, None)
            # Another uid: the object was deleted and created again under the same name.
            if old is not None and old[0] != seen[0]:
                yield WatchEvent(type="DELETED", object=_shell(self._kind, key, old[0]))
                old = None
            self._reported[key] = seen
            if old != seen:
                yield WatchEvent(type="ADDED" if old is None else "MODIFIED", object=item)
        for key, (uid, _) in before.items():
            del self._reported[key]
            yield WatchEvent(type="DELETED", object=_shell(self._kind, key, uid))
        self._version = found.version

    def _changes(self, deadline: float | None) -> Iterator[WatchEvent]:
        left = _SERVER_S if deadline is None else max(min(_SERVER_S, int(deadline - time.monotonic()) + 1), 1)
        request = ApiRequest(
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

    def _event(self, line: bytes) -> WatchEvent | None:
        if not line.strip():
            return None
        try:
            event = safe_object(line)
            kind, item = event["type"], event["object"]
            if kind == "ERROR":
                raise _failure(item)
            version = str(item["metadata"]["resourceVersion"])
            key = _key(item) if kind != "BOOKMARK" else ("", "")
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise ApiUnreachableError("a watch was cut off in the middle of a line", was_sent=True) from error
        self._version = version
        if kind == "BOOKMARK":
            return None
        if kind == "DELETED":
            self._reported.pop(key, None)
        else:
            self._reported[key] = _seen(item)
        return WatchEvent(type=kind, object=item)


def _failure(status: Mapping[str, Any]) -> KubeError:
    code, message = int(status.get("code") or 0), str(status.get("message", ""))
    if code == _GONE:
        return ExpiredError(f"the watch was ended: {message}", status=code)
    if code == _TOO_MANY or code >= _SERVER:
        return OverloadedError(f"the watch was ended: {message}", status=code)
    return KubeError(f"the watch was ended: {message}", status=code)


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
