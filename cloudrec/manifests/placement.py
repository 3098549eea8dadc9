"""What a pod asks of its node, which nodes will do, and what it puts up with there."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from cloudrec.manifests.environment import GPUS
from cloudrec.manifests.names import trainers

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cloudrec.kube.target import Target
    from cloudrec.manifests.workload import Workload
    from cloudrec.plan.transport import Profile

_GONE_S = 30  # a node that vanishes is given up after this, and not after Kubernetes' own 300 s
_LOST = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_HUGE = "hugepages-"
# No autoscaler is to move a pod at will: a run has no good moment for it. Drains are paced by the budget.
_STAY = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false", "karpenter.sh/do-not-disrupt": "true"}


def resources(
    workload: Workload, target: Target, profile: Profile
) -> tuple[dict[str, str] | None, dict[str, str] | None]:
    """Return what a pod that trains asks for, and what it may use.

    Cores have no limit: one that is reached stops all threads of a rank for a while, and nobody else is on
    the node. Devices and huge pages must be limits, and are the same in both.
    """
    whole = {**target.resources, **(profile.resources if _has_cards(target, profile) else {})}
    memory = {"memory": f"{workload.memory_gib}Gi"} if workload.memory_gib else {}
    cores = {"cpu": str(workload.cpus)} if workload.cpus else {}
    if not cores and not memory and any(name.startswith(_HUGE) for name in whole):
        cores = {"cpu": "1"}  # the API server takes huge pages only beside cores or memory
    requests, limits = {**cores, **memory, **whole}, {**memory, **whole}
    return requests or None, limits or None


def tolerations(target: Target, *, gpus: bool = True) -> list[dict[str, Any]]:
    """Return what a pod puts up with: its nodes' taints, and that its node is lost for a moment."""
    own: list[dict[str, Any]] = [dict(each) for each in target.tolerations] if gpus else []
    if gpus and GPUS in target.resources and not any(each.get("key") == GPUS for each in own):
        own.append({"key": GPUS, "operator": "Exists", "effect": "NoSchedule"})
    lost = [
        {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": _GONE_S}
        for key in _LOST
    ]
    return own + lost


def one_a_node(workload: Workload, target: Target) -> dict[str, Any]:
    """Return that no pods of a run share a node: by all means where each has it whole, else if possible."""
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": trainers(workload.run)}}
    if target.resources:
        return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    wish = [{"weight": 100, "podAffinityTerm": term}]
    return {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": wish}}


def pod_annotations(target: Target, profile: Profile) -> dict[str, str]:
    """Return what autoscalers and the cloud's own parts read of a pod that trains."""
    return {**_STAY, **profile.annotations, **_networks(target.networks, profile.default_interface)}


def network_name(network: str) -> str:
    """Return the name of the Kubernetes object of a cloud's network, a path that ends with its name."""
    return network.rpartition("/")[2]


def _networks(networks: Sequence[Mapping[str, str]], default: str) -> dict[str, str]:
    if not networks:
        return {}
    own = default or "eth0"
    cards = [{"interfaceName": own, "network": "default"}]
    cards += [
        {"interfaceName": each["interface"], "network": network_name(each["network"])} for each in networks
    ]
    return {
        "networking.gke.io/default-interface": own,
        "networking.gke.io/interfaces": json.dumps(cards),
    }


def _has_cards(target: Target, profile: Profile) -> bool:
    return bool(profile.card_resource) and profile.card_resource in target.resources
