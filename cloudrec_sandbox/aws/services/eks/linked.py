"""Clusters that the Kubernetes stand-in serves: `kubernetes` of /_control (`cloudrec_sandbox.core.linked`).

A token for a cluster's API is a signed request to STS, so it authenticates the role or user of its access
key. A principal without an access entry is not authenticated; one with an entry may do what RBAC allows its
groups, and what its access policies allow it ("Grant IAM users access to Kubernetes with EKS access
entries", EKS user guide).

Also {"endpoint": ..., "certificate_authority": ...}: the API server that clusters report, of any other
server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from moto.ec2.models.instance_types import INSTANCE_TYPES

from cloudrec_sandbox.aws.api.registry import setting
from cloudrec_sandbox.aws.services import iam
from cloudrec_sandbox.aws.services.eks.node_groups import disks, losses, nodes
from cloudrec_sandbox.aws.services.eks.state import Eks, Wishes
from cloudrec_sandbox.core import linked
from cloudrec_sandbox.core.linked import Picture

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from cloudrec_sandbox.aws.api.world import World
    from cloudrec_sandbox.aws.services.eks.state import AccessEntry, Cluster, Nodegroup

_EFFECTS = {"NO_SCHEDULE": "NoSchedule", "NO_EXECUTE": "NoExecute", "PREFER_NO_SCHEDULE": "PreferNoSchedule"}
# 5128 pages of 2 MiB, which an EFA node reserves (EKS user guide, "node-efa").
_MEMLOCK_GPUS = {"hugepages-2Mi": "10256Mi"}
# "Review access policy permissions", EKS user guide. The policies of single namespaces allow nothing here.
_POLICIES: Mapping[str, Sequence[str]] = {
    "AmazonEKSClusterAdminPolicy": ("*",),
    "AmazonEKSAdminViewPolicy": ("get", "list", "watch"),
}


def server_of(world: World, region: str, name: str) -> dict[str, str]:
    """Return the endpoint and the authority that a cluster reports; an empty mapping without a server."""
    server = linked.of(world, _key(region, name))
    if server is not None:
        return {"endpoint": server.server, "certificate_authority": server.authority_data}
    return world.state(Wishes).kubernetes


def look(world: World) -> dict[str, Picture]:
    """Return the clusters, with the machines of their node groups."""
    return {
        _key(region, name): _picture(world, region, cluster)
        for region, eks in world.states(Eks).items()
        for name, cluster in eks.clusters.items()
    }


def _key(region: str, name: str) -> str:
    return f"{region}/{name}"


def _picture(world: World, region: str, cluster: Cluster) -> Picture:
    if cluster.document["status"] not in ("ACTIVE", "UPDATING"):
        return Picture()
    return Picture(
        cluster=cluster.uid,
        nodes=tuple(_machines(world, region, cluster)),
        callers=_callers(world, cluster),
        is_reachable=_is_reachable(world, cluster),
        leaving=losses.leaving(world, region),
    )


def _callers(world: World, cluster: Cluster) -> list[dict[str, Any]]:
    """Return the users of the cluster's API, with what they may do now, as `Picture.callers`."""
    return [
        {
            "aws_key": key,
            "user": entry.document["username"],
            "groups": entry.document["kubernetesGroups"],
            "rules": _rules(entry),
        }
        for key, principal in sorted(iam.keys(world).items())
        if (entry := cluster.entries.get(principal)) is not None and entry.document["type"] == "STANDARD"
    ]


def _rules(entry: AccessEntry) -> list[dict[str, Any]]:
    return [
        {"apiGroups": ["*"], "resources": ["*"], "verbs": list(verbs)}
        for policy, found in sorted(entry.policies.items())
        if (verbs := _POLICIES.get(policy.rpartition("/")[2]))
        and found["accessScope"].get("type") == "cluster"
    ]


def _is_reachable(world: World, cluster: Cluster) -> bool:
    """Whether the API server answers the user's machine, which is outside the VPC.

    Without public access only the VPC reaches it; with it, the addresses of publicAccessCidrs do, too (EKS
    user guide, "Cluster API server endpoint").
    """
    config = cluster.document["resourcesVpcConfig"]
    return bool(config["endpointPublicAccess"]) and linked.is_admitted(world, config["publicAccessCidrs"])


def _machines(world: World, region: str, cluster: Cluster) -> Iterator[dict[str, Any]]:
    ec2 = world.backend("ec2", region)
    for group in cluster.nodegroups.values():
        for name in group.instances:
            instance = ec2.get_instance(name)
            if instance.state == "running":
                yield _node(world, region, group, instance)


def _node(world: World, region: str, group: Nodegroup, instance: Any) -> dict[str, Any]:  # noqa: ANN401 - moto's
    document, kind = group.document, INSTANCE_TYPES[instance.instance_type]
    zone = instance.placement.zone
    template = nodes.template_data(world, region, group)
    cards = template.get("NetworkInterfaces") or ()
    efa = sum(card.get("InterfaceType") in ("efa", "efa-only") for card in cards)
    gpus = sum(each["Count"] for each in kind.get("GpuInfo", {}).get("Gpus", ()))
    mebibytes = kind["MemoryInfo"]["SizeInMiB"]
    return {
        "name": str(instance.private_dns_name),
        "labels": {
            "eks.amazonaws.com/nodegroup": document["nodegroupName"],
            "eks.amazonaws.com/capacityType": document.get("capacityType", "ON_DEMAND"),
            "node.kubernetes.io/instance-type": instance.instance_type,
            "topology.kubernetes.io/zone": zone,
            "topology.kubernetes.io/region": region,
            **(document.get("labels") or {}),
        },
        "taints": [
            {"key": each["key"], "value": each.get("value", ""), "effect": _EFFECTS[each["effect"]]}
            for each in document.get("taints") or ()
        ],
        "capacity": {
            "cpu": str(kind["VCpuInfo"]["DefaultVCpus"]),
            "memory": f"{mebibytes}Mi",
            "ephemeral-storage": f"{disks.ephemeral_gib(document, template, kind)}Gi",
            **(_MEMLOCK_GPUS if efa else {}),
        },
        "hardware": {**({"gpus": gpus} if gpus else {}), **({"efa": efa} if efa else {})},
        "provider_id": f"aws:///{zone}/",
        "machine": str(instance.id),
    }


def _write(world: World, value: dict[str, Any] | None) -> None:
    if value and "endpoints" not in value:
        if unknown := sorted(set(value) - {"endpoint", "certificate_authority"}):
            raise ValueError(
                f"kubernetes has no {', '.join(unknown)}; it has: certificate_authority, endpoint"
            )
        world.state(Wishes).kubernetes = dict(value)
        return
    world.state(Wishes).kubernetes = {}
    linked.order(world, value, look=look, lose=losses.lose)


setting("kubernetes", read=lambda world: linked.read(world) or world.state(Wishes).kubernetes, write=_write)
