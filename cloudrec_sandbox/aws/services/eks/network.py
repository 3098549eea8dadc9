"""What EKS puts into the caller's VPC: the cluster's security group and the control plane's interfaces."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cloudrec_sandbox.aws.api.world import World
    from cloudrec_sandbox.aws.services.eks.state import Cluster

_MOST_INTERFACES = 4
_OWNER = "amazon-eks"


def furnish(world: World, region: str, cluster: Cluster, subnets: list[Any]) -> None:
    """Make the security group and the interfaces."""
    ec2, name = world.backend("ec2", region), cluster.document["name"]
    config = cluster.document["resourcesVpcConfig"]
    tags = {f"kubernetes.io/cluster/{name}": "owned", "aws:eks:cluster-name": name}
    group = ec2.create_security_group(
        name=f"eks-cluster-sg-{name}-{secrets.randbelow(10**9)}",
        description="EKS created security group applied to ENI that is attached to the control plane",
        vpc_id=config["vpcId"],
        tags=tags,
    )
    group.add_tags({"Name": group.name})
    ec2.authorize_security_group_ingress(
        group.id,
        ip_protocol="-1",
        from_port="-1",
        to_port="-1",
        ip_ranges=[],
        source_groups=[{"GroupId": group.id}],
    )
    config["clusterSecurityGroupId"] = group.id
    for subnet in (subnets * _MOST_INTERFACES)[: max(2, min(len(subnets), _MOST_INTERFACES))]:
        eni = ec2.create_network_interface(
            subnet,
            subnet.get_available_subnet_ip(None),
            group_ids=[group.id, *config["securityGroupIds"]],
            description=f"Amazon EKS {name}",
            tags=tags,
        )
        eni.status, eni.requester_managed, eni.requester_id = "in-use", True, _OWNER
        cluster.enis.append(eni.id)


def clear(world: World, region: str, cluster: Cluster) -> None:
    """Remove the interfaces and the security group; a group that others name or use stays."""
    ec2 = world.backend("ec2", region)
    for eni_id in cluster.enis:
        if eni_id in ec2.enis:
            ec2.enis[eni_id].delete()
    config = cluster.document["resourcesVpcConfig"]
    group_id = config.get("clusterSecurityGroupId", "")
    in_use = any(group_id in {group.id for group in eni.group_set} for eni in ec2.enis.values())
    groups = ec2.groups.get(config["vpcId"], {})
    if group_id in groups and not in_use:
        del groups[group_id]
