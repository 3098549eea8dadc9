"""The kinds that an API server serves: the built-in ones, and those from definitions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.kubernetes.objects.errors import no_such_path

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")

# group version kind plural scope (Namespaced, Cluster) short names; subresources
_BUILT_IN = """
- v1 Namespace namespaces C ns; status
- v1 Node nodes C no; status
- v1 PersistentVolume persistentvolumes C pv; status
- v1 Pod pods N po; status log exec portforward eviction binding resize
- v1 Service services N svc; status
- v1 Endpoints endpoints N ep;
- v1 ConfigMap configmaps N cm;
- v1 Secret secrets N -;
- v1 ServiceAccount serviceaccounts N sa; token
- v1 Event events N ev;
- v1 PersistentVolumeClaim persistentvolumeclaims N pvc; status
- v1 ResourceQuota resourcequotas N quota; status
- v1 LimitRange limitranges N limits;
- v1 PodTemplate podtemplates N -;
- v1 ReplicationController replicationcontrollers N rc; status scale
apps v1 Deployment deployments N deploy; status scale
apps v1 ReplicaSet replicasets N rs; status scale
apps v1 StatefulSet statefulsets N sts; status scale
apps v1 DaemonSet daemonsets N ds; status
apps v1 ControllerRevision controllerrevisions N -;
batch v1 Job jobs N -; status
batch v1 CronJob cronjobs N cj; status
policy v1 PodDisruptionBudget poddisruptionbudgets N pdb; status
autoscaling v2 HorizontalPodAutoscaler horizontalpodautoscalers N hpa; status
networking.k8s.io v1 NetworkPolicy networkpolicies N netpol;
networking.k8s.io v1 Ingress ingresses N ing; status
networking.k8s.io v1 IngressClass ingressclasses C -;
rbac.authorization.k8s.io v1 Role roles N -;
rbac.authorization.k8s.io v1 RoleBinding rolebindings N -;
rbac.authorization.k8s.io v1 ClusterRole clusterroles C -;
rbac.authorization.k8s.io v1 ClusterRoleBinding clusterrolebindings C -;
storage.k8s.io v1 StorageClass storageclasses C sc;
storage.k8s.io v1 CSIDriver csidrivers C -;
storage.k8s.io v1 CSINode csinodes C -;
storage.k8s.io v1 VolumeAttachment volumeattachments C -; status
scheduling.k8s.io v1 PriorityClass priorityclasses C pc;
coordination.k8s.io v1 Lease leases N -;
events.k8s.io v1 Event events N ev;
discovery.k8s.io v1 EndpointSlice endpointslices N -;
node.k8s.io v1 RuntimeClass runtimeclasses C -;
resource.k8s.io v1 DeviceClass deviceclasses C -;
resource.k8s.io v1 ResourceClaim resourceclaims N -; status
resource.k8s.io v1 ResourceClaimTemplate resourceclaimtemplates N -;
resource.k8s.io v1 ResourceSlice resourceslices C -;
admissionregistration.k8s.io v1 ValidatingWebhookConfiguration validatingwebhookconfigurations C -;
admissionregistration.k8s.io v1 MutatingWebhookConfiguration mutatingwebhookconfigurations C -;
admissionregistration.k8s.io v1 ValidatingAdmissionPolicy validatingadmissionpolicies C -; status
admissionregistration.k8s.io v1 ValidatingAdmissionPolicyBinding validatingadmissionpolicybindings C -;
apiextensions.k8s.io v1 CustomResourceDefinition customresourcedefinitions C crd crds; status
apiregistration.k8s.io v1 APIService apiservices C -; status
authentication.k8s.io v1 SelfSubjectReview selfsubjectreviews C -;
authentication.k8s.io v1 TokenReview tokenreviews C -;
authorization.k8s.io v1 SelfSubjectAccessReview selfsubjectaccessreviews C -;
authorization.k8s.io v1 SelfSubjectRulesReview selfsubjectrulesreviews C -;
authorization.k8s.io v1 SubjectAccessReview subjectaccessreviews C -;
"""
_COUNTED = {
    "pods",
    "jobs",
    "cronjobs",
    "deployments",
    "replicasets",
    "statefulsets",
    "daemonsets",
    "replicationcontrollers",
    "poddisruptionbudgets",
    "ingresses",
    "networkpolicies",
    "priorityclasses",
    "endpointslices",
    "customresourcedefinitions",
    "validatingwebhookconfigurations",
    "mutatingwebhookconfigurations",
}
_REVIEWS = ("authentication.k8s.io", "authorization.k8s.io")


@dataclass(frozen=True, kw_only=True)
class Resource:
    """One kind and where it is served; `key` names it in the store."""

    group: str
    version: str
    kind: str
    plural: str
    singular: str
    namespaced: bool
    key: str
    short_names: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()
    custom: bool = False

    @property
    def api_version(self) -> str:
        """Return group and version as objects have them."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def has_generation(self) -> bool:
        """Return whether changes of the spec are counted."""
        return self.custom or self.key in _COUNTED

    @property
    def is_review(self) -> bool:
        """Return whether it is a review, which is answered but not stored."""
        return self.group in _REVIEWS

    @property
    def verbs(self) -> tuple[str, ...]:
        """Return the verbs that it supports."""
        if self.key == "namespaces":  # each is deleted by its name
            return tuple(verb for verb in VERBS if verb != "deletecollection")
        return ("create",) if self.is_review else VERBS

    @property
    def has_status(self) -> bool:
        """Return whether the status is changed by its subresource only."""
        return "status" in self.subresources


