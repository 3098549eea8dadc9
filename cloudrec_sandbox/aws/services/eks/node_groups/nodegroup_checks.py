"""What EKS refuses at once in a node group's template, sizes, role and taints."""

from __future__ import annotations

import base64
import re
from email.message import Message
from email.parser import BytesParser
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.aws.api.errors import AwsError
from cloudrec_sandbox.aws.services import capacity, iam
from cloudrec_sandbox.aws.services.ec2 import launches
from cloudrec_sandbox.aws.services.eks import checks
from cloudrec_sandbox.aws.services.eks.node_groups import disks, nodes
from cloudrec_sandbox.aws.services.eks.state import Cluster, Nodegroup, invalid_parameter, invalid_request
from cloudrec_sandbox.aws.services.permissions.enforcement import role_may
from cloudrec_sandbox.aws.services.permissions.policies import Facts, Wish

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cloudrec_sandbox.aws.api.call import Call
    from cloudrec_sandbox.aws.api.world import World

_RESERVED = ("kubernetes.io", "k8s.io", "eks.amazonaws.com")  # prefixes of labels
_MOST_NODES = 450  # "Nodes per managed node group" of EKS's service quotas
_ROOT, _IMAGE_GIB = "/dev/xvda", 20  # the root disk of EKS's Amazon Linux images, and its snapshot's size
_MOST_UNAVAILABLE = 100  # nodes during an update
_OVERRIDE = {"nodeMonitoringCondition", "nodeUnhealthyReason", "minRepairWaitTimeMins", "repairAction"}
# Kubernetes' documentation, "Labels and Selectors": syntax of values.
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([\w.-]{0,61}[A-Za-z0-9])?)?", re.ASCII)
_TAG_INTERFACE = "cluster.k8s.amazonaws.com/name"
_PLUGIN_READS = ("DescribeInstances", "DescribeInstanceTypes", "DescribeNetworkInterfaces",
                 "DescribeSecurityGroups", "DescribeSubnets", "DescribeTags")  # fmt: skip
_PLUGIN_CHANGES = ("AssignPrivateIpAddresses", "AttachNetworkInterface", "DeleteNetworkInterface",
                   "DetachNetworkInterface", "ModifyNetworkInterfaceAttribute",
                   "UnassignPrivateIpAddresses")  # fmt: skip
# Of these changes, those that are also changes of the node.
_OF_INSTANCE = ("AttachNetworkInterface", "DetachNetworkInterface", "ModifyNetworkInterfaceAttribute")
_NODE_POLICIES = {"AmazonEKSWorkerNodePolicy", "AmazonEKSWorkerNodeMinimalPolicy"}


def parameters(call: Call, cluster: Cluster) -> dict[str, Any]:
    """Make all checks of CreateNodegroup; return the launch template's data, empty without one."""
    wish = call.params
    sizes(wish.get("scalingConfig", {}))
    if not wish["subnets"]:
        raise invalid_parameter("Subnet list is empty: a node group needs at least one subnet")
    taints(wish.get("taints", []))
    checks.role(call, wish["nodeRole"], "ec2.amazonaws.com", "Node role")
    nets = checks.subnets(call, wish["subnets"])
    if nets and nets[0].vpc_id != cluster.document["resourcesVpcConfig"]["vpcId"]:
        raise invalid_parameter("Subnets are not in the VPC of the cluster")
    data = template(call, wish.get("launchTemplate"))
    types = wish.get("instanceTypes", [])
    if wish.get("launchTemplate"):
        _with_template(wish, data)
    labels(wish.get("labels", {}))
    update_config(wish.get("updateConfig"))
    repair_config(wish.get("nodeRepairConfig"))
    if bad := [name for name in [*types, data.get("InstanceType", "t3.medium")] if not capacity.exists(name)]:
        raise invalid_parameter(f"The following supplied instance types do not exist: [{bad[0]}]")
    # Both places must name a capacity block (user guide, "Capacity Blocks with managed node groups").
    market = data.get("InstanceMarketOptions", {}).get("MarketType")
    block = wish.get("capacityType") == "CAPACITY_BLOCK"
    if block != (market == "capacity-block"):
        raise invalid_parameter(
            "capacityType CAPACITY_BLOCK and a launch template whose InstanceMarketOptions.MarketType is"
            " capacity-block need each other"
        )
    launchable(call, types or [data.get("InstanceType", "t3.medium")], wish.get("amiType", "CUSTOM"), data)
    return data


