"""Everything else in the cluster that bears our label: runs, add-ons, and what belongs to them."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn

from cloudrec.providers.kubernetes import private
from cloudrec.providers.kubernetes.cluster import ACCOUNT, NAMESPACE
from cloudrec.providers.kubernetes.driver import ObjectDriver

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from cloudrec.cloud.driver import CloudDriver
    from cloudrec.engine.graph import Resource
    from cloudrec.providers.kubernetes.client import Adopted
    from cloudrec.providers.kubernetes.layout import Layout

# What goes first, and after it what it stands on: runs, their operators, what these need, their kinds.
_RUNS = {
    "rayjob": "ray.io/v1/RayJob",
    "trainjob": "trainer.kubeflow.org/v1alpha1/TrainJob",
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
_DEFINITIONS = {"definition": "CustomResourceDefinition"}
_LAYERS: Sequence[Mapping[str, str]] = (_RUNS, _PROGRAMS, _PARTS, _DEFINITIONS)
_BASE = frozenset({NAMESPACE, ACCOUNT, private.KUBECONFIG})


def _kinds() -> Mapping[str, AbstractSet[str]]:
    found: dict[str, AbstractSet[str]] = {}
    for number, layer in enumerate(_LAYERS):
        below = frozenset(kind for under in _LAYERS[number + 1 :] for kind in under)
        found |= dict.fromkeys(layer, below | _BASE)
    return MappingProxyType(found)


KINDS = _kinds()


def resources(layout: Layout) -> list[Resource]:
    """Describe nothing: `up` makes none of it."""
    del layout
    return []


def drivers(adopted: Adopted, namespace: str) -> Mapping[str, CloudDriver]:
    """Return the drivers by kind."""
    return {
        kind: LeftoverDriver(adopted, namespace, kind, api)
        for layer in _LAYERS
        for kind, api in layer.items()
    }


class LeftoverDriver(ObjectDriver):
    """Handles what others of cloudrec's parts made: it is found and removed, and never made here."""

    def __init__(self, adopted: Adopted, namespace: str, kind: str, api: str) -> None:
        super().__init__(adopted, namespace, api)
        self.kind = kind  # type: ignore[misc]  # one class for many kinds

    def body(self, resource: Resource) -> NoReturn:
        """Refuse: nobody asks for one."""
        raise AssertionError(f"{resource.key} is not made by `up`")

    def properties(self, found: Mapping[str, Any]) -> Mapping[str, Any]:
        """Tell nothing: it has no drift."""
        del found
        return {}