def _built_in() -> Iterator[Resource]:
    for line in _BUILT_IN.strip().splitlines():
        left, _, subresources = line.partition(";")
        group, version, kind, plural, scope, *short = left.split()
        group = "" if group == "-" else group
        yield Resource(
            group=group,
            version=version,
            kind=kind,
            plural=plural,
            singular=kind.lower(),
            namespaced=scope == "N",
            key=plural,
            short_names=tuple(name for name in short if name != "-"),
            subresources=tuple(subresources.split()),
        )


class Resources:
    """The kinds that are served now."""

    def __init__(self) -> None:
        self._served: dict[tuple[str, str, str], Resource] = {}
        self._by_key: dict[str, Resource] = {}
        self.clear()

    def clear(self) -> None:
        """Serve only the built-in kinds."""
        self._served.clear()
        self._by_key.clear()
        for resource in _built_in():
            self._served[resource.group, resource.version, resource.plural] = resource
            self._by_key.setdefault(resource.key, resource)

    def add(
        self,
        *,
        group: str,
        version: str,
        kind: str,
        plural: str,
        namespaced: bool,
        singular: str = "",
        short_names: Sequence[str] = (),
        subresources: Sequence[str] = (),
    ) -> Resource:
        """Serve a custom kind; its key is its plural, with the group if another kind has that plural."""
        taken = self._by_key.get(plural)
        key = plural if taken is None or taken.group == group else f"{plural}.{group}"
        resource = Resource(
            group=group,
            version=version,
            kind=kind,
            plural=plural,
            singular=singular or kind.lower(),
            namespaced=namespaced,
            key=key,
            short_names=tuple(short_names),
            subresources=tuple(subresources),
            custom=True,
        )
        self._served[group, version, plural] = resource
        self._by_key[key] = resource
        return resource

    def drop(self, group: str, plural: str) -> None:
        """Stop serving a custom kind, in all versions."""
        for place in [place for place in self._served if place[0] == group and place[2] == plural]:
            self._by_key.pop(self._served.pop(place).key, None)

    def find(self, group: str, version: str, plural: str) -> Resource | None:
        """Return the kind at a place; None if there is none."""
        return self._served.get((group, version, plural))

    def of_kind(self, api_version: str, kind: str) -> Resource | None:
        """Return the kind that objects name; None if there is none."""
        for resource in self._served.values():
            if resource.kind == kind and resource.api_version == api_version:
                return resource
        return None

    def by_key(self, key: str) -> Resource:
        """Return the kind by its key in the store: a plural, or plural.group; refused if it is not served."""
        found = self._by_key.get(key)
        if found is None:
            plural, _, group = key.partition(".")
            found = self._by_key.get(plural)
            if found is None or found.group != group:
                raise no_such_path()
        return found

    def served(self) -> list[Resource]:
        """Return all kinds, at each place."""
        return list(self._served.values())

    def stored(self) -> list[Resource]:
        """Return all kinds, each once."""
        return list(self._by_key.values())

    def groups(self) -> Mapping[str, list[str]]:
        """Return versions by group, without the core's."""
        found: dict[str, list[str]] = {}
        for group, version, _ in self._served:
            if group and version not in found.setdefault(group, []):
                found[group].append(version)
        return found


def reference(resource: Resource, obj: Mapping[str, Any]) -> dict[str, Any]:
    """Return an ownerReference to an object, as a controller sets it."""
    metadata = obj["metadata"]
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
