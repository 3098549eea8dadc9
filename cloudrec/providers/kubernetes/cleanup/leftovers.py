"""The other objects in the cluster with cloudrec's label: runs, add-ons, and their parts."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn

from cloudrec.providers.kubernetes.api import labels, private
from cloudrec.providers.kubernetes.api.driver import ObjectDriver
from cloudrec.providers.kubernetes.cluster.cluster import ACCOUNT, NAMESPACE, NamespaceDriver

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from cloudrec.engine.graph import Observed, Resource
    from cloudrec.providers.base.driver import CloudDriver
    from cloudrec.providers.kubernetes.api.client import Adopted
    from cloudrec.providers.kubernetes.layout import KubeLayout

# The layers in the order of removal: runs before their operators, and operators before the objects and kinds
# that they use. A kind's definition, deleted earlier, would delete its runs without their operator's
# clean-up.
_RUNS = {
    "rayjob": "ray.io/v1/RayJob",
    "trainjob": "trainer.kubeflow.org/v1alpha1/TrainJob",
    "jobset": "jobset.x-k8s.io/v1alpha2/JobSet",
    "pytorchjob": "kubeflow.org/v1/PyTorchJob",
    "job": "Job",
    "cronjob": "CronJob",
    "pod": "Pod",
}
_PROGRAMS = {
    "mutating-webhook": "MutatingWebhookConfiguration",
    "validating-webhook": "ValidatingWebhookConfiguration",
    "deployment": "Deployment",
    "daemonset": "DaemonSet",
    "statefulset": "StatefulSet",
}
_PARTS = {
    "disruption-budget": "PodDisruptionBudget",
    "network-policy": "NetworkPolicy",
    "service": "Service",
    "configmap": "ConfigMap",
    "secret": "Secret",
    "lease": "Lease",
    "volume-claim": "PersistentVolumeClaim",
    "role-binding": "RoleBinding",
    "role": "Role",
    "cluster-role-binding": "ClusterRoleBinding",
    "cluster-role": "ClusterRole",
    "storage-class": "StorageClass",
    "priority-class": "PriorityClass",
}
_ACCOUNTS = {"account": "ServiceAccount"}  # the guard's and the add-ons'; the runs' is a resource of `up`
_SPACES = {"add-on-namespace": "Namespace"}
_DEFINITIONS = {"definition": "CustomResourceDefinition"}
_LAYERS: Sequence[Mapping[str, str]] = (
    _RUNS,
    _PROGRAMS,
    _PARTS,
    _ACCOUNTS,
    _DEFINITIONS,
    _SPACES,
)
SEARCHED = tuple(
    api for layer in _LAYERS for api in layer.values() if "/" not in api
)  # without operators' kinds
_BASE = frozenset({NAMESPACE, ACCOUNT, private.KUBECONFIG})


def _kinds() -> Mapping[str, AbstractSet[str]]:
    found: dict[str, AbstractSet[str]] = {}
    for number, layer in enumerate(_LAYERS):
        below = frozenset(kind for under in _LAYERS[number + 1 :] for kind in under)
        found |= dict.fromkeys(layer, below | _BASE)
    return MappingProxyType(found)


KINDS = _kinds()


def resources(layout: KubeLayout) -> list[Resource]:
    """Return no resources: `up` creates none of these kinds."""
    del layout
    return []


def drivers(adopted: Adopted, namespace: str) -> Mapping[str, CloudDriver]:
    """Return kind -> driver."""
    special = {"account": AccountLeftoverDriver, "add-on-namespace": AddOnNamespaceDriver}
    return {
        kind: special.get(kind, LeftoverDriver)(adopted, namespace, kind, api)
        for layer in _LAYERS
        for kind, api in layer.items()
    }


class LeftoverDriver(ObjectDriver):
    """The driver of objects that launchers and add-ons made; it finds and deletes them, and creates none."""

    def __init__(self, adopted: Adopted, namespace: str, kind: str, api: str) -> None:
        super().__init__(adopted, namespace, api)
        self.kind = kind  # type: ignore[misc]  # one class for many kinds

    def body(self, resource: Resource) -> NoReturn:
        """Raise AssertionError: no graph has a resource of this kind."""
        raise AssertionError(f"{resource.key} is not made by `up`")

    def properties(self, found: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return no properties, since nothing is requested."""
        del found
        return {}

    def observe(self, found: Mapping[str, Any]) -> Observed:
        """Return the object, marked as one that `up` ignores and `down` removes."""
        return replace(super().observe(found), outside_graph=True)


class AddOnNamespaceDriver(LeftoverDriver, NamespaceDriver):
    """The driver of add-ons' namespaces; like the runs' namespace, one with foreign objects is kept."""

    takes_unmarked = True
    changeable = frozenset()

    def counts(self, found: Mapping[str, Any]) -> bool:
        """Return whether it has an add-on's label: foreign namespaces may have other labels of cloudrec."""
        return labels.ADD_ON in (found["metadata"].get("labels") or {})


class AccountLeftoverDriver(LeftoverDriver):
    """The driver of the service accounts of add-ons and of the guard."""

    def counts(self, found: Mapping[str, Any]) -> bool:
        """Return whether it has an add-on's or a role's label: foreign accounts may have other ones."""
        given = found["metadata"].get("labels") or {}
        return labels.ADD_ON in given or labels.ROLE in given
