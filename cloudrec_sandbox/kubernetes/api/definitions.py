"""Kinds from CustomResourceDefinitions, served a moment after these are applied; operators' kinds.

Operators' kinds have a schema that allows everything, unless their real definitions are applied. Kueue's
queues have that of `queue_kinds`, PodMonitors and PodMonitorings that of `monitor_kinds`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.kubernetes.objects import schema
from cloudrec_sandbox.kubernetes.objects.operators.monitor_kinds import MONITORS
from cloudrec_sandbox.kubernetes.objects.operators.queue_kinds import SCHEMAS
from cloudrec_sandbox.kubernetes.objects.table import ADDED, DELETED, MODIFIED, Entry

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from cloudrec_sandbox.kubernetes.api.world import Cluster
    from cloudrec_sandbox.kubernetes.storage.store import Store

_ANYTHING = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
KEY = "customresourcedefinitions"
DELAY = "definition"
# name: group, version, and kinds with their plurals; a plural that begins with a dot is cluster-scoped
OPERATORS: dict[str, tuple[tuple[str, str, dict[str, str]], ...]] = {
    "pytorchjob": (("kubeflow.org", "v1", {"PyTorchJob": "pytorchjobs"}),),
    "trainjob": (
        (
            "trainer.kubeflow.org",
            "v1alpha1",
            {
                "TrainJob": "trainjobs",
                "TrainingRuntime": "trainingruntimes",
                "ClusterTrainingRuntime": ".clustertrainingruntimes",
            },
        ),
        ("jobset.x-k8s.io", "v1alpha2", {"JobSet": "jobsets"}),
    ),
    "jobset": (("jobset.x-k8s.io", "v1alpha2", {"JobSet": "jobsets"}),),
    "rayjob": (("ray.io", "v1", {"RayJob": "rayjobs", "RayCluster": "rayclusters"}),),
    "kueue": (
        (
            "kueue.x-k8s.io",
            "v1beta2",
            {
                "Workload": "workloads",
                "LocalQueue": "localqueues",
                "ClusterQueue": ".clusterqueues",
                "ResourceFlavor": ".resourceflavors",
                "Topology": ".topologies",
            },
        ),
    ),
    "prometheus": (
        ("monitoring.coreos.com", "v1", {"PodMonitor": "podmonitors", "ServiceMonitor": "servicemonitors"}),
    ),
    # AKS's agent for Azure Monitor: the same kinds in another group.
    "azure-monitor": (
        (
            "azmonitoring.coreos.com",
            "v1",
            {"PodMonitor": "podmonitors", "ServiceMonitor": "servicemonitors"},
        ),
    ),
    "google-prometheus": (
        (
            "monitoring.googleapis.com",
            "v1",
            {"PodMonitoring": "podmonitorings", "ClusterPodMonitoring": ".clusterpodmonitorings"},
        ),
    ),
    "gke-networking": (
        (
            "networking.gke.io",
            "v1",
            {"Network": ".networks", "GKENetworkParamSet": ".gkenetworkparamsets"},
        ),
    ),
}


class Definitions:
    """Serves a kind once its definition is established, and stops when the definition is gone."""

    def __init__(self, world: Cluster) -> None:
        self._world = world
        self.schemas: dict[tuple[str, str], schema.Node] = {}
        world.store.table.watch_entries(self._note)

    def node(self, api_version: str, kind: str) -> schema.Node:
        """Return the schema of a defined kind's objects."""
        return self.schemas.get((api_version, kind), schema.ANYTHING)

    def _note(self, type_: str, entry: Entry) -> None:
        if entry.key != KEY:
            return
        if type_ == ADDED:
            # As in kube-apiserver, a definition is not served the moment that it is created: clients must
            # wait for it.
            self._world.after(self._world.duration(DELAY), establish, entry.obj["metadata"]["name"])
        elif type_ == MODIFIED and _is_established(entry.obj):
            self.serve(entry.obj)
        elif type_ == DELETED:
            spec = entry.obj["spec"]
            self._world.store.resources.drop(spec["group"], spec["names"]["plural"])

    def serve(self, definition: Mapping[str, Any]) -> None:
        """Serve the kind in all its versions."""
        spec = definition["spec"]
        names = spec["names"]
        for version in spec["versions"]:
            if not version.get("served"):
                continue
            resource = self._world.store.resources.add(
                group=spec["group"],
                version=version["name"],
                kind=names["kind"],
                plural=names["plural"],
                singular=names.get("singular", ""),
                namespaced=spec["scope"] == "Namespaced",
                short_names=names.get("shortNames") or (),
                subresources=tuple(version.get("subresources") or ()),
            )
            raw = (version.get("schema") or {}).get("openAPIV3Schema") or {}
            self.schemas[resource.api_version, resource.kind] = schema.custom(raw)


def establish(world: Cluster, name: str) -> None:
    """Let a definition take effect; a step of the agenda."""
    definition = world.store.get(KEY, None, name)
    if definition is None:
        return
    now = world.store.timestamp()
    definition["status"] = {
        "acceptedNames": definition["spec"]["names"],
        "storedVersions": [each["name"] for each in definition["spec"]["versions"] if each.get("storage")],
        "conditions": [
            {
                "type": kind,
                "status": "True",
                "lastTransitionTime": now,
                "reason": reason,
                "message": message,
            }
            for kind, reason, message in (
                ("NamesAccepted", "NoConflicts", "no conflicts found"),
                ("Established", "InitialNamesAccepted", "the initial names have been accepted"),
            )
        ],
    }
    world.store.update(KEY, definition, "status")


def _is_established(definition: Mapping[str, Any]) -> bool:
    conditions = (definition.get("status") or {}).get("conditions") or ()
    return any(each["type"] == "Established" and each["status"] == "True" for each in conditions)


def of_operator(name: str) -> list[dict[str, Any]]:
    """Return an operator's definitions, which allow everything; ValueError for an unknown operator."""
    if name not in OPERATORS:
        raise ValueError(f"there is no operator {name!r}; there are: {', '.join(sorted(OPERATORS))}")
    return [
        _open(group, version, kind, plural)
        for group, version, kinds in OPERATORS[name]
        for kind, plural in kinds.items()
    ]


def _open(group: str, version: str, kind: str, plural: str) -> dict[str, Any]:
    bare = plural.lstrip(".")
    return {
        "metadata": {"name": f"{bare}.{group}"},
        "spec": {
            "group": group,
            "names": {"kind": kind, "listKind": f"{kind}List", "plural": bare, "singular": kind.lower()},
            "scope": "Namespaced" if bare == plural else "Cluster",
            "versions": [
                {
                    "name": version,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": {**SCHEMAS, **MONITORS}.get(kind, _ANYTHING)},
                    "subresources": {"status": {}},
                }
            ],
        },
    }


def install(store: Store, definitions: Iterable[Mapping[str, Any] | str]) -> None:
    """Create definitions, or those of operators by name; existing ones stay as they are."""
    for each in definitions:
        for definition in of_operator(each) if isinstance(each, str) else (each,):
            if store.get(KEY, None, definition["metadata"]["name"]) is None:
                store.create(KEY, definition)


def remove(store: Store, operator: str) -> None:
    """Delete an operator's definitions, and so all objects of its kinds."""
    for definition in of_operator(operator):
        name = definition["metadata"]["name"]
        if store.get(KEY, None, name) is not None:
            store.delete(KEY, None, name)
