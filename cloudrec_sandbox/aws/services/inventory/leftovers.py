"""What the controllers inside a cluster create, and leave behind if the cluster is deleted first.

`leave` of /_control: {"cluster": NAME, "kinds": ["load-balancer", "target-group", "network-interface",
"volume", "log-group", "security-group"]} makes one of each kind now, in the cluster's network and with its
tags. A load balancer's interfaces are deleted `elb-interfaces` seconds after it. "guardduty-endpoint" is what
GuardDuty's Runtime Monitoring makes in the network of a cluster whose agent it manages.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.aws.api.registry import durations, operation, setting
from cloudrec_sandbox.aws.services.ec2.network import endpoints
from cloudrec_sandbox.aws.services.eks.state import Cluster, Eks

if TYPE_CHECKING:
    from collections.abc import Callable

    from cloudrec_sandbox.aws.api.call import Call
    from cloudrec_sandbox.aws.api.world import World
    from cloudrec_sandbox.core.http import Reply

durations({"elb-interfaces": 60})


@dataclass
class Leftovers:
    """The orphaned resources so far, and the interfaces of load balancers by ARN."""

    left: list[str] = field(default_factory=list)
    interfaces: dict[str, list[str]] = field(default_factory=dict)


def _tags(name: str) -> dict[str, str]:
    return {f"kubernetes.io/cluster/{name}": "owned", "elbv2.k8s.aws/cluster": name}


def _group(world: World, region: str, cluster: Cluster) -> str:
    name = cluster.document["name"]
    group = world.backend("ec2", region).create_security_group(
        name=f"k8s-traffic-{name}-{secrets.token_hex(5)}",
        description="[k8s] Shared Backend SecurityGroup for LoadBalancer",
        vpc_id=cluster.document["resourcesVpcConfig"]["vpcId"],
        tags=_tags(name),
    )
    return str(group.id)


def _balancer(world: World, region: str, cluster: Cluster) -> str:
    """Make a network load balancer with its own security group and an interface in every subnet."""
    name, subnets = cluster.document["name"], cluster.document["resourcesVpcConfig"]["subnetIds"]
    group = _group(world, region, cluster)
    balancer = world.backend("elbv2", region).create_load_balancer(
        name=f"k8s-train-{secrets.token_hex(5)}",
        security_groups=[group],
        subnet_ids=list(subnets),
        subnet_mappings=None,
        scheme="internet-facing",
        loadbalancer_type="network",
        tags=[{"Key": key, "Value": value} for key, value in _tags(name).items()],
    )
    ec2 = world.backend("ec2", region)
    made = []
    for subnet in map(ec2.get_subnet, subnets):
        address, text = (
            subnet.get_available_subnet_ip(None),
            f"ELB net/{balancer.name}/{secrets.token_hex(8)}",
        )
        # EC2 refuses to delete an interface that a service manages, and the subnet and group that it uses.
        eni = ec2.create_network_interface(subnet, address, group_ids=[group], description=text)
        eni.status, eni.requester_managed, eni.requester_id = "in-use", True, "amazon-elb"
        made.append(eni.id)
    world.state(Leftovers, region).interfaces[balancer.arn] = made
    return str(balancer.arn)


def _target_group(world: World, region: str, cluster: Cluster) -> str:
    name = cluster.document["name"]
    group = world.backend("elbv2", region).create_target_group(
        f"k8s-train-{secrets.token_hex(5)}",
        protocol="TCP",
        port="80",
        vpc_id=cluster.document["resourcesVpcConfig"]["vpcId"],
        target_type="ip",
        tags=[{"Key": key, "Value": value} for key, value in _tags(name).items()],
    )
    return str(group.arn)


def _interface(world: World, region: str, cluster: Cluster) -> str:
    """Make an interface of the network plugin, of a node that died before the plugin could clean up."""
    ec2, name = world.backend("ec2", region), cluster.document["name"]
    subnet = ec2.get_subnet(cluster.document["resourcesVpcConfig"]["subnetIds"][0])
    instance = f"i-{secrets.token_hex(9)[:17]}"
    eni = ec2.create_network_interface(
        subnet,
        subnet.get_available_subnet_ip(None),
        group_ids=[cluster.document["resourcesVpcConfig"]["clusterSecurityGroupId"]],
        description=f"aws-K8S-{instance}",
        tags={"cluster.k8s.amazonaws.com/name": name, "node.k8s.amazonaws.com/instance_id": instance},
    )
    return str(eni.id)


def _volume(world: World, region: str, cluster: Cluster) -> str:
    """Make the volume of a claim whose policy keeps it."""
    ec2, name = world.backend("ec2", region), cluster.document["name"]
    zone = ec2.get_subnet(cluster.document["resourcesVpcConfig"]["subnetIds"][0]).availability_zone
    volume = ec2.create_volume(size=20, zone_name=zone, volume_type="gp3")
    claim = f"pvc-{secrets.token_hex(8)}"
    volume.add_tags(
        {
            "Name": f"{name}-dynamic-{claim}",
            f"kubernetes.io/cluster/{name}": "owned",
            "KubernetesCluster": name,
            "ebs.csi.aws.com/cluster": "true",
            "kubernetes.io/created-for/pv/name": claim,
        }
    )
    return str(volume.id)


# EKS never deletes the log group of a cluster (EKS user guide, control-plane-logs).
def _log_group(world: World, region: str, cluster: Cluster) -> str:
    name, logs = f"/aws/eks/{cluster.document['name']}/cluster", world.backend("logs", region)
    if name not in logs.groups:
        logs.create_log_group(name, {})
    return name


def _guardduty(world: World, region: str, cluster: Cluster) -> str:
    """Make GuardDuty's endpoint and its group, with names and tags as in terraform-provider-aws #46747.

    Its inbound rule is the VPC's range ("How Runtime Monitoring works with Amazon EKS clusters" in the user
    guide). GuardDuty deletes neither with the cluster; one VPC has one of them.
    """
    ec2, tags = world.backend("ec2", region), {"GuardDutyManaged": "true"}
    vpc = ec2.get_vpc(cluster.document["resourcesVpcConfig"]["vpcId"])
    subnets = {ec2.get_subnet(name).availability_zone: name for name in _subnets(cluster)}
    group = ec2.create_security_group(
        name=f"GuardDutyManagedSecurityGroup-{vpc.id}",
        description="Associated with VPC-" + vpc.id + " and tagged as GuardDutyManaged",
        vpc_id=vpc.id,
        tags=tags,
    )
    ec2.authorize_security_group_ingress(
        group.id, ip_protocol="tcp", from_port="443", to_port="443", ip_ranges=[{"CidrIp": vpc.cidr_block}]
    )
    endpoint = ec2.create_vpc_endpoint(
        vpc.id,
        f"com.amazonaws.{region}.guardduty-data",
        "Interface",
        None,
        [],
        subnet_ids=list(subnets.values()),
        tags=tags,
        private_dns_enabled=True,
    )
    endpoint.state = "available"
    endpoints.attach(ec2, endpoint, subnets.values(), [group.id])
    return str(endpoint.id)


def _subnets(cluster: Cluster) -> list[str]:
    return list(cluster.document["resourcesVpcConfig"]["subnetIds"])


_MAKERS: dict[str, Callable[[World, str, Cluster], str]] = {
    "load-balancer": _balancer,
    "target-group": _target_group,
    "network-interface": _interface,
    "volume": _volume,
    "log-group": _log_group,
    "security-group": _group,
    "guardduty-endpoint": _guardduty,
}


def _leave(world: World, wish: dict[str, Any]) -> None:
    if unknown := sorted(set(wish.get("kinds", [])) - set(_MAKERS)):
        raise ValueError(f"nothing leaves a {', '.join(unknown)}; there are: {', '.join(_MAKERS)}")
    for region, eks in world.states(Eks).items():
        if wish.get("cluster") in eks.clusters:
            cluster = eks.clusters[wish["cluster"]]
            left = [f"{kind}:{_MAKERS[kind](world, region, cluster)}" for kind in wish.get("kinds", [])]
            world.state(Leftovers).left += left
            return
    raise ValueError(f"there is no cluster {wish.get('cluster')!r} to leave anything")


@operation("elbv2", "DeleteLoadBalancer")
def delete_load_balancer(call: Call) -> Reply:
    """Delete a load balancer; its interfaces exist for a while longer."""
    reply = call.pass_on()
    names = call.world.state(Leftovers, call.region).interfaces.pop(call.params["LoadBalancerArn"], [])
    call.world.after(call.world.duration("elb-interfaces"), forget, call.region, names)
    return reply


def forget(world: World, region: str, names: list[str]) -> None:
    """Forget the interfaces, which are gone."""
    ec2 = world.backend("ec2", region)
    for name in names:
        if name in ec2.enis:
            ec2.enis[name].delete()


setting("leave", read=lambda world: world.state(Leftovers).left, write=_leave)
