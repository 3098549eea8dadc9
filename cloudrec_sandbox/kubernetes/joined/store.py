"""The objects of another API server, for kubelets and operators: read by watches, changed by calls."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.kubernetes.joined.informer import Informer
from cloudrec_sandbox.kubernetes.objects.errors import ApiError
from cloudrec_sandbox.kubernetes.objects.table import copied
from cloudrec_sandbox.kubernetes.storage.access import Tokens
from cloudrec_sandbox.kubernetes.storage.store import BACKGROUND, Store

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec_sandbox.core.clock import Clock
    from cloudrec_sandbox.kubernetes.joined.connection import Connection
    from cloudrec_sandbox.kubernetes.objects.resources import Resource
    from cloudrec_sandbox.kubernetes.storage.store import Track

_STRATEGIC = "application/strategic-merge-patch+json"
_MERGE = "application/merge-patch+json"  # the only one of the two that custom kinds have
_NOT_FOUND = 404
# Lists that a strategic merge patch merges by address. A pod of an earlier kubelet of this node name has
# another address, and the API server refuses two of one family, so these are replaced.
_MERGED, _REPLACE = ("podIPs", "hostIPs"), {"$patch": "replace"}
# What a kubelet watches. It reads ConfigMaps, Secrets and accounts when a pod needs them.
_WATCHED = {"pods": "spec.nodeName!=", "services": "", "nodes": ""}
_FORGOTTEN = 20_000


class JoinedStore(Store):
    """The part of a `Store` that kubelets and operators use, in front of an API server."""

    def __init__(
        self, connection: Connection, clock: Clock, watched: Mapping[str, str] | None = None
    ) -> None:
        """Follow the kinds `watched`: field selectors by plural; what kubelets watch by default.

        Custom kinds must be among its `resources` before `start`.
        """
        super().__init__(clock, lock=threading.RLock())
        self._watched = dict(_WATCHED if watched is None else watched)
        self._connection = connection
        self.tokens = _AccountTokens(self)
        self._versions: dict[str, int] = {}  # by uid
        self._gone: dict[str, None] = {}  # uids, in the order of their deletion
        self._informers: list[Informer] = []

    def start(self) -> None:
        """Read what there is, then follow the changes."""
        for plural, fields in self._watched.items():
            kind = self.resources.by_key(plural)
            informer = Informer(self._connection, self._path(kind, None, ""), fields, self, kind)
            self._informers.append(informer)
            informer.start()

    def close(self) -> None:
        """Stop following."""
        for informer in self._informers:
            informer.close()
        self._connection.close()
        for informer in self._informers:
            informer.join()

    def note(self, plural: str, obj: dict[str, Any]) -> None:
        """Keep an object's state as the API server has sent it, unless a newer one is known."""
        metadata = obj["metadata"]
        uid, version = metadata["uid"], int(metadata["resourceVersion"])
        with self.lock:
            if uid in self._gone or self._versions.get(uid, -1) >= version:
                return
            place = (metadata.get("namespace", ""), metadata["name"])
            old = self.table.get(plural, place)
            if old is not None and old.obj["metadata"]["uid"] != uid:
                self.forget(plural, old.obj)
            self._versions[uid] = version
            self.table.put(plural, place, copied(obj))

    def forget(self, plural: str, obj: Mapping[str, Any]) -> None:
        """Drop an object that the API server no longer has."""
        metadata = obj["metadata"]
        with self.lock:
            self._versions.pop(metadata["uid"], None)
            self._gone[metadata["uid"]] = None
            if len(self._gone) > _FORGOTTEN:
                del self._gone[next(iter(self._gone))]
            place = (metadata.get("namespace", ""), metadata["name"])
            old = self.table.get(plural, place)
            if old is not None and old.obj["metadata"]["uid"] == metadata["uid"]:
                self.table.remove(plural, place)

    def get(self, resource: str, namespace: str | None, name: str) -> dict[str, Any] | None:
        """Return one object, or None."""
        if resource in self._watched:
            return super().get(resource, namespace, name)
        kind = self.resources.by_key(resource)
        try:
            return self._connection.call("GET", self._path(kind, namespace, name))
        except ApiError as error:
            if error.status == _NOT_FOUND:
                return None
            raise

    def create(
        self, resource: str, obj: Mapping[str, Any], *, dry_run: bool = False, track: Track | None = None
    ) -> dict[str, Any]:
        """Create an object; `dry_run` and `track` are the API server's own affair."""
        del dry_run, track
        kind = self.resources.by_key(resource)
        body = {**obj, "apiVersion": kind.api_version, "kind": kind.kind}
        made = self._connection.call(
            "POST", self._path(kind, obj["metadata"].get("namespace"), ""), body=body
        )
        return self._kept(resource, made)

    def patch(
        self,
        resource: str,
        namespace: str | None,
        name: str,
        merge_patch: Mapping[str, Any],
        subresource: str = "",
    ) -> dict[str, Any]:
        """Change an object: a built-in one as kubelets do, by a strategic merge patch."""
        kind = self.resources.by_key(resource)
        path = self._path(kind, namespace, name, subresource)
        body = dict(merge_patch)
        if kind.custom:
            return self._kept(resource, self._connection.call("PATCH", path, body=body, kind=_MERGE))
        if status := body.get("status"):
            body["status"] = {**status, **{key: [_REPLACE, *status[key]] for key in _MERGED if key in status}}
        return self._kept(resource, self._connection.call("PATCH", path, body=body, kind=_STRATEGIC))

    def delete(
        self,
        resource: str,
        namespace: str | None,
        name: str,
        grace_s: int | None = None,
        *,
        propagation: str = BACKGROUND,
        preconditions: Mapping[str, str] | None = None,
        dry_run: bool = False,
    ) -> dict[str, Any]:
        """Delete an object."""
        del dry_run
        wish: dict[str, Any] = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": propagation}
        if grace_s is not None:
            wish["gracePeriodSeconds"] = grace_s
        if preconditions:
            wish["preconditions"] = dict(preconditions)
        kind = self.resources.by_key(resource)
        left = self._connection.call("DELETE", self._path(kind, namespace, name), body=wish)
        # A Node is gone at once, before the watch reports it: one of its name may be registered again.
        old = self.table.get(resource, ("", name)) if resource == "nodes" else None
        if old is not None and left.get("kind") == "Status":
            self.forget(resource, old.obj)
        return left

    def token(self, namespace: str, account: str, seconds: int, audience: str = "") -> str:
        """Return a new token of a service account, of which the API server decides how long it lives."""
        path = self._path(self.resources.by_key("serviceaccounts"), namespace, account, "token")
        spec = {"expirationSeconds": seconds, **({"audiences": [audience]} if audience else {})}
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        made = self._connection.call("POST", path, body=body)
        return str(made["status"]["token"])

    def _kept(self, resource: str, obj: dict[str, Any]) -> dict[str, Any]:
        if resource in self._watched:
            self.note(resource, obj)
        return obj

    @staticmethod
    def _path(kind: Resource, namespace: str | None, name: str, subresource: str = "") -> str:
        head = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
        middle = f"/namespaces/{namespace}" if kind.namespaced and namespace else ""
        parts = [kind.plural, *([name] if name else []), *([subresource] if subresource else [])]
        return f"{head}{middle}/{'/'.join(parts)}"


class _AccountTokens(Tokens):
    """Tokens of service accounts, from the API server."""

    _LEAST_S = 600  # TokenRequestSpec: the API server refuses a shorter life

    def __init__(self, store: JoinedStore) -> None:
        super().__init__()
        self._store = store

    def of_account(self, account: Mapping[str, Any], seconds: int = 3600, audience: str = "") -> str:
        """Return a new token of a service account."""
        metadata = account["metadata"]
        lives_s = max(seconds, self._LEAST_S)
        return self._store.token(metadata["namespace"], metadata["name"], lives_s, audience)