def update_config(wanted: dict[str, Any] | None) -> None:
    """Refuse an update configuration without a limit, with two, or with too many nodes.

    botocore's model, NodegroupUpdateConfig: maxUnavailable or maxUnavailablePercentage is required, and at
    most 100 nodes are unavailable.
    """
    if wanted is None:
        return
    given = [key for key in ("maxUnavailable", "maxUnavailablePercentage") if key in wanted]
    if len(given) != 1:
        raise invalid_parameter(
            "One of maxUnavailable and maxUnavailablePercentage is required in updateConfig, and not both"
        )
    if wanted.get("maxUnavailable", 1) > _MOST_UNAVAILABLE:
        raise invalid_parameter(f"maxUnavailable must be at most {_MOST_UNAVAILABLE}")


def repair_config(wanted: dict[str, Any] | None) -> None:
    """Refuse a repair configuration whose limits are both counts and percentages, or an incomplete override.

    See NodeRepairConfig and NodeRepairConfigOverrides of botocore's model: "you cannot also set" the other
    one, and "you must specify all the values" of an override.
    """
    for limit in ("maxUnhealthyNodeThreshold", "maxParallelNodesRepaired"):
        if wanted and f"{limit}Count" in wanted and f"{limit}Percentage" in wanted:
            raise invalid_parameter(f"{limit}Count and {limit}Percentage cannot both be set")
    for each in (wanted or {}).get("nodeRepairConfigOverrides", []):
        if lacking := sorted(_OVERRIDE - each.keys()):
            raise invalid_parameter(f"nodeRepairConfigOverrides lacks {', '.join(lacking)}")


def taints(wanted: list[dict[str, str]]) -> None:
    """Refuse taints without a key or an effect, and two with the same (Kubernetes' validation of nodes)."""
    seen = set()
    for each in wanted:
        key, effect = each.get("key"), each.get("effect")
        if not key or not effect:
            raise invalid_parameter("Taint must have a key and an effect")
        if (key, effect) in seen:
            raise invalid_parameter(f"Duplicate taint {key}:{effect}")
        seen.add((key, effect))


def labels(wanted: dict[str, str]) -> None:
    """Refuse labels that EKS and Kubernetes keep for themselves (aws/containers-roadmap, issue 1451)."""
    for key, value in wanted.items():
        if not _LABEL_VALUE.fullmatch(value):
            raise invalid_parameter(f"Label value '{value}' of {key} is not a valid label value")
        if any(f"{prefix}/" in key for prefix in _RESERVED):
            prefixes = ", ".join(f"{prefix}/" for prefix in _RESERVED)
            raise invalid_parameter(f"Label cannot contain reserved prefixes [{prefixes}]: {key}")


def launchable(call: Call, types: list[str], image: str, data: dict[str, Any]) -> None:
    """Refuse types, images and templates from which EC2 launches nothing.

    EKS tries the template in a dry run of RunInstances, and passes on what EC2 refuses.
    """
    for kind in types:
        wrong = next(launches.architecture_faults(kind, _architecture(image)), None)
        if wrong is not None or ("NVIDIA" in image and not launches.has_gpu(kind)):
            raise invalid_parameter(f"[{kind}] is not a valid instanceType for requested amiType {image}")
        fault = launches.fault(call.world, call.region, kind, data)
        if fault is not None:
            raise invalid_request(fault.message)
    if image.startswith("AL2"):
        _disks(data)


