"""Instances that end although their node group wants them: taken back by EC2, or terminated by a user.

An Auto Scaling group replaces what its health checks miss, and tries again and again while there is no
capacity ("Health checks for instances in an Auto Scaling group", EC2 Auto Scaling user guide). The node
group stays ACTIVE until EKS notices that launches fail; then it is DEGRADED with AsgInstanceLaunchFailures
(https://github.com/aws/containers-roadmap/issues/2326).

Durations: spot-notice, from the interruption notice of a spot instance to its end ("Spot Instance
interruption notices", EC2 user guide: two minutes); eks-node-replace, from an instance's end until its
replacement is launched; eks-nodegroup-retry, until the next attempt; eks-nodegroup-degrade, until EKS
notices.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.aws.api.registry import book, durations, operation
from cloudrec_sandbox.aws.services import capacity
from cloudrec_sandbox.aws.services.eks.node_groups import nodes
from cloudrec_sandbox.aws.services.eks.node_groups.nodegroups import find_group
from cloudrec_sandbox.aws.services.eks.node_groups.scaling import ScalingGroups, add_activity
from cloudrec_sandbox.aws.services.eks.state import Eks, Where
from cloudrec_sandbox.core.capacity import traces
from cloudrec_sandbox.core.clock import as_datetime

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec_sandbox.aws.api.call import Call
    from cloudrec_sandbox.aws.api.world import World
    from cloudrec_sandbox.aws.services.eks.state import Nodegroup

durations({"eks-node-replace": 90, "eks-nodegroup-retry": 60, "eks-nodegroup-degrade": 600})

_MOST_SHOWN = 200
_UNHEALTHY = (
    "an instance was taken out of service in response to an EC2 health check indicating it has been "
    "terminated or stopped."
)


@dataclass
class Losses:
    """How a region's instances were lost, by id: "spot" from their notice on, "vanish" if they had none."""

    hows: dict[str, str] = field(default_factory=dict)


def changed(world: World, place: str, most: int | None, notice_s: float) -> None:
    """Give the newest spot instances of a place their notice, so that `most` stay."""
    kind, zone, lifecycle = place.split("/")
    if most is None or lifecycle != "spot":
        return
    hows = world.state(Losses, zone[:-1]).hows
    staying = [each for each in capacity.running(world, kind, zone, lifecycle) if each.id not in hows]
    for instance in staying[most:]:
        hows[instance.id] = "spot" if notice_s else "vanish"
        world.after(notice_s, _take_back, zone[:-1], instance.id)


traces.declare(book, notice_s=120, place=capacity.place, changed=changed)


def _take_back(world: World, region: str, name: str) -> None:
    """End a spot instance; its node group replaces it."""
    instance = world.backend("ec2", region).get_instance(name)
    if instance.state in ("terminated", "shutting-down"):
        return
    found = _group_of(world, region, name)
    if found is None:
        world.backend("ec2", region).terminate_instances([name])
        capacity.give_back(world, instance.instance_type, instance.placement.zone, "spot")
    else:
        nodes.end(world, region, found[1], instance)
        world.after(world.duration("eks-node-replace"), _replace, *_key(*found), name)
    # "StateReason" in the EC2 API reference.
    instance.state_reason.code = "Server.SpotInstanceTermination"
    instance.state_reason.message = "Server.SpotInstanceTermination: Spot instance termination"


def lose(world: World, name: str) -> None:
    """End an instance whose node the Kubernetes stand-in has lost."""
    for region in world.states(Eks):
        if _group_of(world, region, name) is not None:
            world.state(Losses, region).hows.setdefault(name, "vanish")
            _take_back(world, region, name)


def leaving(world: World, region: str) -> Mapping[str, str]:
    """Return how instances leave that have their notice or have ended lately, by id."""
    hows = world.state(Losses, region).hows
    return {name: hows[name] for name in list(hows)[-_MOST_SHOWN:]}


@operation("ec2", "TerminateInstances", order=-1)
def terminate(call: Call) -> dict[str, Any]:
    """Let the node group of a terminated instance replace it."""
    output = call.output()
    wait = call.world.duration("instance-terminate") + call.world.duration("eks-node-replace")
    for row in output["TerminatingInstances"]:
        found = _group_of(call.world, call.region, row["InstanceId"])
        if found is not None:
            call.world.after(wait, _replace, *_key(*found), row["InstanceId"])
    return output


def _group_of(world: World, region: str, name: str) -> tuple[Where, Nodegroup] | None:
    """Return the cluster and the node group of an instance; None if it is in none."""
    for owner, cluster in world.state(Eks, region).clusters.items():
        for group in cluster.nodegroups.values():
            if name in group.instances:
                return Where(region, owner, cluster.uid), group
    return None


def _key(place: Where, group: Nodegroup) -> tuple[Where, str, str]:
    return place, group.document["nodegroupName"], group.uid


def _replace(world: World, place: Where, name: str, uid: str, instance: str) -> None:
    """Let the Auto Scaling group notice that an instance has ended."""
    found = find_group(world, place, name, uid)
    if found is None or instance not in found[1].instances:
        return
    group = found[1]
    group.instances.remove(instance)
    scaling = world.state(ScalingGroups, place.region).groups[nodes.group_name(group)]
    ended = world.backend("ec2", place.region).get_instance(instance)
    add_activity(
        world,
        scaling,
        f"Terminating EC2 instance: {instance}",
        zone=ended.placement.zone,
        cause=f"At {as_datetime(world.now()):%Y-%m-%dT%H:%M:%SZ} {_UNHEALTHY}",
    )
    nodes.show(world, place.region, group, scaling)
    if not group.is_refilling:
        group.is_refilling = True
        world.after(0, _refill, place, name, uid)  # once all have ended that end at this moment


def _refill(world: World, place: Where, name: str, uid: str) -> None:
    """Launch the missing instances, and try again later while some are missing."""
    found = find_group(world, place, name, uid)
    if found is None or found[1].document["status"] in ("DELETING", "CREATE_FAILED"):
        return
    cluster, group = found
    failure = nodes.launch(world, place.region, cluster, group)
    if failure is None:
        group.is_refilling, group.failure = False, None
        if group.document["scalingConfig"]["desiredSize"]:
            group.problem = None
        return
    if group.failure is None:
        world.after(world.duration("eks-nodegroup-degrade"), _degrade, place, name, uid)
    group.failure = {"code": failure.code, "message": failure.message}
    world.after(world.duration("eks-nodegroup-retry"), _refill, place, name, uid)


def _degrade(world: World, place: Where, name: str, uid: str) -> None:
    """Let EKS notice that the Auto Scaling group cannot launch instances."""
    found = find_group(world, place, name, uid)
    if found is not None and found[1].failure is not None:
        found[1].problem = found[1].failure
