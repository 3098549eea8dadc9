"""Node groups: active after minutes, failed long after they were accepted, gone only after their nodes."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.aws.api.registry import durations, operation
from cloudrec_sandbox.aws.services import iam
from cloudrec_sandbox.aws.services.ec2 import launches
from cloudrec_sandbox.aws.services.eks import access, checks
from cloudrec_sandbox.aws.services.eks.node_groups import nodegroup_checks, nodes
from cloudrec_sandbox.aws.services.eks.node_groups.scaling import ScalingGroup, ScalingGroups
from cloudrec_sandbox.aws.services.eks.state import (
    Cluster,
    Nodegroup,
    Where,
    arn,
    cluster_of,
    find,
    in_use,
    new_uid,
    not_found,
    now,
    page,
    require_active,
    same_request,
    where,
)
from cloudrec_sandbox.core.clock import as_datetime

if TYPE_CHECKING:
    from cloudrec_sandbox.aws.api.call import Call
    from cloudrec_sandbox.aws.api.world import World

durations(
    {
        "eks-nodegroup-create": 180,
        "eks-gpu-nodegroup-create": 420,
        "eks-nodegroup-fail": 1200,
        "eks-nodegroup-delete": 240,
        "eks-nodegroup-update": 60,
    }
)

_BAD_TEMPLATE = "Ec2LaunchTemplateInvalidConfiguration"
_LOOK_S = 15.0  # how often EKS looks whether nodes have become ready
_RETRY_S = 60.0  # how often an Auto Scaling group tries again
_LAUNCH_SHARE = 0.2  # of the time until a group is active: then its instances appear
_DRAIN_SHARE = 0.5  # of the time until a group is gone: then its instances end
_LIFECYCLES = {"ON_DEMAND": "on-demand", "SPOT": "spot", "CAPACITY_BLOCK": "capacity-block"}


def nodegroup_of(call: Call) -> tuple[Cluster, Nodegroup]:
    """Return the node group that the call names, and its cluster."""
    cluster, name = cluster_of(call), call.params["nodegroupName"]
    if name not in cluster.nodegroups:
        raise not_found(f"No node group found for name: {name}.", nodegroupName=name)
    return cluster, cluster.nodegroups[name]


def find_group(world: World, place: Where, name: str, uid: str) -> tuple[Cluster, Nodegroup] | None:
    """Return the cluster and the group of a timed step; None if the group is gone. `place` is its cluster."""
    cluster = find(world, place)
    group = cluster.nodegroups.get(name) if cluster else None
    # The uid differs if the group was deleted and made again under its name.
    return (cluster, group) if cluster and group and group.uid == uid else None


@operation("eks", "CreateNodegroup")
def create_nodegroup(call: Call) -> dict[str, Any]:
    """Make the checks that EKS makes at once; a lack of capacity shows minutes later."""
    cluster, name = cluster_of(call), call.params["nodegroupName"]
    checks.shape(call)
    asked = deepcopy(call.params)
    before = cluster.nodegroups.get(name)
    if before and same_request(call, before.parameters):
        return {"nodegroup": before.document}
    if before:
        message = f"NodeGroup already exists with name {name} and cluster name {cluster.document['name']}"
        raise in_use(message, clusterName=cluster.document["name"], nodegroupName=name)
    require_active(cluster)
    data = nodegroup_checks.parameters(call, cluster)
    lifecycle = _LIFECYCLES[call.params.get("capacityType", "ON_DEMAND")]
    group = Nodegroup(_document(call, cluster, data), new_uid(), lifecycle, asked)
    problem = nodegroup_checks.user_data_problem(group.document["amiType"], data)
    if problem is not None:
        group.problem = problem
    _start(call, cluster, group, data)
    return {"nodegroup": group.document}


def _document(call: Call, cluster: Cluster, data: dict[str, Any]) -> dict[str, Any]:
    wish, world, uid = call.params, call.world, new_uid()
    name, owner = wish["nodegroupName"], cluster.document["name"]
    sizes = wish.get("scalingConfig", {})
    low = sizes.get("minSize", 1)
    version = wish.get("version", cluster.document["version"])
    document = {
        "nodegroupName": name,
        "nodegroupArn": arn(call, f"nodegroup/{owner}/{name}/{uid}"),
        "clusterName": owner,
        "version": version,
        "releaseVersion": wish.get("releaseVersion", f"{version}.2-20261110"),
        "createdAt": now(world),
        "modifiedAt": now(world),
        "status": "CREATING",
        "capacityType": wish.get("capacityType", "ON_DEMAND"),
        "scalingConfig": {
            "minSize": low,
            "maxSize": sizes.get("maxSize", 2),
            "desiredSize": sizes.get("desiredSize", low),
        },
        "subnets": list(wish["subnets"]),
        "amiType": "CUSTOM" if data.get("ImageId") else wish.get("amiType", "AL2023_x86_64_STANDARD"),
        "nodeRole": wish["nodeRole"],
        "labels": dict(wish.get("labels", {})),
        "taints": deepcopy(wish.get("taints", [])),
        "resources": {"autoScalingGroups": [{"name": f"eks-{name}-{uid}"}]},
        "health": {"issues": []},
        "updateConfig": deepcopy(wish.get("updateConfig", {"maxUnavailable": 1})),
        "nodeRepairConfig": deepcopy(wish.get("nodeRepairConfig", {"enabled": False})),
        "tags": dict(wish.get("tags", {})),
    }
    if not data.get("InstanceType"):
        document["instanceTypes"] = list(wish.get("instanceTypes", ["t3.medium"]))
    if wish.get("launchTemplate"):
        document["launchTemplate"] = dict(wish["launchTemplate"])
    else:
        document["diskSize"] = wish.get("diskSize", 20)
    return document


def _start(call: Call, cluster: Cluster, group: Nodegroup, data: dict[str, Any]) -> None:
    """Make the group with the resources that EKS makes for it, and start its lifecycle."""
    world, document = call.world, group.document
    name = document["nodegroupName"]
    cluster.nodegroups[name] = group
    iam.service_role(world, "eks-nodegroup.amazonaws.com", "AWSServiceRoleForAmazonEKSNodegroup")
    role: Any = iam.role_of(world, document["nodeRole"])  # not None: `parameters` has checked it
    _profile(world, document, role.name)
    # EKS lets managed nodes in by itself in the API modes; with CONFIG_MAP it edits aws-auth.
    mode = cluster.document["accessConfig"]["authenticationMode"]
    if mode != "CONFIG_MAP" and document["nodeRole"] not in cluster.entries:
        access.admit(call, cluster, document["nodeRole"], "EC2_LINUX")
    scaling = ScalingGroup(_scaling_document(call, group))
    world.state(ScalingGroups, call.region).groups[nodes.group_name(group)] = scaling
    group.problem = group.problem or nodegroup_checks.join_problem(
        call, cluster, iam.policy_names(role), document["subnets"], data
    )
    gpu = any(launches.has_gpu(kind) for kind in nodes.types_of(world, call.region, group))
    length = world.duration("eks-gpu-nodegroup-create" if gpu else "eks-nodegroup-create")
    group.ripe = world.now() + length
    key = (where(call, cluster), name, group.uid)
    if group.problem and group.problem["code"] == _BAD_TEMPLATE:
        world.after(length * _LAUNCH_SHARE, _fail, *key)  # before it launches anything
        return
    world.after(length * _LAUNCH_SHARE, _launch, *key)
    world.after(length, _succeed, *key)
    world.after(max(length, world.duration("eks-nodegroup-fail")), _fail, *key)


def _profile(world: World, document: dict[str, Any], role: str) -> None:
    """Make an instance profile, as EKS does; it holds the role until the group is gone."""
    backend, name = world.backend("iam", iam.GLOBAL), _profile_name(document)
    backend.create_instance_profile(name=name, path="/", role_names=[])
    backend.add_role_to_instance_profile(name, role)


def _profile_name(document: dict[str, Any]) -> str:
    return f"eks-{document['nodegroupArn'].rpartition('/')[2]}"


def _scaling_document(call: Call, group: Nodegroup) -> dict[str, Any]:
    document, region = group.document, call.region
    name = nodes.group_name(group)
    tags = {
        "eks:cluster-name": document["clusterName"],
        "eks:nodegroup-name": document["nodegroupName"],
        f"kubernetes.io/cluster/{document['clusterName']}": "owned",
    }
    nets = [call.backend("ec2").get_subnet(subnet) for subnet in document["subnets"]]
    return {
        "AutoScalingGroupName": name,
        "AutoScalingGroupARN": f"arn:aws:autoscaling:{region}:{call.account}:autoScalingGroup:{group.uid}:"
        f"autoScalingGroupName/{name}",
        "MinSize": document["scalingConfig"]["minSize"],
        "MaxSize": document["scalingConfig"]["maxSize"],
        "DesiredCapacity": document["scalingConfig"]["desiredSize"],
        "DefaultCooldown": 300,
        "AvailabilityZones": sorted({net.availability_zone for net in nets}),
        "HealthCheckType": "EC2",
        "HealthCheckGracePeriod": 15,
        "Instances": [],
        "CreatedTime": as_datetime(call.world.now()),
        "VPCZoneIdentifier": ",".join(document["subnets"]),
        "Tags": [
            {
                "ResourceId": name,
                "ResourceType": "auto-scaling-group",
                "Key": key,
                "Value": value,
                "PropagateAtLaunch": True,
            }
            for key, value in tags.items()
        ],
    }


def _launch(world: World, place: Where, name: str, uid: str) -> None:
    """Launch the missing instances, and try again later while some are missing."""
    found = find_group(world, place, name, uid)
    if found is None or found[1].document["status"] in ("DELETING", "CREATE_FAILED"):
        return
    cluster, group = found
    failure = nodes.launch(world, place.region, cluster, group)
    # Nodes that cannot join stay the problem, however many instances run.
    if group.problem is None or group.problem["code"] != "NodeCreationFailure":
        group.problem = {"code": failure.code, "message": failure.message} if failure else None
    if failure:
        world.after(_RETRY_S, _launch, place, name, uid)
    elif group.document["status"] == "CREATING" and len(found[1].updates) == 0:
        # Instances that came late join a little later than those that came at once.
        world.after(world.duration("eks-nodegroup-create") * _LAUNCH_SHARE, _succeed, place, name, uid)


def _succeed(world: World, place: Where, name: str, uid: str) -> None:
    found = find_group(world, place, name, uid)
    if found is None or found[1].document["status"] != "CREATING":
        return
    document = found[1].document
    wanted = document["scalingConfig"]["desiredSize"]
    # A group of size 0 is active without ever launching: that shows no lack of capacity.
    if wanted and not nodegroup_checks.has_network(world, *found):
        world.after(_LOOK_S, _succeed, place, name, uid)
        return
    can_work = wanted == 0 or (found[1].problem is None and len(found[1].instances) >= wanted)
    if world.now() >= found[1].ripe and can_work:
        document["status"] = "ACTIVE"


def _fail(world: World, place: Where, name: str, uid: str) -> None:
    found = find_group(world, place, name, uid)
    if found is None or found[1].document["status"] != "CREATING":
        return
    document, problem = found[1].document, found[1].problem
    if problem is None and not nodegroup_checks.has_network(world, *found):
        message = "Unhealthy nodes in the kubernetes cluster"
        problem = {"code": "NodeCreationFailure", "message": message}
    problem = problem or {"code": "Unknown", "message": "it took too long"}
    document["status"] = "CREATE_FAILED"
    resources = found[1].instances or [nodes.group_name(found[1])]
    document["health"]["issues"] = [{**problem, "resourceIds": list(resources)}]


@operation("eks", "DescribeNodegroup")
def describe_nodegroup(call: Call) -> dict[str, Any]:
    """Return one group; its health shows a launch template that was deleted."""
    group = nodegroup_of(call)[1]
    document = deepcopy(group.document)
    chosen = document.get("launchTemplate")
    if document["status"] == "ACTIVE" and chosen and chosen["id"] not in call.backend("ec2").launch_templates:
        document["status"] = "DEGRADED"
        message = f"The launch template {chosen['id']} does not exist"
        issue = {"code": "Ec2LaunchTemplateNotFound", "message": message, "resourceIds": [chosen["id"]]}
        document["health"]["issues"].append(issue)
    if document["status"] == "ACTIVE" and group.problem:
        document["status"] = "DEGRADED"
        document["health"]["issues"].append({**group.problem, "resourceIds": [nodes.group_name(group)]})
    return {"nodegroup": document}


@operation("eks", "ListNodegroups")
def list_nodegroups(call: Call) -> dict[str, Any]:
    """Return the names of a cluster's groups."""
    return page(call, "nodegroups", sorted(cluster_of(call).nodegroups))


