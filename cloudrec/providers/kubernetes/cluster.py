"""What stands for an adopted cluster: its namespace, and in it the note that says what it was adopted for."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from cloudrec.engine.graph import TAG_EXPIRES, Condition, Difference, Observed
from cloudrec.errors import UsageError
from cloudrec.kube.errors import AbsentError, DeniedError
from cloudrec.providers.kubernetes import labels, private
from cloudrec.providers.kubernetes.client import CLUSTER
from cloudrec.providers.kubernetes.driver import ObjectDriver

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from collections.abc import Set as AbstractSet

    from cloudrec.cloud.driver import CloudDriver
    from cloudrec.engine.graph import Resource
    from cloudrec.providers.kubernetes.client import Adopted
    from cloudrec.providers.kubernetes.layout import Layout

NAMESPACE, ACCOUNT = "namespace", "service-account"
KINDS: Mapping[str, AbstractSet[str]] = {
    NAMESPACE: frozenset({private.KUBECONFIG}),
    CLUSTER: frozenset({NAMESPACE, ACCOUNT}),
}

_NOTE = "cluster.json"  # the key of the note in its ConfigMap
# What tells that others live in a namespace, and what every namespace is born with.
_TENANTS = (
    *("Pod", "Job", "CronJob", "Deployment", "StatefulSet", "DaemonSet", "Service", "ConfigMap", "Secret"),
    *("PersistentVolumeClaim", "ServiceAccount", "Role", "RoleBinding"),
)
_INBORN = {("ConfigMap", "kube-root-ca.crt"), ("ServiceAccount", "default")}


def resources(layout: Layout) -> list[Resource]:
    """Describe the private copy of the kubeconfig, the namespace and the note."""
    copy = layout.resource(private.KUBECONFIG, properties={"digest": private.digest(layout.config)})
    namespace = layout.resource(
        NAMESPACE,
        needs=(copy.key,),
        properties={"name": layout.namespace},
        is_shared=NAMESPACE in layout.foreign,
    )
    settings = layout.settings
    note = layout.resource(
        CLUSTER,
        needs=(namespace.key, layout.key(ACCOUNT)),
        properties={
            "name": layout.name,
            "namespace": layout.namespace,
            "note": {"storage": settings.storage, "node_hourly_usd": settings.node_hourly_usd},
            "expires": layout.cluster.expires or "",
        },
        hourly_usd=settings.node_hourly_usd * layout.cluster.nodes,
    )
    return [copy, namespace, note]


def drivers(adopted: Adopted, namespace: str) -> Mapping[str, CloudDriver]:
    """Return the drivers by kind."""
    return {
        NAMESPACE: NamespaceDriver(adopted, namespace, "Namespace"),
        CLUSTER: NoteDriver(adopted, namespace, "ConfigMap"),
    }


class NamespaceDriver(ObjectDriver):
    """Handles namespaces. One that others made is used, and stays; so does one that others moved into."""

    kind = NAMESPACE

    def body(self, resource: Resource) -> dict[str, Any]:
        """Return a namespace."""
        del resource
        return {}

    def difference(self, resource: Resource, observed: Observed) -> Difference | None:
        """Nothing of it changes."""
        del resource, observed
        return None

    def look(self, identity: str) -> tuple[Condition, str]:
        """Describe it; while it goes, say what it waits for."""
        condition, reason = super().look(identity)
        if condition is Condition.DELETING:
            found = self.kube.get(self.api, identity.rpartition("/")[2]) or {}
            told = (found.get("status") or {}).get("conditions") or ()
            reason = "; ".join(each["message"] for each in told if each.get("status") == "True")
        return condition, reason

    def remove(self, observed: Observed) -> None:
        """Delete it with all that is in it; where something is in it that is not ours, only our mark."""
        found = self.ours(observed)
        if found is None:
            return
        name, uid = found["metadata"]["name"], found["metadata"]["uid"]
        if any(self._tenants(name, observed.cluster)):
            self.kube.patch(self.api, name, labels.erased())
        else:
            self.kube.delete(self.api, name, uid=uid)

    def _tenants(self, namespace: str, cluster: str) -> Iterable[str]:
        """Yield what is in a namespace and not of this cluster."""
        for api in _TENANTS:
            try:
                listed = self.kube.list(api, namespace=namespace)
            except (AbsentError, DeniedError, UsageError):
                continue
            for each in listed:
                given = each["metadata"]
                is_ours = (given.get("labels") or {}).get(labels.CLUSTER) == cluster
                if not (is_ours or given.get("ownerReferences") or (api, given["name"]) in _INBORN):
                    yield f"{api} {given['name']}"


class NoteDriver(ObjectDriver):
    """Handles the notes. A note's end follows when another one is asked for."""

    kind = CLUSTER
    changeable = frozenset({"note", "expires"})
    takes_unmarked = False

    def body(self, resource: Resource) -> dict[str, Any]:
        """Return a ConfigMap with the note."""
        asked = resource.properties
        return {"data": {_NOTE: json.dumps({**asked["note"], "expires": asked["expires"]}, sort_keys=True)}}

    def properties(self, found: Mapping[str, Any]) -> Mapping[str, Any]:
        """Tell what was noted."""
        try:
            note = dict(json.loads((found.get("data") or {})[_NOTE]))
        except (KeyError, ValueError, TypeError):
            note = {}
        expires = labels.tags_of(found, CLUSTER).get(TAG_EXPIRES, "")
        told = note.pop("expires", "")
        return {"note": note, "expires": told if told == expires else "unclear"}

    def hourly_usd(self, tags: Mapping[str, str], found: Mapping[str, Any]) -> float:
        """Tell nothing: what the nodes cost is their owner's business once we are gone."""
        del tags, found
        return 0.0
