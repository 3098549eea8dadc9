"""What all drivers of objects in a cluster share: they are found by label, and made by plain manifests."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from cloudrec.cloud.driver import CloudDriver, is_ours, name_of
from cloudrec.engine.graph import TAG_CLUSTER, TAG_KEY, Condition, Observed, Verdict
from cloudrec.errors import CloudrecError, UsageError
from cloudrec.kube.errors import (
    AbsentError,
    ConflictError,
    DeniedError,
    KubeError,
    OverloadedError,
    UnreachableError,
)
from cloudrec.providers.kubernetes import labels

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cloudrec.engine.graph import Resource
    from cloudrec.providers.kubernetes.client import Adopted


class ObjectDriver(CloudDriver):
    """Handles one kind of object. An identity is CLUSTER/NAMESPACE/NAME, the first by the cluster's uid.

    Args:
        adopted: the cluster.
        namespace: where to look when all namespaces may not be looked into.
        api: the kind, as `Kube` names it.
    """

    refusals = (KubeError,)
    takes_unmarked: ClassVar[bool] = True  # what bears our labels, and not the tags of another kind
    deadline_s = 300.0
    poll_s = 0.1

    def __init__(self, adopted: Adopted, namespace: str, api: str) -> None:
        super().__init__()
        self.adopted = adopted
        self.kube = adopted.kube
        self.namespace = namespace
        self.api = api

    @abstractmethod
    def body(self, resource: Resource) -> dict[str, Any]:
        """Return the object's manifest but for what tells whose it is."""

    def properties(self, found: Mapping[str, Any]) -> Mapping[str, Any]:
        """Tell what drift is told from."""
        del found
        return {}

    def hourly_usd(self, tags: Mapping[str, str], found: Mapping[str, Any]) -> float:
        """Tell what it costs an hour."""
        del tags, found
        return 0.0

    def search(self, cluster: str | None) -> Sequence[Observed]:
        """List by label, and keep what is no other kind's, and nothing that another object owns."""
        found = [
            self.observe(each)
            for each in self._listed(labels.selector(cluster))
            if not each["metadata"].get("ownerReferences")
            and (self.takes_unmarked or labels.are_marked(each))
        ]
        return [seen for seen in found if seen.cluster and seen.key.partition("/")[0] == self.kind]

    def _listed(self, selector: str) -> list[dict[str, Any]]:
        """List everywhere, or where that is denied in the one namespace; none where there is no such kind."""
        try:
            return self._list(selector, "")
        except DeniedError:
            if not self.namespace:
                raise
            return self._list(selector, self.namespace)

    def _list(self, selector: str, namespace: str) -> list[dict[str, Any]]:
        try:
            return self.kube.list(self.api, namespace=namespace, labels=selector)
        except (AbsentError, UsageError):  # an add-on's kind, where there is no such add-on
            return []

    def find(self, resource: Resource) -> Observed | None:
        """Look the name up, whosever it is; what is not this cluster's stands where ours would be."""
        found = self.kube.get(
            self.api, resource.properties["name"], namespace=resource.properties.get("namespace", "")
        )
        if found is None:
            return None
        seen = self.observe(found)
        if seen.cluster == resource.tags[TAG_CLUSTER]:
            return seen
        whose = {name: value for name, value in seen.tags.items() if name != TAG_KEY}
        return replace(seen, name=resource.name, tags=whose)

    def look(self, identity: str) -> tuple[Condition, str]:
        """Describe it; what is of another cluster went with that, or is not ours to look at."""
        uid, namespace, name = identity.split("/")
        if uid != self.adopted.uid:
            return Condition.GONE, ""
        found = self.kube.get(self.api, name, namespace=namespace)
        if found is None or not labels.tags_of(found, self.kind):
            return Condition.GONE, ""
        return _condition(found), ""

    def make(self, resource: Resource, *, token: str, identities: Mapping[str, str]) -> str:
        """Create it, labelled."""
        del token, identities
        made = self.kube.create(self.manifest(resource))
        return self.identity(made)

    def change(self, resource: Resource, observed: Observed, *, identities: Mapping[str, str]) -> None:
        """Write what we say of it; what others say stays."""
        del observed, identities
        self.kube.patch(
            self.api,
            resource.properties["name"],
            self.manifest(resource),
            namespace=resource.properties.get("namespace", ""),
        )

    def remove(self, observed: Observed) -> None:
        """Delete it, and what it owns, if it is ours at all."""
        found = self.ours(observed)
        if found is not None:
            given = found["metadata"]
            namespace = given.get("namespace", "")
            self.kube.delete(self.api, given["name"], namespace=namespace, uid=given["uid"])

    def ours(self, observed: Observed) -> dict[str, Any] | None:
        """Return the object as it is now; None where there is none, or it bears no mark of its cluster."""
        uid, namespace, name = observed.identity.split("/")
        if uid != self.adopted.uid:
            return None
        found = self.kube.get(self.api, name, namespace=namespace)
        if found is None or not is_ours(labels.tags_of(found, self.kind), observed.cluster or None):
            return None
        return found

    def manifest(self, resource: Resource) -> dict[str, Any]:
        """Return the object as it is to be."""
        known = self.kube.kinds.named(self.api)
        named = {key: resource.properties[key] for key in ("name", "namespace") if key in resource.properties}
        body = self.body(resource)
        own = body.pop("metadata", {})
        marks = labels.metadata(resource.tags)
        metadata = {**named, **{key: {**own.get(key, {}), **marks[key]} for key in marks}}
        return {"apiVersion": known.version, "kind": known.name, "metadata": metadata, **body}

    def identity(self, found: Mapping[str, Any]) -> str:
        """Return an object's identity."""
        given = found["metadata"]
        return f"{self.adopted.uid}/{given.get('namespace', '')}/{given['name']}"

    def observe(self, found: Mapping[str, Any]) -> Observed:
        """Tell of an object what the engine wants to know."""
        tags = labels.tags_of(found, self.kind)
        return Observed(
            kind=self.kind,
            name=name_of(tags, found["metadata"]["name"]),
            identity=self.identity(found),
            condition=_condition(found),
            properties=self.properties(found),
            tags=tags,
            hourly_usd=self.hourly_usd(tags, found),
            location=self.adopted.place.location,
        )

    def is_absent(self, error: Exception) -> bool:
        """Tell whether it, or its kind, is not there."""
        return isinstance(error, AbsentError)

    def verdict(self, error: Exception) -> Verdict:
        """Tell by what the server said whether the call may be made again."""
        if isinstance(error, UnreachableError):
            return Verdict.LOST if error.was_sent else Verdict.FATAL
        if isinstance(error, ConflictError):
            return Verdict.LOST  # made a moment ago, or changed: look
        if isinstance(error, OverloadedError):
            return Verdict.RETRY if error.had_no_effect else Verdict.LOST
        return Verdict.FATAL

    def explain(self, error: Exception) -> CloudrecError:
        """Say what went wrong."""
        if isinstance(error, CloudrecError):
            return error
        return CloudrecError(f"{type(error).__name__}: {error}")


def _condition(found: Mapping[str, Any]) -> Condition:
    return Condition.DELETING if found["metadata"].get("deletionTimestamp") else Condition.READY
