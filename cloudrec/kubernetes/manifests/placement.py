"""The resource requests, tolerations, affinity and annotations of a pod that trains."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from cloudrec.kubernetes.manifests.environment import GPUS
from cloudrec.kubernetes.manifests.names import trainers
from cloudrec.kubernetes.wishes import NODE_RUN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cloudrec.kubernetes.client.target import CardNetwork, ClusterTarget
    from cloudrec.kubernetes.manifests.workload import Workload
    from cloudrec.transport import Profile

_GONE_S = 30  # after which a pod on a lost node is replaced; Kubernetes' default is 300 s
_LOST = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
# Where the size of a node is not known. Without any request of cores and memory, a pod would be BestEffort:
# the first to be evicted, refused in a namespace with a quota, and refused if it requests huge pages.
_DISK = "ephemeral-storage"
_ZONE = "topology.kubernetes.io/zone"
_GIB = 1.073741824  # in GB
_LEAST = {"cpu": "100m", "memory": "256Mi"}
# Autoscalers must not move a pod: each move restarts the run. The disruption budget still allows drains.
_STAY = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false", "karpenter.sh/do-not-disrupt": "true"}


def resources(
    workload: Workload, target: ClusterTarget, profile: Profile
) -> tuple[dict[str, str], dict[str, str] | None]:
    """Return the requests and the limits of a pod that trains; None for no limits.

    Cores have no limit unless a quota needs one: a limit would throttle all threads of a rank, and no other
    run is on the node. Devices and huge pages need a limit, which must equal the request.
    """
    whole = of_whole_node(target, profile)
    memory = {"memory": f"{workload.memory_gib}Gi"} if workload.memory_gib else {}
    cores = {"cpu": str(workload.cpus)} if workload.cpus else {}
    disk = {_DISK: f"{workload.disk_gib}Gi"} if workload.disk_gib else {}
    requests = {**_LEAST, **cores, **memory, **disk, **whole}
    # No other run is on the node: beyond its share a pod is evicted, rather than the node's disk filled.
    most = {_DISK: f"{max(workload.disk_gib, int(target.disk_gb / _GIB))}Gi"} if disk else {}
    limits = {**memory, **most, **whole, **({"cpu": requests["cpu"]} if target.limits_cores else {})}
    return requests, limits or None


def of_whole_node(target: ClusterTarget, profile: Profile) -> dict[str, str]:
    """Return the devices and huge pages of a pod that uses a whole node, without those that it claims."""
    # The numbers of the machine come before those of its family's profile.
    found = {**(profile.resources if _has_cards(target, profile) else {}), **target.resources}
    claimed = {each.resource for each in target.claims}
    return {name: value for name, value in found.items() if name not in claimed}


def device_requests(target: ClusterTarget) -> dict[str, dict[str, Any]]:
    """Return the requests of a pod's claims for the devices of a whole node, by the claim's name.

    Each class has a claim: at most 32 devices can be allocated to one (ResourceClaim in Kubernetes' API).
    """
    return {
        f"devices-{number}": {
            "name": "all",
            "exactly": {
                "deviceClassName": each.device_class,
                "allocationMode": "ExactCount",
                "count": int(target.resources[each.resource]),
            },
        }
        for number, each in enumerate(target.claims)
        if each.resource in target.resources
    }


def claim_template(run: str, claim: str) -> str:
    """Return the name of the template of a claim of a run's pods."""
    return f"{run}-{claim}"


def tolerations(target: ClusterTarget, *, gpus: bool = True) -> list[dict[str, Any]]:
    """Return a pod's tolerations: of its nodes' taints, and of a node that is unreachable for 30 s."""
    lost = [
        {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": _GONE_S}
        for key in _LOST
    ]
    return (node_tolerations(target) if gpus else []) + lost


def node_tolerations(target: ClusterTarget) -> list[dict[str, Any]]:
    """Return the tolerations of the taints that the nodes for runs have."""
    own: list[dict[str, Any]] = [dict(each) for each in target.tolerations]
    if GPUS in target.resources and not any(each.get("key") == GPUS for each in own):
        own.append({"key": GPUS, "operator": "Exists", "effect": "NoSchedule"})
    return own


def one_a_node(workload: Workload, target: ClusterTarget) -> dict[str, Any]:
    """Return the affinity of a run's pods: one on a node, required if each uses a whole node; all in a zone.

    The first pod of a run matches the term of its zone by itself.
    """
    together = {"topologyKey": _ZONE, "labelSelector": {"matchLabels": trainers(workload.run)}}
    zone = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [together]}}
    own = {**zone, **_own_nodes(workload.run)} if target.is_managed else {}
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": trainers(workload.run)}}
    if target.resources:
        return {**own, "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    wish = [{"weight": 100, "podAffinityTerm": term}]
    return {**own, "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": wish}}


def _own_nodes(run: str) -> dict[str, Any]:
    """Return the affinity to nodes that the keeper has not given to another run."""
    terms = [
        {"matchExpressions": [{"key": NODE_RUN, "operator": "In", "values": [run]}]},
        {"matchExpressions": [{"key": NODE_RUN, "operator": "DoesNotExist"}]},
    ]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}


def pod_annotations(target: ClusterTarget, profile: Profile) -> dict[str, str]:
    """Return the annotations of a pod that trains, for autoscalers and the cloud's network."""
    return {**_STAY, **profile.annotations, **_networks(target.networks, profile.default_interface)}


def _networks(networks: Sequence[CardNetwork], default: str) -> dict[str, str]:
    if not networks:
        return {}
    own = default or "eth0"
    cards = [{"interfaceName": own, "network": "default"}]
    cards += [{"interfaceName": each.interface, "network": each.object_name} for each in networks]
    return {
        "networking.gke.io/default-interface": own,
        "networking.gke.io/interfaces": json.dumps(cards),
    }


def _has_cards(target: ClusterTarget, profile: Profile) -> bool:
    return bool(profile.card_resource) and profile.card_resource in target.resources
