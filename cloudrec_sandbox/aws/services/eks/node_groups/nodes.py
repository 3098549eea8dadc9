"""The machines of a node group: instances with their interfaces and volumes, in moto's EC2."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from cloudrec_sandbox.aws.api.registry import durations
from cloudrec_sandbox.aws.services import capacity
from cloudrec_sandbox.aws.services.ec2 import launches, reservations
from cloudrec_sandbox.aws.services.eks.node_groups.scaling import ScalingGroup, ScalingGroups, add_activity

if TYPE_CHECKING:
    from cloudrec_sandbox.aws.api.world import World
    from cloudrec_sandbox.aws.services.eks.state import Cluster, Nodegroup

durations({"eks-node-interfaces": 120})  # how long the network plugin's interfaces exist after their node

_FEWEST_ADDRESSES = 2  # a node's first interface, and the network plugin's
_NAMES = {"spot": "Spot", "on-demand": "On-Demand", "capacity-block": "Capacity Block"}


@dataclass(frozen=True)
class Failure:
    """Why an instance could not be launched: the health issue's code, and the activity's message."""

    code: str
    message: str


class Spot(NamedTuple):
    """Where an instance can run: moto's subnet, and the type."""

    net: Any
    kind: str


def launch(world: World, region: str, cluster: Cluster, group: Nodegroup) -> Failure | None:
    """Launch the missing instances; return the failure that ended it, or None if all run."""
    scaling = world.state(ScalingGroups, region).groups[group_name(group)]
    failure = None
    while len(group.instances) < group.document["scalingConfig"]["desiredSize"]:
        found = _place(world, region, group)
        if isinstance(found, Failure):
            failure = found
            add_activity(world, scaling, "Launching a new EC2 instance", failure=failure.message)
            break
        instance = _run(world, cluster, group, found)
        group.instances.append(instance.id)
        if name := reservations.target(template_data(world, region, group)):
            reservations.use(world, region, name, instance.id)
        zone = found.net.availability_zone
        add_activity(world, scaling, f"Launching a new EC2 instance: {instance.id}", zone=zone)
    show(world, region, group, scaling)
    return failure


def lacks_room(world: World, region: str, group: Nodegroup) -> Failure | None:
    """Return why one more instance could not be launched now; None if it could."""
    found = _place(world, region, group)
    if isinstance(found, Failure):
        return found
    capacity.give_back(world, found.kind, found.net.availability_zone, group.lifecycle)
    return None


def _place(world: World, region: str, group: Nodegroup) -> Spot | Failure:
    """Return a subnet and a type with capacity, the emptiest subnet first; or why there is none."""
    ec2 = world.backend("ec2", region)
    known = {net.id: net for zone in ec2.subnets.values() for net in zone.values()}
    nets = [known[name] for name in group.document["subnets"] if name in known]
    mine = [machine.subnet_id for machine in ec2.all_instances() if machine.id in group.instances]
    failure = Failure("Ec2SubnetNotFound", "The subnets of the node group do not exist")
    # As an Auto Scaling group does: nodes are spread over the subnets, types tried in their order.
    for net in sorted(nets, key=lambda net: mine.count(net.id)):
        for kind in types_of(world, region, group):
            obstacle = _obstacle(world, region, group, Spot(net, kind))
            if obstacle is None:
                return Spot(net, kind)
            failure = obstacle
    return failure


