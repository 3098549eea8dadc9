"""Where the API keeps each kind of object: known ones by heart, others asked for once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from cloudrec.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of object.

    Attributes:
        version: its apiVersion: v1, apps/v1.
        name: as objects say it: Pod.
        plural: as paths say it: pods.
        namespaced: whether its objects live in a namespace.
    """

    version: str
    name: str
    plural: str
    namespaced: bool = True

    def path(self, *, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """Return the path of one object, or of all of them (in all namespaces where none is given)."""
        root = f"/apis/{self.version}" if "/" in self.version else f"/api/{self.version}"
        place = f"/namespaces/{quote(namespace, safe='')}" if namespace and self.namespaced else ""
        of = f"/{quote(name, safe='')}" if name else ""
        return f"{root}{place}/{self.plural}{of}" + (f"/{subresource}" if subresource else "")


_CORE = "ConfigMap Event PersistentVolumeClaim Pod ResourceQuota Secret Service ServiceAccount LimitRange"
_KNOWN = {
    "v1": (_CORE, "Namespace Node PersistentVolume"),
    "apps/v1": ("ControllerRevision DaemonSet Deployment ReplicaSet StatefulSet", ""),
    "batch/v1": ("CronJob Job", ""),
    "policy/v1": ("PodDisruptionBudget", ""),
    "networking.k8s.io/v1": ("Ingress", "IngressClass"),
    "rbac.authorization.k8s.io/v1": ("Role RoleBinding", "ClusterRole ClusterRoleBinding"),
    "scheduling.k8s.io/v1": ("", "PriorityClass"),
    "storage.k8s.io/v1": ("", "CSIDriver StorageClass"),
    "apiextensions.k8s.io/v1": ("", "CustomResourceDefinition"),
    "admissionregistration.k8s.io/v1": ("", "MutatingWebhookConfiguration ValidatingWebhookConfiguration"),
    "coordination.k8s.io/v1": ("Lease", ""),
    "kubeflow.org/v1": ("PyTorchJob", ""),
    "trainer.kubeflow.org/v1alpha1": ("TrainJob TrainingRuntime", "ClusterTrainingRuntime"),
    "ray.io/v1": ("RayJob RayCluster", ""),
    "jobset.x-k8s.io/v1alpha2": ("JobSet", ""),
}
_IRREGULAR = {"Ingress": "ingresses", "IngressClass": "ingressclasses", "StorageClass": "storageclasses",
              "PriorityClass": "priorityclasses", "NetworkPolicy": "networkpolicies"}  # fmt: skip


def _kind(version: str, name: str, *, namespaced: bool) -> Kind:
    plural = _IRREGULAR.get(name, f"{name.lower()}s")
    return Kind(version=version, name=name, plural=plural, namespaced=namespaced)


_BY_HEART = [
    _kind(version, name, namespaced=namespaced)
    for version, groups in _KNOWN.items()
    for namespaced, names in zip((True, False), groups, strict=True)
    for name in names.split()
] + [_kind("networking.k8s.io/v1", "NetworkPolicy", namespaced=True)]


class Kinds:
    """Every kind that this server has, as far as it was asked about."""

    def __init__(self, ask: Callable[[str], Mapping[str, Any] | None]) -> None:
        """`ask` reads a path of the API, and returns None where there is none."""
        self._ask = ask
        self._known = {(kind.version, kind.name): kind for kind in _BY_HEART}

    def named(self, name: str) -> Kind:
        """Return the kind named Pod, or apps/v1/DaemonSet; UsageError where there is none."""
        version, _, short = name.rpartition("/")
        if version:
            return self.of(version, short)
        found = [kind for kind in _BY_HEART if kind.name == name]
        if not found:
            raise UsageError(
                f"{name!r} alone does not say which kind is meant", remedy="say GROUP/VERSION/KIND"
            )
        return found[0]

    def of(self, version: str, name: str) -> Kind:
        """Return a kind of an apiVersion; UsageError where the cluster has none of that name."""
        found = self._known.get((version, name)) or self._asked(version).get(name)
        if found is None:
            raise UsageError(
                f"the cluster knows no {name} of {version}", remedy="install the add-on whose kind it is"
            )
        self._known[version, name] = found
        return found

    def has(self, name: str) -> bool:
        """Tell whether the server serves a kind, named as for `named`."""
        version, _, short = name.rpartition("/")
        return short in self._asked(version or self.named(name).version)

    def _asked(self, version: str) -> dict[str, Kind]:
        answer = self._ask(f"/apis/{version}" if "/" in version else f"/api/{version}") or {}
        return {
            entry["kind"]: Kind(
                version=version, name=entry["kind"], plural=entry["name"], namespaced=entry["namespaced"]
            )
            for entry in answer.get("resources") or []
            if "/" not in entry["name"]
        }