@operation("eks", "DeleteNodegroup")
def delete_nodegroup(call: Call) -> dict[str, Any]:
    """Drain the nodes, end them, then remove the group."""
    cluster, group = nodegroup_of(call)
    if any(update["status"] == "InProgress" for update in group.updates.values()):
        name = group.document["nodegroupName"]
        raise in_use(
            f"Nodegroup {name} cannot be deleted as it is currently being updated", nodegroupName=name
        )
    if group.document["status"] != "DELETING":
        group.document["status"] = "DELETING"
        key = (
            where(call, cluster),
            group.document["nodegroupName"],
            group.uid,
        )
        length = call.world.duration("eks-nodegroup-delete")
        call.world.after(length * _DRAIN_SHARE, _end_nodes, *key)
        call.world.after(length, _vanish, *key)
    return {"nodegroup": group.document}


def _end_nodes(world: World, place: Where, name: str, uid: str) -> None:
    found = find_group(world, place, name, uid)
    if found:
        nodes.terminate(world, place.region, found[1], len(found[1].instances))


def _vanish(world: World, place: Where, name: str, uid: str) -> None:
    found = find_group(world, place, name, uid)
    if found is None:
        return
    cluster, group = found
    world.state(ScalingGroups, place.region).groups.pop(nodes.group_name(group), None)
    del cluster.nodegroups[name]
    backend, profile = world.backend("iam", iam.GLOBAL), _profile_name(group.document)
    for held in [held for held in backend.instance_profiles.values() if held.name == profile]:
        held.roles.clear()  # a profile with a role cannot be deleted; the role may be gone already
        backend.delete_instance_profile(profile)
    # EKS's own access entry stays while another group uses the role.
    if not any(
        other.document["nodeRole"] == group.document["nodeRole"] for other in cluster.nodegroups.values()
    ):
        cluster.entries.pop(group.document["nodeRole"], None)