def _obstacle(world: World, region: str, group: Nodegroup, spot: Spot) -> Failure | None:
    net, wanted = spot
    zone, kind = net.availability_zone, f"Could not launch {_NAMES[group.lifecycle]} Instances."
    if not capacity.is_offered(world, wanted, zone):
        text = f"Unsupported - Your requested instance type ({wanted}) is not supported in your requested"
        return Failure("AsgInstanceLaunchFailures", f"{kind} {text} Availability Zone ({zone}).")
    data = template_data(world, region, group)
    fault = launches.fault(world, region, wanted, data) or reservations.fault(
        world, region, data, kind=wanted, zone=zone
    )
    if fault is not None:
        return Failure("AsgInstanceLaunchFailures", f"{kind} {fault.code} - {fault.message}")
    # A node needs addresses for its pods, too.
    if net.available_ip_address_count < _FEWEST_ADDRESSES:
        return Failure("InsufficientFreeAddresses", f"{kind} InsufficientFreeAddressesInSubnet - {net.id}")
    if not capacity.has_quota(world, region, wanted, group.lifecycle):
        if group.lifecycle == "spot":
            text = "MaxSpotInstanceCountExceeded - Max spot instance count exceeded"
        else:
            text = (
                "VcpuLimitExceeded - You have requested more vCPU capacity than your current vCPU limit"
                " allows for the instance bucket that the specified instance type belongs to."
            )
        return Failure("AsgInstanceLaunchFailures", f"{kind} {text}")
    # A reservation has its own instances, whatever else the zone has.
    if not reservations.target(data) and not capacity.take(world, wanted, zone, group.lifecycle):
        if group.lifecycle == "spot":
            text = "UnfulfillableCapacity - Unable to fulfill capacity due to your request configuration."
        else:
            text = (
                f"InsufficientInstanceCapacity - We currently do not have sufficient {wanted} capacity in the"
                f" Availability Zone you requested ({zone})."
            )
        return Failure("AsgInstanceLaunchFailures", f"{kind} {text}")
    return None


def types_of(world: World, region: str, group: Nodegroup) -> list[str]:
    """Return the instance types, of the group or of its launch template."""
    own: list[str] = group.document.get("instanceTypes", [])
    return own or [template_data(world, region, group).get("InstanceType", "t3.medium")]


def template_data(world: World, region: str, group: Nodegroup) -> dict[str, Any]:
    """Return the launch template's data; empty without one."""
    chosen = group.document.get("launchTemplate", {})
    template = world.backend("ec2", region).launch_templates.get(chosen.get("id"))
    data: dict[str, Any] = template.get_version(chosen["version"]).data if template else {}
    return data


def tags_of(world: World, region: str, cluster: Cluster, group: Nodegroup) -> dict[str, dict[str, str]]:
    """Return the tags that a node's instance, interfaces and volumes get when it is launched."""
    data, name = template_data(world, region, group), cluster.document["name"]
    asked = {entry["ResourceType"]: _tags(entry["Tags"]) for entry in data.get("TagSpecifications", [])}
    own = {
        "eks:cluster-name": name,
        "eks:nodegroup-name": group.document["nodegroupName"],
        f"kubernetes.io/cluster/{name}": "owned",
        f"k8s.io/cluster-autoscaler/{name}": "owned",
        "k8s.io/cluster-autoscaler/enabled": "true",
        "aws:autoscaling:groupName": group_name(group),
        "aws:eks:cluster-name": name,
    }
    found = {kind: asked.get(kind, {}) for kind in ("instance", "network-interface", "volume")}
    return {**found, "instance": found["instance"] | own}


def _run(world: World, cluster: Cluster, group: Nodegroup, spot: Spot) -> Any:  # noqa: ANN401 - moto's instance
    net, wanted = spot
    ec2, region = net.ec2_backend, net.ec2_backend.region_name
    data = template_data(world, region, group)
    name, document = cluster.document["name"], group.document
    interfaces = data.get("NetworkInterfaces") or []
    groups = interfaces[0].get("Groups") if interfaces else data.get("SecurityGroupIds")
    # Groups of a launch template replace the cluster's: EKS adds it only if there are none (EKS user guide).
    groups = groups or [cluster.document["resourcesVpcConfig"]["clusterSecurityGroupId"]]
    tags = tags_of(world, region, cluster, group)
    reservation = ec2.run_instances(
        data.get("ImageId") or "ami-12c6146b",
        1,
        None,
        [],
        instance_type=wanted,
        is_instance_type_default=False,
        region_name=region,
        subnet_id=net.id,
        security_group_ids=list(groups),
        lifecycle="spot" if group.lifecycle == "spot" else None,
        block_device_mappings=_disks(data, document.get("diskSize")),
        tags={"instance": tags["instance"], "volume": tags["volume"]},
    )
    instance = reservation.instances[0]
    instance.placement.group_name = data.get("Placement", {}).get("GroupName", "")
    eni_tags = {
        f"kubernetes.io/cluster/{name}": "owned",
        "cluster.k8s.amazonaws.com/name": name,
        "node.k8s.amazonaws.com/instance_id": instance.id,
    }
    for eni in instance.nics.values():
        eni.delete_on_termination = True
        eni.add_tags(tags["network-interface"] | eni_tags)
    # The further empty one is the network plugin's, which attaches it when pods need addresses.
    for place, interface in enumerate([*interfaces[1:], {}], start=1):
        wish = {"Groups": groups, **interface}
        _attach(instance, net, place, wish, eni_tags)
    return instance


