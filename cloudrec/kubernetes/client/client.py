"""cloudrec's client of a Kubernetes cluster: plain JSON objects over the official SDK.

Objects are dicts as the API sends them, not the SDK's models: a thousand pods are read fast, and custom
objects need no other code than built-in ones. A kind's name is `Pod` if it is well known, else
`GROUP/VERSION/KIND`.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from cloudrec.errors import PreflightError
from cloudrec.kubernetes.client.changes import MANAGER, Changes, Object, asked
from cloudrec.kubernetes.client.credentials import Kubeconfig
from cloudrec.kubernetes.client.errors import AbsentError, ApiUnreachableError, ExpiredError
from cloudrec.kubernetes.client.kinds import Kinds
from cloudrec.kubernetes.client.wire import CONNECT_S, PATIENCE_S, ApiRequest, Wire
from cloudrec_contract.safe_json import safe_object

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from cloudrec.kubernetes.client.target import ClusterTarget
    from cloudrec.kubernetes.client.watching import WatchEvent
    from cloudrec.kubernetes.client.websockets import ChannelSocket

__all__ = ["MANAGER", "Kube", "Listing", "Object", "selector"]
_PAGE = 500
_BRIEF_S, _QUIET_S = 1, 0.5  # of a watch for past changes alone
_GONE = 410
_PROTECTED = "kube-system"

Objects = list[Object]  # `list` is also the name of a method below


@dataclass(frozen=True, kw_only=True)
class Listing:
    """The objects of a list, and the resource version from which a watch can continue."""

    items: Objects = field(default_factory=list)
    version: str = ""


class Kube(Changes):
    """The client of one cluster. It is thread-safe; close it, or use it as a context manager."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self.kinds = Kinds(self._answer_or_none)

    @classmethod
    def connect(
        cls,
        target: ClusterTarget,
        *,
        patience_s: float = PATIENCE_S,
        connect_s: float = CONNECT_S,
        read_s: float | None = None,
    ) -> Self:
        """Return a client of a target's cluster. If the target has an identity, one call checks it.

        Args:
            target: the cluster.
            patience_s: seconds for which an idempotent call is retried if the server does not answer.
            connect_s: time limit for a connection, in seconds.
            read_s: seconds without data after which any call fails; None for each call's own limit.

        Raises:
            MissingExtraError: the extra `kubernetes` is not installed.
            PreflightError: no kubeconfig, no credential, no answer, or another cluster of the same name.
        """
        kubeconfig = Kubeconfig(Path(target.kubeconfig), target.context)
        kube = cls(Wire(kubeconfig, patience_s=patience_s, connect_s=connect_s, read_s=read_s))
        if target.identity and (found := kube.identity()) != target.identity:
            kube.close()
            raise PreflightError(
                f"the context {target.context!r} names another cluster than before: its identity is "
                f"{found}, and {target.identity} was expected",
                remedy="it was created again, or the context was changed; `cloudrec status` lists the "
                "clusters; runs of the earlier cluster cannot continue on this one",
            )
        return kube

    @property
    def server(self) -> str:
        """URL of the API server."""
        return self._wire.kubeconfig.server

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._wire.close()

    def identity(self) -> str:
        """Return the uid of the namespace kube-system, which no two clusters share."""
        found = self.get("Namespace", _PROTECTED)
        if found is None:
            raise PreflightError(
                f"the server at {self.server} has no namespace {_PROTECTED}, so it is no Kubernetes cluster"
            )
        return str(found["metadata"]["uid"])

    def websocket(self, path: str, *, what: str, protocols: Sequence[str]) -> ChannelSocket:
        """Open a WebSocket; see `Wire.websocket`."""
        from cloudrec.kubernetes.client.websockets import ChannelSocket  # noqa: PLC0415 - only for these calls

        return ChannelSocket(self._wire.websocket(path, what=what, protocols=protocols))

    def now_s(self) -> float:
        """Return the time by the cluster's clock, in seconds since the epoch; this machine's may differ."""
        return self._wire.now_s()

    def version(self) -> str:
        """Return the server's version: v1.35.2."""
        answer = self.raw("GET", "/version", what="ask for the cluster's version")
        return str(answer.get("gitVersion", ""))

    def get(self, kind: str, name: str, *, namespace: str = "") -> Object | None:
        """Return an object; None if there is none, or no such kind."""
        known = self.kinds.named(kind)
        request = ApiRequest(
            method="GET",
            path=known.path(namespace=namespace, name=name),
            what=asked("read", known, name, namespace),
            form="object",
        )
        try:
            return self._wire.json(request)
        except AbsentError:
            return None

    def live(self, manifest: Mapping[str, Any]) -> Object | None:
        """Return the cluster's object for a manifest; None if there is none."""
        known, name, namespace = self._of(manifest)
        return self.get(f"{known.version}/{known.name}", name, namespace=namespace)

    def list(
        self,
        kind: str,
        *,
        namespace: str = "",
        labels: Mapping[str, str] | str = "",
        fields: Mapping[str, str] | str = "",
        metadata_only: bool = False,
    ) -> Objects:
        """Return all objects of a kind, page by page; see `listing`."""
        return self.listing(
            kind, namespace=namespace, labels=labels, fields=fields, metadata_only=metadata_only
        ).items

    def listing(
        self,
        kind: str,
        *,
        namespace: str = "",
        labels: Mapping[str, str] | str = "",
        fields: Mapping[str, str] | str = "",
        page: int = _PAGE,
        metadata_only: bool = False,
    ) -> Listing:
        """Return all objects of a kind, and the version of the list.

        Args:
            kind: the kind.
            namespace: the namespace; empty for all.
            labels: the label selector, as a mapping or as text.
            fields: the field selector, as a mapping or as text.
            page: the number of objects of each request.
            metadata_only: request only the objects' metadata.

        Raises:
            AbsentError: the cluster has no such kind.
        """
        known = self.kinds.named(kind)
        query = {"labelSelector": selector(labels) or None, "fieldSelector": selector(fields) or None}
        # In pages, so that no response has all of a thousand pods.
        items: Objects = []
        more: str | None = None
        while True:
            answer = self._wire.json(
                ApiRequest(
                    method="GET",
                    path=known.path(namespace=namespace),
                    what=asked("list", known, "", namespace),
                    query={**query, "limit": page, "continue": more},
                    is_long=True,
                    form="list",
                    metadata_only=metadata_only,
                )
            )
            items += answer.get("items") or []
            metadata = answer.get("metadata") or {}
            more = metadata.get("continue") or None
            if more is None:
                break
        for item in items:  # the API leaves these two out of a list's items
            if item.get("kind", known.name) != known.name:  # metadata only
                item |= {"apiVersion": known.version, "kind": known.name}
            item.setdefault("apiVersion", known.version)
            item.setdefault("kind", known.name)
        return Listing(items=items, version=str(metadata.get("resourceVersion", "")))

    def first(self, kind: str, *, namespace: str = "", labels: Mapping[str, str] | str = "") -> Object | None:
        """Return the metadata of one object that is selected; None if there is none."""
        known = self.kinds.named(kind)
        answer = self._wire.json(
            ApiRequest(
                method="GET",
                path=known.path(namespace=namespace),
                what=asked("list", known, "", namespace),
                query={"labelSelector": selector(labels) or None, "limit": 1},
                form="list",
                metadata_only=True,
            )
        )
        return next(iter(answer.get("items") or ()), None)

    def changes(
        self, kind: str, *, since: str, namespace: str = "", labels: Mapping[str, str] | str = ""
    ) -> Sequence[tuple[str, Object]]:
        """Return the changes since a version, ADDED, MODIFIED or DELETED, without waiting for further ones.

        The server sends past changes at once, and then keeps the connection open: silence ends the call.

        Args:
            kind: the kind.
            since: the version of a list or of a change.
            namespace: the namespace; empty for all.
            labels: the label selector, as a mapping or as text.

        Raises:
            ExpiredError: the server no longer has the changes since that version.
        """
        known = self.kinds.named(kind)
        query = {"watch": True, "resourceVersion": since, "timeoutSeconds": _BRIEF_S}
        request = ApiRequest(
            method="GET",
            path=known.path(namespace=namespace),
            what=f"watch {known.plural}",
            query={"labelSelector": selector(labels) or None, **query},
            read_s=_QUIET_S,
        )
        found: list[tuple[str, Object]] = []
        # After silence, or a line that was cut off, the next call continues after the last whole line.
        with (
            suppress(ApiUnreachableError, ValueError, LookupError, TypeError),
            self._wire.stream(request) as lines,
        ):
            for line in lines:
                event = safe_object(line)
                if event["type"] == "ERROR":  # in practice 410; after any other, a list shows what is wrong
                    message = str(event["object"].get("message", ""))
                    raise ExpiredError(f"the watch was ended: {message}", status=_GONE)
                found.append((event["type"], event["object"]))
        return found

    def watch(
        self,
        kind: str,
        *,
        namespace: str = "",
        labels: Mapping[str, str] | str = "",
        fields: Mapping[str, str] | str = "",
        timeout_s: float | None = None,
    ) -> Iterator[WatchEvent]:
        """Yield the present objects as ADDED, and then each change; lost connections are restored.

        Args:
            kind: the kind.
            namespace: the namespace; empty for all.
            labels: the label selector, as a mapping or as text.
            fields: the field selector, as a mapping or as text.
            timeout_s: end after this many seconds; None for never.
        """
        from cloudrec.kubernetes.client.watching import watch  # noqa: PLC0415 - most commands watch nothing

        known = self.kinds.named(kind)
        return watch(
            self._wire,
            known,
            namespace=namespace,
            query={"labelSelector": selector(labels) or None, "fieldSelector": selector(fields) or None},
            listing=lambda: self.listing(kind, namespace=namespace, labels=labels, fields=fields),
            timeout_s=timeout_s,
        )

    def logs(
        self,
        pod: str,
        *,
        namespace: str,
        container: str = "",
        follow: bool = False,
        tail: int | None = None,
        since_s: int | None = None,
        since_time: str = "",
        previous: bool = False,
        timestamps: bool = False,
        read_s: float = 60.0,
    ) -> Iterator[str]:
        """Yield the lines of a container's log, without their line ends.

        Args:
            pod: the pod's name.
            namespace: its namespace.
            container: the container; empty if the pod has only one.
            follow: continue until the container ends.
            tail: number of present lines to begin with; None for all of them.
            since_s: only lines of the last so many seconds.
            since_time: only lines since this time, RFC 3339.
            previous: read the log from before the container's last restart.
            timestamps: begin each line with its time.
            read_s: seconds without a line after which a followed log ends with an ApiUnreachableError.
        """
        known = self.kinds.named("Pod")
        query = {
            "container": container or None,
            "follow": follow or None,
            "tailLines": tail,
            "sinceSeconds": since_s,
            "sinceTime": since_time or None,
            "previous": previous or None,
            "timestamps": timestamps or None,
        }
        request = ApiRequest(
            method="GET",
            path=known.path(namespace=namespace, name=pod, subresource="log"),
            what=f"read the log of pod {pod}",
            query=query,
            read_s=read_s,
        )
        with self._wire.stream(request) as lines:
            for line in lines:
                yield line.decode("utf-8", errors="replace").rstrip("\r")

    def raw(
        self,
        method: str,
        path: str,
        *,
        what: str = "",
        query: Mapping[str, Any] | None = None,
        body: Mapping[str, Any] | None = None,
        is_idempotent: bool = False,
    ) -> Object:
        """Return the result of any call of the API; a GET and an idempotent call are retried."""
        asked = ApiRequest(
            method=method,
            path=path,
            what=what or f"{method} {path}",
            query=query or {},
            body=body,
            is_idempotent=is_idempotent,
        )
        return self._wire.json(asked)

    def may(self, verb: str, kind: str, *, namespace: str = "", subresource: str = "") -> bool:
        """Return whether this identity may do something, such as create a Job in a namespace."""
        known = self.kinds.named(kind)
        group = known.version.rpartition("/")[0]
        attributes = {"verb": verb, "resource": known.plural, "group": group, "namespace": namespace}
        attributes |= {"subresource": subresource} if subresource else {}
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes},
        }
        path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        try:
            answer = self.raw("POST", path, what="ask what we may do", body=review, is_idempotent=True)
        except AbsentError:  # a server without access reviews: the call itself will show it
            return True
        return bool((answer.get("status") or {}).get("allowed"))

    def _answer_or_none(self, path: str) -> Object | None:
        try:
            return self.raw("GET", path, what=f"ask which kinds {path} has")
        except AbsentError:
            return None


def selector(wanted: Mapping[str, str] | str) -> str:
    """Return a selector's text."""
    return wanted if isinstance(wanted, str) else ",".join(f"{key}={value}" for key, value in wanted.items())
