"""Follows the objects of one kind: a list, then watches from its version on, and a new list after a gap."""

from __future__ import annotations

import http.client
import sys
import threading
import traceback
from typing import TYPE_CHECKING, Any, Protocol

from cloudrec_sandbox.kubernetes.objects.errors import ApiError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec_sandbox.kubernetes.joined.connection import Connection
    from cloudrec_sandbox.kubernetes.objects.resources import Resource

_AGAIN_S = 0.5


class Keeper(Protocol):
    """Keeps what an informer reads."""

    def note(self, plural: str, obj: dict[str, Any]) -> None:
        """Keep an object."""

    def forget(self, plural: str, obj: Mapping[str, Any]) -> None:
        """Drop an object."""


class Informer:
    """One thread that follows one kind."""

    def __init__(
        self, connection: Connection, path: str, fields: str, keeper: Keeper, kind: Resource
    ) -> None:
        self._connection = connection
        self._path = path
        self._query = {"fieldSelector": fields} if fields else {}
        self._keeper = keeper
        self._kind = kind
        self._known: dict[str, dict[str, Any]] = {}
        self._first = ""
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"informer-{kind.plural}", daemon=True)

    def start(self) -> None:
        """Read the objects that exist, then follow them in a thread."""
        self._first = self._list()
        self._thread.start()

    def close(self) -> None:
        """Stop at the end of the present watch, which the connection's `close` ends."""
        self._end.set()

    def join(self) -> None:
        """Wait for the thread's end."""
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        version = self._first
        while not self._end.is_set():
            try:
                version = self._watch(version) if version else self._list()
            except ApiError:  # mostly 410: the server no longer has the version
                version = ""
            except (OSError, ValueError, http.client.HTTPException):
                self._end.wait(_AGAIN_S)
            except Exception:  # noqa: BLE001 - a defect must be seen, and the other threads continue
                if not self._end.is_set():
                    print(traceback.format_exc(), file=sys.stderr, flush=True)
                self._end.wait(_AGAIN_S)

    def _list(self) -> str:
        found = self._connection.call("GET", self._path, query=self._query)
        left = dict(self._known)
        for obj in found.get("items") or ():
            left.pop(obj["metadata"]["uid"], None)
            self._note(obj)
        for obj in left.values():
            self._forget(obj)
        return str(found["metadata"]["resourceVersion"])

    def _watch(self, version: str) -> str:
        query = {**self._query, "resourceVersion": version, "allowWatchBookmarks": "true"}
        with self._connection.watch(self._path, query) as events:
            for event in events:
                kind, obj = event["type"], event["object"]
                if kind == "ERROR":
                    return ""
                version = str(obj["metadata"]["resourceVersion"])
                if kind == "DELETED":
                    self._forget(obj)
                elif kind != "BOOKMARK":
                    self._note(obj)
        return version

    def _note(self, obj: dict[str, Any]) -> None:
        # The objects of a list come without these two.
        obj.setdefault("apiVersion", self._kind.api_version)
        obj.setdefault("kind", self._kind.kind)
        self._known[obj["metadata"]["uid"]] = {"metadata": obj["metadata"]}
        self._keeper.note(self._kind.key, obj)

    def _forget(self, obj: Mapping[str, Any]) -> None:
        self._known.pop(obj["metadata"]["uid"], None)
        self._keeper.forget(self._kind.key, obj)
