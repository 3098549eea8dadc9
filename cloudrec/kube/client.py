"""A Kubernetes cluster as cloudrec speaks with it: plain JSON objects over the official SDK.

Objects are dicts as the API sends them, not the SDK's models: a thousand pods are then read in a moment, and
custom objects are no other than Kubernetes' own. A kind is named `Pod` where it is well known, or
`GROUP/VERSION/KIND`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from cloudrec.errors import PreflightError
from cloudrec.kube.changes import MANAGER, Changes, Object, asked
from cloudrec.kube.credentials import Kubeconfig
from cloudrec.kube.errors import AbsentError
from cloudrec.kube.kinds import Kinds
from cloudrec.kube.watching import Event, watch
from cloudrec.kube.wire import PATIENCE_S, Request, Wire

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cloudrec.kube.target import Target

__all__ = ["MANAGER", "Event", "Kube", "Listing", "Object", "selector"]
_PAGE = 500
_PROTECTED = "kube-system"

Objects = list[Object]  # `list` is also the name of a method below


@dataclass(frozen=True, kw_only=True)
class Listing:
    """All objects that a list found, and the version of the list, from which a watch can go on."""

    items: Objects = field(default_factory=list)
    version: str = ""


class Kube(Changes):
    """One cluster. Safe for several threads; close it, or use it as a context."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self.kinds = Kinds(self._answer_or_none)

    @classmethod
    def connect(cls, target: Target, *, patience_s: float = PATIENCE_S) -> Self:
        """Return a client of a target's cluster; one call where the target's identity is known, else none.

        Args:
            target: the cluster.
            patience_s: for how long a call is made again where nobody answers and that can do no harm.

        Raises:
            MissingExtraError: the extra `kubernetes` is not installed.
            PreflightError: no kubeconfig, no credential, no answer, or another cluster of the same name.
        """
        kube = cls(Wire(Kubeconfig(Path(target.kubeconfig), target.context), patience_s=patience_s))
        if target.identity and (found := kube.identity()) != target.identity:
            kube.close()
            raise PreflightError(
                f"the cluster that {target.context!r} leads to is another one than before: its identity is "
                f"{found}, and {target.identity} was expected",
                remedy="it was made anew, or the context was changed; `cloudrec status` lists them, and "
                "runs of the one that is gone cannot go on on this one",
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
        """End the connections."""
        self._wire.close()

    def identity(self) -> str:
        """Return the uid of the namespace kube-system, which no two clusters share."""
        found = self.get("Namespace", _PROTECTED)
        if found is None:
            raise PreflightError(f"the cluster at {self.server} has no namespace {_PROTECTED}: is it one?")
        return str(found["metadata"]["uid"])

    def version(self) -> str:
        """Return the server's version: v1.35.2."""
        answer = self.raw("GET", "/version", what="ask for the cluster's version")
        return str(answer.get("gitVersion", ""))

    def get(self, kind: str, name: str, *, namespace: str = "") -> Object | None:
        """Return an object, or None where there is none (or none of its kind)."""
        known = self.kinds.named(kind)
        request = Request(
            method="GET",
            path=known.path(namespace=namespace, name=name),
            what=asked("read", known, name, namespace),
        )
        try:
            return self._wire.json(request)
        except AbsentError:
            return None

    def live(self, manifest: Mapping[str, Any]) -> Object | None:
        """Return a manifest's object as it is in the cluster, or None."""
        known, name, namespace = self._of(manifest)
        return self.get(f"{known.version}/{known.name}", name, namespace=namespace)

    def list(
        self,
        kind: str,
        *,
        namespace: str = "",
        labels: Mapping[str, str] | str = "",
        fields: Mapping[str, str] | str = "",
    ) -> Objects:
        """Return all objects of a kind, page by page; see `listing`."""
        return self.listing(kind, namespace=namespace, labels=labels, fields=fields).items

    def listing(
        self,
        kind: str,
        *,
        namespace: str = "",
        labels: Mapping[str, str] | str = "",
        fields: Mapping[str, str] | str = "",
        page: int = _PAGE,
    ) -> Listing:
        """Return all objects of a kind, and the version of the list.

        Args:
            kind: which.
            namespace: where; everywhere when empty.
            labels: what they must carry, as a mapping or as a selector's text.
            fields: what their fields must be, likewise.
            page: how many are asked for at a time.

        Raises:
            AbsentError: the cluster has no such kind.
        """
        known = self.kinds.named(kind)
        query = {"labelSelector": selector(labels) or None, "fieldSelector": selector(fields) or None}
        items: Objects = []
        more: str | None = None
        while True:
            answer = self._wire.json(
                Request(
                    method="GET",
                    path=known.path(namespace=namespace),
                    what=asked("list", known, "", namespace),
                    query={**query, "limit": page, "continue": more},
                    is_long=True,
                )
            )
            items += answer.get("items") or []
            metadata = answer.get("metadata") or {}
            more = metadata.get("continue") or None
            if more is None:
                break
        for item in items:  # a list's items come without what they are
            item.setdefault("apiVersion", known.version)
            item.setdefault("kind", known.name)
        return Listing(items=items, version=str(metadata.get("resourceVersion", "")))

    def watch(
        self,
        kind: str,
        *,
        namespace: str = "",
        labels: Mapping[str, str] | str = "",
        fields: Mapping[str, str] | str = "",
        timeout_s: float | None = None,
    ) -> Iterator[Event]:
        """Yield what is there, as ADDED, and then each change, through lost connections and a sleep.

        Args:
            kind: which.
            namespace: where; everywhere when empty.
            labels: what they must carry.
            fields: what their fields must be.
            timeout_s: end after so many seconds; never when left out.
        """
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
        """Yield the lines that a pod's container has printed, without their ends.

        Args:
            pod: which.
            namespace: where.
            container: which one; the only one when empty.
            follow: go on until the container ends.
            tail: only the last so many lines of what is there.
            since_s: only what is younger than so many seconds.
            since_time: only what is younger than this, RFC 3339.
            previous: of the container that ran before its last restart.
            timestamps: begin each line with its time.
            read_s: seconds without a line after which a followed log ends with an UnreachableError.
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
        request = Request(
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
        """Make any call of the API; a GET, and what may be done twice, is made again where that helps."""
        asked = Request(
            method=method,
            path=path,
            what=what or f"{method} {path}",
            query=query or {},
            body=body,
            is_idempotent=is_idempotent,
        )
        return self._wire.json(asked)

    def may(self, verb: str, kind: str, *, namespace: str = "", subresource: str = "") -> bool:
        """Ask whether we may do something, such as create a Job in a namespace."""
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
        except AbsentError:  # a server without reviews: it will say so itself
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