def _architecture(image: str) -> str:
    """Return the architecture of EKS's images of this type; empty for a user's own image."""
    return "arm64" if "_ARM_64" in image else "x86_64" if "_x86_64" in image else ""


def _disks(data: dict[str, Any]) -> None:
    for disk in data.get("BlockDeviceMappings", []):
        size = disk.get("Ebs", {}).get("VolumeSize", _IMAGE_GIB)
        if disk.get("DeviceName") == _ROOT and size < _IMAGE_GIB:
            raise invalid_request(
                f"Volume of size {size}GB is smaller than snapshot 'snap-0a2a6b21a0c4cda56', expect size >= "
                f"{_IMAGE_GIB}GB"
            )


def join_problem(
    call: Call, cluster: Cluster, role_policies: set[str], subnet_ids: list[str], data: dict[str, Any]
) -> dict[str, str] | None:
    """Return the health issue of nodes that start and never join; None for nodes that do."""
    # nodeadm reads its configuration and the node's identity from the instance metadata service
    # (awslabs/amazon-eks-ami, nodeadm/doc).
    has_metadata = data.get("MetadataOptions", {}).get("HttpEndpoint") != "disabled"
    is_let_in = _is_let_in(call, cluster, data)
    if has_metadata and is_let_in and can_join(call, cluster, role_policies, subnet_ids):
        return None
    return {"code": "NodeCreationFailure", "message": "Instances failed to join the kubernetes cluster"}


def _is_let_in(call: Call, cluster: Cluster, data: dict[str, Any]) -> bool:
    """Return whether the control plane's interfaces answer the nodes' primary interface.

    They have the cluster's own security group. EKS gives it to the nodes only where a template names no
    group; other groups need rules ("Customize managed nodes with launch templates", EKS user guide). An
    interface without groups has the VPC's default one.
    """
    interfaces = data.get("NetworkInterfaces") or []
    primary = next((each for each in interfaces if each.get("DeviceIndex") == 0), None)
    groups = set((primary or {}).get("Groups") or data.get("SecurityGroupIds") or [])
    if primary is None and not groups:
        return True
    own = cluster.document["resourcesVpcConfig"]["clusterSecurityGroupId"]
    if own in groups:
        return True
    found = call.backend("ec2").get_security_group_from_id(own)
    rules = found.ingress_rules if found is not None else ()
    sources = {rule.source_group.get("GroupId") for rule in rules}
    return bool(groups & sources)


def user_data_problem(image: str, data: dict[str, Any]) -> dict[str, str] | None:
    """Return the health issue of a node group whose user data EKS cannot merge with its own.

    "Amazon EC2 user data in launch templates that are used with managed node groups must be in the MIME
    multi-part archive format for Amazon Linux AMIs" (user guide, "Customize managed nodes with launch
    templates"). EKS makes the check after it has accepted the group.
    """
    text = data.get("UserData")
    if not text or not image.startswith("AL2"):
        return None
    try:
        message = BytesParser().parsebytes(base64.b64decode(str(text), validate=True))
    except ValueError:
        message = Message()
    if message.is_multipart():
        # nodeadm ends with an error, and the kubelet never starts.
        refused = disks.problem(data)
        failed = {"code": "NodeCreationFailure", "message": "Instances failed to join the kubernetes cluster"}
        return failed if refused else None
    return {
        "code": "Ec2LaunchTemplateInvalidConfiguration",
        "message": "User data was not in the MIME multipart format.",
    }


def sizes(config: dict[str, int]) -> None:
    """Check minimum, desired and maximum size."""
    low, most = config.get("minSize", 1), config.get("maxSize", 2)
    if most > _MOST_NODES:
        raise AwsError(
            "ResourceLimitExceededException",
            f"Cannot exceed {_MOST_NODES} nodes in a managed node group: maxSize is {most}",
        )
    wanted = config.get("desiredSize", low)
    if most < 1:
        raise invalid_parameter("Maximum capacity must be at least 1")
    if low > most:
        raise invalid_parameter(f"Minimum capacity {low} can't be greater than maximum size {most}")
    if wanted > most:
        raise invalid_parameter(f"desired capacity {wanted} can't be greater than max size {most}")
    if wanted < low:
        raise invalid_parameter(f"Minimum capacity {low} can't be greater than desired size {wanted}")


