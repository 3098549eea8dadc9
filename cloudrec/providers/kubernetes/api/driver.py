"""The base of the drivers of objects in a cluster: it finds them by label and creates them from manifests."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from typing_extensions import TypeVar

from cloudrec.engine.cost import FREE
from cloudrec.engine.graph import TAG_CLUSTER, TAG_KEY, Condition, ErrorVerdict, Observed, Properties
from cloudrec.errors import CloudrecError, PreflightError, UnreadableAnswerError, UsageError
from cloudrec.kubernetes.client.errors import (
    AbsentError,
    ApiUnreachableError,
    ConflictError,
    DeniedError,
    KubeError,
    OverloadedError,
)
from cloudrec.providers.base.driver import CloudDriver, UnfinishedError, is_ours, name_of
from cloudrec.providers.kubernetes.api import labels

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cloudrec.engine.graph import Resource
    from cloudrec.providers.kubernetes.api.client import Adopted


@dataclass(frozen=True, kw_only=True)
class ObjectProperties(Properties):
    """A requested object.

    Attributes:
        name: its name in the API server.
        namespace: its namespace; None for a cluster-scoped kind.
    """

    name: str
    namespace: str | None = None


O_contra = TypeVar("O_contra", bound=ObjectProperties, contravariant=True, default=Any)


class ObjectDriver(CloudDriver[O_contra]):
    """The driver of one kind of object. An identity is CLUSTER_UID/NAMESPACE/NAME.

    Args:
        adopted: the cluster.
        namespace: the namespace to search if listing all namespaces is denied; empty for none.
        api: the kind, as `Kube` names it.
    """

    refusals = (KubeError, UnreadableAnswerError)
    takes_unmarked: ClassVar[bool] = True  # search also finds objects with cloudrec's labels but without tags
    # Users create objects of this kind under the same names. Only those that `up` created count, by the uid
    # that it wrote into them.
    may_be_others: ClassVar[bool] = False
    deadline_s = 300.0
    poll_s = 0.1

    def __init__(self, adopted: Adopted, namespace: str, api: str) -> None:
        super().__init__()
        self.adopted = adopted
        self.kube = adopted.kube
        self.namespace = namespace
        self.api = api

    @abstractmethod
    def body(self, resource: Resource[O_contra]) -> dict[str, Any]:
        """Return the object's manifest without its name and cloudrec's labels."""

    def properties(self, found: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the observed properties, which are compared with the requested ones."""
        del found
        return {}

    def hourly_usd(self, tags: Mapping[str, str], found: Mapping[str, Any]) -> float | None:
        """Return the object's price in USD an hour: 0, since the nodes are billed and not objects."""
        del tags, found
        return FREE

    def search(self, cluster: str | None) -> Sequence[Observed]:
        """Find objects of this kind by label, except those that another object owns."""
        # Kubernetes deletes an owned object with its owner, which is found itself.
        found = [
            self.observe(each)
            for each in self._listed(labels.selector(cluster))
            if not each["metadata"].get("ownerReferences")
            and (self.takes_unmarked or labels.are_marked(each))
            and self.counts(each)
        ]
        return [seen for seen in found if seen.cluster and seen.key.partition("/")[0] == self.kind]

    def _listed(self, selector: str) -> list[dict[str, Any]]:
        """Return the objects in all namespaces; if that is denied, those in the runs' namespace."""
        try:
            return self._list(selector, "")
        except DeniedError:
            if not self.namespace:
                raise
            return self._list(selector, self.namespace)

    def _list(self, selector: str, namespace: str) -> list[dict[str, Any]]:
        try:
            return self.kube.list(self.api, namespace=namespace, labels=selector)
        except (AbsentError, UsageError):  # a kind of an add-on that is not installed
            return []

    def find(self, resource: Resource[O_contra]) -> Observed | None:
        """Return the object with the resource's name, even if cloudrec did not make it; None if none exists.

        A foreign object gets the resource's name and loses its key tag, so that its key is the resource's:
        the engine then compares the two, and refuses to change an object of another cluster.
        """
        asked = resource.properties
        found = self.kube.get(self.api, asked.name, namespace=asked.namespace or "")
        if found is None:
            return None
        seen = self.observe(found)
        if seen.cluster == resource.tags[TAG_CLUSTER] and self.counts(found):
            return seen
        whose = {name: value for name, value in seen.tags.items() if name != TAG_KEY}
        return replace(seen, name=resource.name, tags=whose)

    def look(self, identity: str) -> tuple[Condition, str]:
        """Return an object's state and an empty reason; GONE if cloudrec has no such object."""
        uid, namespace, name = identity.split("/")
        # The context leads to another cluster now: an object of the adopted one cannot be seen there.
        if uid != self.adopted.uid:
            return Condition.GONE, ""
        found = self.kube.get(self.api, name, namespace=namespace)
        if found is None or not labels.tags_of(found, self.kind) or not self.counts(found):
            return Condition.GONE, ""
        return _condition(found), ""

    def make(self, resource: Resource[O_contra], *, token: str, identities: Mapping[str, str]) -> str:
        """Create the object with its labels, and return its identity."""
        del token, identities
        made = self.kube.create(self.manifest(resource))
        return self.identity(made)

    def complete(self, resource: Resource[O_contra], identity: str, *, identities: Mapping[str, str]) -> None:
        """Write the object's uid into an annotation, if users also create objects of this kind."""
        # A backup that is restored as a copy has cloudrec's tags but another uid: see `labels.is_made`.
        del identities
        name, namespace = resource.properties.name, resource.properties.namespace or ""
        found = self.kube.get(self.api, name, namespace=namespace) if self.may_be_others else None
        if found is not None and self.identity(found) == identity and self.counts(found):
            note = {"metadata": {"annotations": {labels.UID: found["metadata"]["uid"]}}}
            self.kube.patch(self.api, name, note, namespace=namespace)

    def change(
        self, resource: Resource[O_contra], observed: Observed, *, identities: Mapping[str, str]
    ) -> None:
        """Patch the object with its manifest; fields that the manifest does not name stay unchanged."""
        del observed, identities
        self.kube.patch(
            self.api,
            resource.properties.name,
            self.manifest(resource),
            namespace=resource.properties.namespace or "",
        )

    def remove(self, observed: Observed) -> None:
        """Delete the object and those that it owns; does nothing if cloudrec did not make it."""
        found = self.ours(observed)
        # The uid is a precondition of the deletion: an object recreated under this name meanwhile stays.
        if found is not None:
            given = found["metadata"]
            namespace = given.get("namespace", "")
            self.kube.delete(self.api, given["name"], namespace=namespace, uid=given["uid"])

    def ours(self, observed: Observed) -> dict[str, Any] | None:
        """Return the current object; None if it does not exist or cloudrec did not make it."""
        uid, namespace, name = observed.identity.split("/")
        if uid != self.adopted.uid:
            return None
        found = self.kube.get(self.api, name, namespace=namespace)
        if found is None or not is_ours(labels.tags_of(found, self.kind), observed.cluster or None):
            return None
        return found if self.counts(found) else None

    def counts(self, found: Mapping[str, Any]) -> bool:
        """Return whether cloudrec made an object that has its labels."""
        cluster = labels.tags_of(found, self.kind).get(TAG_CLUSTER, "")
        return not self.may_be_others or labels.is_made(found, cluster)

    def manifest(self, resource: Resource[O_contra]) -> dict[str, Any]:
        """Return the complete manifest of a requested object."""
        known = self.kube.kinds.named(self.api)
        asked = resource.properties
        named = {"name": asked.name} | ({"namespace": asked.namespace} if asked.namespace else {})
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
        """Return an object from the API server as the engine's `Observed`."""
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
        """Return whether the object or its kind does not exist."""
        return isinstance(error, AbsentError)

    def verdict(self, error: Exception) -> ErrorVerdict:
        """Return whether a call can be retried after this error of the API server."""
        if isinstance(error, UnfinishedError):
            return error.verdict(self.verdict)
        if isinstance(error, ApiUnreachableError):
            return ErrorVerdict.LOST if error.was_sent else ErrorVerdict.FATAL
        if isinstance(error, ConflictError):
            return ErrorVerdict.LOST  # created or changed a moment ago: find it before a retry
        if isinstance(error, OverloadedError):
            return ErrorVerdict.RETRY if error.had_no_effect else ErrorVerdict.LOST
        return ErrorVerdict.LOST if isinstance(error, UnreadableAnswerError) else ErrorVerdict.FATAL

    def explain(self, error: Exception) -> CloudrecError:
        """Return the error as a CloudrecError."""
        if isinstance(error, CloudrecError):
            return error
        if isinstance(error, UnfinishedError):
            return self.explain(error.cause)
        if isinstance(error, UnreadableAnswerError):
            return PreflightError(
                f"what answers is not the cluster's API server: {error}",
                remedy="check the network, the proxy and the kubeconfig; the same command again continues",
            )
        return CloudrecError(f"{type(error).__name__}: {error}")


def _condition(found: Mapping[str, Any]) -> Condition:
    return Condition.DELETING if found["metadata"].get("deletionTimestamp") else Condition.READY