def _attach(instance: Any, net: Any, place: int, wish: dict[str, Any], tags: dict[str, str]) -> None:  # noqa: ANN401
    """Attach one more interface; `place` is its device index in moto, which takes each index once."""
    kind = wish.get("InterfaceType")
    eni = net.ec2_backend.create_network_interface(
        net,
        None if kind == "efa-only" else net.get_available_subnet_ip(instance),
        group_ids=list(wish["Groups"]),
        description=f"aws-K8S-{instance.id}",
        tags=tags,
    )
    eni.interface_type = kind or "interface"
    # The template's interfaces are deleted with the node, the network plugin's are not.
    eni.delete_on_termination = kind is not None
    instance.attach_eni(eni, place)


def _disks(data: dict[str, Any], size: int | None) -> list[dict[str, Any]]:
    asked = data.get("BlockDeviceMappings") or []
    disks = [{"DeviceName": disk["DeviceName"], "Ebs": dict(disk["Ebs"])} for disk in asked if "Ebs" in disk]
    if not disks:
        disks = [{"DeviceName": "/dev/xvda", "Ebs": {"VolumeSize": size or 20, "VolumeType": "gp3"}}]
    for disk in disks:
        disk["Ebs"].setdefault("DeleteOnTermination", True)
        disk["Ebs"].setdefault("VolumeSize", 20)
    return disks


def terminate(world: World, region: str, group: Nodegroup, count: int) -> None:
    """End the newest `count` instances."""
    ec2 = world.backend("ec2", region)
    scaling = world.state(ScalingGroups, region).groups.get(group_name(group))
    for _ in range(min(count, len(group.instances))):
        instance = ec2.get_instance(group.instances.pop())
        if instance.state == "terminated":
            continue
        end(world, region, group, instance)
        if scaling:
            add_activity(
                world, scaling, f"Terminating EC2 instance: {instance.id}", zone=instance.placement.zone
            )
    if scaling:
        show(world, region, group, scaling)


def end(world: World, region: str, group: Nodegroup, instance: Any) -> None:  # noqa: ANN401 - moto's
    """End one instance; the network plugin's interfaces stay for a while, detached."""
    left = [eni for eni in instance.nics.values() if not eni.delete_on_termination]
    for eni in left:
        instance.detach_eni(eni)
        eni.status = "available"
    world.backend("ec2", region).terminate_instances([instance.id])
    if not reservations.leave(world, region, instance.id):
        capacity.give_back(world, instance.instance_type, instance.placement.zone, group.lifecycle)
    if left:
        names = [eni.id for eni in left]
        world.after(world.duration("eks-node-interfaces"), forget_interfaces, region, names)


def forget_interfaces(world: World, region: str, names: list[str]) -> None:
    """Delete the interfaces that nodes left, as EKS does, unless they are gone already."""
    ec2 = world.backend("ec2", region)
    for name in names:
        if name in ec2.enis and ec2.enis[name].status == "available":
            ec2.enis[name].delete()


def show(world: World, region: str, group: Nodegroup, scaling: ScalingGroup) -> None:
    """Let the Auto Scaling group report the instances that exist."""
    ec2, sizes = world.backend("ec2", region), group.document["scalingConfig"]
    scaling.document.update(
        {
            "MinSize": sizes["minSize"],
            "MaxSize": sizes["maxSize"],
            "DesiredCapacity": sizes["desiredSize"],
            "Instances": [
                {
                    "InstanceId": instance.id,
                    "InstanceType": instance.instance_type,
                    "AvailabilityZone": instance.placement.zone,
                    "LifecycleState": "InService",
                    "HealthStatus": "Healthy",
                    "ProtectedFromScaleIn": False,
                }
                for instance in map(ec2.get_instance, group.instances)
            ],
        }
    )


def group_name(group: Nodegroup) -> str:
    """Return the name of the node group's Auto Scaling group."""
    name: str = group.document["resources"]["autoScalingGroups"][0]["name"]
    return name


def _tags(pairs: list[dict[str, str]]) -> dict[str, str]:
    return {pair["Key"]: pair["Value"] for pair in pairs}