def template(call: Call, chosen: dict[str, str] | None) -> dict[str, Any]:
    """Return the launch template's data; set the id, name and version in `chosen`."""
    if chosen is None:
        return {}
    if bool(chosen.get("id")) == bool(chosen.get("name")):
        raise invalid_parameter("You must specify either the launch template ID or the launch template name")
    ec2 = call.backend("ec2")
    found = next(
        (
            entry
            for entry in ec2.launch_templates.values()
            if entry.id == chosen.get("id") or entry.name == chosen.get("name")
        ),
        None,
    )
    if found is None:
        name = chosen.get("id") or chosen.get("name")
        raise invalid_parameter(f"Launch template {name} could not be found")
    wanted = chosen.get("version") or str(found.default_version_number)
    if wanted in ("$Latest", "$Default"):
        wanted = str(found.latest_version_number if wanted == "$Latest" else found.default_version_number)
    if not wanted.isdigit() or not 1 <= int(wanted) <= found.latest_version_number:
        raise invalid_parameter(f"Launch template {found.id} has no version {wanted}")
    chosen.update({"id": found.id, "name": found.name, "version": wanted})
    data: dict[str, Any] = found.get_version(wanted).data
    return data


def _with_template(wish: dict[str, Any], data: dict[str, Any]) -> None:
    """Refuse what must not be in both places, and what a template for EKS must not have."""
    if wish.get("diskSize"):
        raise invalid_parameter("Disk size must be specified within the launch template.")
    if wish.get("remoteAccess"):
        raise invalid_parameter("Remote access configuration cannot be specified with a launch template.")
    if wish.get("instanceTypes") and data.get("InstanceType"):
        raise invalid_parameter(
            "You cannot specify an instance type in both the launch template and the instanceTypes"
        )
    if any("SubnetId" in interface for interface in data.get("NetworkInterfaces", [])):
        raise invalid_parameter("Launch template should not specify a subnet in its network interfaces")
    if data.get("NetworkInterfaces") and data.get("SecurityGroupIds"):
        raise invalid_parameter("Security groups go to the network interfaces where a template has such")
    if "IamInstanceProfile" in data:
        raise invalid_parameter("Launch template should not specify an instance profile. Use nodeRole")
    if data.get("InstanceMarketOptions", {}).get("MarketType") == "spot":
        raise invalid_parameter("Launch template should not request spot instances. Use capacityType")
    if data.get("HibernationOptions", {}).get("Configured"):
        raise invalid_parameter("Launch template should not configure hibernation")
    custom = wish.get("amiType", "CUSTOM") == "CUSTOM"
    if data.get("ImageId") and not custom:
        raise invalid_parameter("amiType cannot be specified with a launch template that has an image ID")


def can_join(call: Call, cluster: Cluster, role_policies: set[str], subnet_ids: list[str]) -> bool:
    """Return whether nodes in these subnets can join: they have permissions and a way to the API server."""
    if not role_policies & _NODE_POLICIES:
        return False
    ec2 = call.backend("ec2")
    config = cluster.document["resourcesVpcConfig"]
    interfaces = {
        endpoint.service_name.rpartition(f".{call.region}.")[2]
        for endpoint in ec2.vpc_end_points.values()
        if endpoint.vpc_id == config["vpcId"]
    }
    inside = config["endpointPrivateAccess"] and {"ec2", "ecr.api", "ecr.dkr", "sts"} <= interfaces
    return all(inside or _has_way_out(ec2, subnet_id) for subnet_id in subnet_ids)


