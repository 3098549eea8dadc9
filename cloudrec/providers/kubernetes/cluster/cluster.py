"""The objects that represent an adopted cluster: its namespace, and in it a ConfigMap, the note."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cloudrec.engine.cost import FREE
from cloudrec.engine.graph import TAG_EXPIRES, Condition
from cloudrec.errors import CloudrecError
from cloudrec.kubernetes.client.target import POD_SECURITY
from cloudrec.kubernetes.tenants import kept
from cloudrec.providers.kubernetes.api import labels, private
from cloudrec.providers.kubernetes.api.client import CLUSTER
from cloudrec.providers.kubernetes.api.driver import ObjectDriver, ObjectProperties
from cloudrec_contract.safe_json import safe_object

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet

    from cloudrec.engine.graph import Observed, Resource
    from cloudrec.providers.base.driver import CloudDriver
    from cloudrec.providers.kubernetes.api.client import Adopted
    from cloudrec.providers.kubernetes.layout import KubeLayout

NAMESPACE, ACCOUNT = "namespace", "service-account"
KINDS: Mapping[str, AbstractSet[str]] = {
    NAMESPACE: frozenset({private.KUBECONFIG}),
    CLUSTER: frozenset({NAMESPACE, ACCOUNT}),
}

_NOTE = "cluster.json"  # the key of the note in its ConfigMap
_WARN = "pod-security.kubernetes.io/warn"


class KeptError(CloudrecError):
    """A namespace that `up` created is kept, because it holds foreign objects."""


def resources(layout: KubeLayout) -> list[Resource]:
    """Return the private kubeconfig, the namespace and the note."""
    copy = layout.resource(
        private.KUBECONFIG,
        properties=private.KubeconfigProperties(digest=private.digest(layout.config)),
        hourly_usd=FREE,
    )
    is_foreign = NAMESPACE in layout.foreign
    namespace = layout.resource(
        NAMESPACE,
        needs=(copy.key,),
        properties=NamespaceProperties(name=layout.namespace, level=None if is_foreign else layout.level),
        is_shared=is_foreign,
        hourly_usd=FREE,
    )
    settings = layout.settings
    node_usd = FREE if settings.node_hourly_usd is None else settings.node_hourly_usd  # `up` makes no nodes
    note = layout.resource(
        CLUSTER,
        needs=(namespace.key, layout.key(ACCOUNT)),
        properties=NoteProperties(
            name=layout.name,
            namespace=layout.namespace,
            note={"storage": settings.storage, "node_hourly_usd": node_usd},
            expires=layout.cluster.expires or "",
        ),
        hourly_usd=node_usd * layout.cluster.nodes,
    )
    return [copy, namespace, note]


def drivers(adopted: Adopted, namespace: str) -> Mapping[str, CloudDriver]:
    """Return kind -> driver."""
    return {
        NAMESPACE: NamespaceDriver(adopted, namespace, "Namespace"),
        CLUSTER: NoteDriver(adopted, namespace, "ConfigMap"),
    }


@dataclass(frozen=True, kw_only=True)
class NamespaceProperties(ObjectProperties):
    """The requested namespace.

    Attributes:
        level: the Pod Security level of its pods; None for a namespace that existed before `up`, whose level
            is not changed.
    """

    level: str | None


@dataclass(frozen=True, kw_only=True)
class NoteProperties(ObjectProperties):
    """The requested note: the ConfigMap with the facts that commands on any machine read.

    Attributes:
        note: the storage's URI (`storage`) and a node's price in USD an hour (`node_hourly_usd`).
        expires: the end of the cluster, ISO 8601 in UTC; empty for none.
    """

    note: dict[str, str | float | None]
    expires: str


class NamespaceDriver(ObjectDriver[NamespaceProperties]):
    """The driver of namespaces. It keeps one that existed before `up`, and one with foreign objects."""

    kind = NAMESPACE
    takes_unmarked = False
    may_be_others = True
    changeable = frozenset({"level"})

    def body(self, resource: Resource[NamespaceProperties]) -> dict[str, Any]:
        """Return a namespace whose Pod Security level is the strictest that the fabric allows."""
        level = resource.properties.level
        return {"metadata": {"labels": {POD_SECURITY: level, _WARN: level}}}

    def properties(self, found: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the namespace's Pod Security level."""
        return {"level": (found["metadata"].get("labels") or {}).get(POD_SECURITY, "")}

    def look(self, identity: str) -> tuple[Condition, str]:
        """Return the namespace's state; during its deletion, the reason is what the deletion waits for."""
        condition, reason = super().look(identity)
        if condition is Condition.DELETING:
            found = self.kube.get(self.api, identity.rpartition("/")[2]) or {}
            conditions = (found.get("status") or {}).get("conditions") or ()
            reason = "; ".join(each["message"] for each in conditions if each.get("status") == "True")
        return condition, reason

    def remove(self, observed: Observed) -> None:
        """Delete the namespace with all of its objects.

        Raises:
            KeptError: it holds objects that cloudrec did not make.
        """
        found = self.ours(observed)
        if found is None:
            return
        name, uid = found["metadata"]["name"], found["metadata"]["uid"]
        if why := kept(self.kube, name, observed.cluster):
            raise KeptError(
                f"{why}; delete them, or keep the namespace: kubectl annotate namespace {name} {labels.TAGS}-"
            )
        self.kube.delete(self.api, name, uid=uid)


def end_of(note: Mapping[str, Any]) -> str:
    """Return the cluster's end from its note, ISO 8601; empty for none."""
    return str(labels.tags_of(note, CLUSTER).get(TAG_EXPIRES, ""))


class NoteDriver(ObjectDriver[NoteProperties]):
    """The driver of the note; a changed end is written in place."""

    kind = CLUSTER
    changeable = frozenset({"note", "expires"})
    takes_unmarked = False

    def body(self, resource: Resource[NoteProperties]) -> dict[str, Any]:
        """Return a ConfigMap with the note."""
        asked = resource.properties
        return {"data": {_NOTE: json.dumps({**asked.note, "expires": asked.expires}, sort_keys=True)}}

    def properties(self, found: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the note's content; `expires` is "unclear" if the content and the tags disagree."""
        try:
            note = dict(safe_object((found.get("data") or {})[_NOTE]))
        except (KeyError, ValueError, TypeError):
            note = {}
        expires = end_of(found)
        written = note.pop("expires", "")
        return {"note": note, "expires": written if written == expires else "unclear"}

    def hourly_usd(self, tags: Mapping[str, str], found: Mapping[str, Any]) -> float | None:
        """Return 0: the nodes are not cloudrec's, and cost the same after `down`."""
        del tags, found
        return FREE