def has_network(world: World, cluster: Cluster, group: Nodegroup) -> bool:
    """Return whether nodes get ready: there is a network plugin, and it may assign addresses to pods.

    Its rights come from the nodes' role, or from the role that the add-on or a pod identity association gives
    to its service account ("Configure Amazon VPC CNI plugin to use IRSA" and "EKS Pod Identity" in the user
    guide).
    """
    addon = cluster.addons.get("vpc-cni")
    if addon is None and not cluster.parameters.get("bootstrapSelfManagedAddons", True):
        return False
    # It uses the first credentials that the SDK finds, and no others if AWS refuses them.
    roles = [addon.document.get("serviceAccountRoleArn")] if addon else []
    if "eks-pod-identity-agent" in cluster.addons:
        roles += [
            row["roleArn"]
            for row in cluster.associations.values()
            if (row["namespace"], row["serviceAccount"]) == ("kube-system", "aws-node")
        ]
    role = iam.role_of(world, next((arn for arn in roles if arn), group.document["nodeRole"]))
    return role is not None and all(role_may(world, role, each) for each in _of_plugin(world, cluster, group))


def _of_plugin(world: World, cluster: Cluster, group: Nodegroup) -> Iterator[Wish]:
    """Yield what the network plugin does on a node (docs/iam-policy.md of amazon-vpc-cni-k8s).

    It tags each interface that it creates or finds on its node with the cluster's name, so that a policy can
    be limited to these.
    """
    _, partition, _, region, account, _ = cluster.document["arn"].split(":", 5)
    front, (tag, name) = f"arn:{partition}:ec2:{region}:{account}", (_TAG_INTERFACE, cluster.document["name"])
    for action in _PLUGIN_READS:
        yield Wish(action=f"ec2:{action}", resource="*")
    interface, groups = f"{front}:network-interface/eni-1", f"{front}:security-group/sg-1"
    of_node = nodes.tags_of(world, region, cluster, group)
    yield Wish(action="ec2:CreateTags", resource=interface, facts=_tagged(of_node["network-interface"]))
    asked = {f"aws:requesttag/{tag}": [name], "aws:tagkeys": [tag]}
    yield Wish(action="ec2:CreateNetworkInterface", resource=interface, facts=asked)
    for subnet in group.document["subnets"]:
        facts = _tagged(world.backend("ec2", region).tags.get(subnet, {}))
        yield Wish(action="ec2:CreateNetworkInterface", resource=f"{front}:subnet/{subnet}", facts=facts)
    asked |= {"ec2:createaction": ["CreateNetworkInterface"]}
    yield Wish(action="ec2:CreateTags", resource=interface, facts=asked)
    for action in ("CreateNetworkInterface", "ModifyNetworkInterfaceAttribute"):
        yield Wish(action=f"ec2:{action}", resource=groups)
    for action in _PLUGIN_CHANGES:
        yield Wish(action=f"ec2:{action}", resource=interface, facts=_tagged({tag: name}))
    for action in _OF_INSTANCE:
        facts = _tagged(of_node["instance"])
        yield Wish(action=f"ec2:{action}", resource=f"{front}:instance/i-1", facts=facts)


def _tagged(tags: Mapping[str, str]) -> Facts:
    return {f"aws:resourcetag/{key.lower()}": [value] for key, value in tags.items()}


def _has_way_out(ec2: Any, subnet_id: str) -> bool:  # noqa: ANN401 - moto's EC2 backend
    """Return whether the subnet's route table has a NAT, or an internet gateway with public addresses."""
    subnet = ec2.get_subnet(subnet_id)
    tables = [table for table in ec2.route_tables.values() if table.vpc_id == subnet.vpc_id]
    own = [table for table in tables if subnet_id in {entry.get("SubnetId") for entry in table.associations}]
    for table in own or [table for table in tables if table.main_association_id]:
        for route in table.routes:
            if route.destination_cidr_block != "0.0.0.0/0":
                continue
            if route.nat_gateway and route.nat_gateway.state == "available":
                return True
            if route.gateway and str(subnet.map_public_ip_on_launch).lower() == "true":
                return True
    return False
