"""What EKS refuses at once in a node group's template, sizes, role and taints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudrec.sandbox.aws.services import capacity
from cloudrec.sandbox.aws.services.eks import checks
from cloudrec.sandbox.aws.services.eks.state import Cluster, invalid_parameter

if TYPE_CHECKING:
    from cloudrec.sandbox.aws.call import Call

_NODE_POLICIES = {"AmazonEKSWorkerNodePolicy", "AmazonEKSWorkerNodeMinimalPolicy"}


def parameters(call: Call, cluster: Cluster) -> dict[str, Any]:
    """All checks of CreateNodegroup; the launch template's data, empty without one."""
    wish = call.params
    sizes(wish.get("scalingConfig", {}))
    checks.role(call, wish["nodeRole"], "ec2.amazonaws.com", "Node role")
    nets = checks.subnets(call, wish["subnets"])
    if nets and nets[0].vpc_id != cluster.document["resourcesVpcConfig"]["vpcId"]:
        raise invalid_parameter("Subnets are not in the VPC of the cluster")
    data = template(call, wish.get("launchTemplate"))
    types = wish.get("instanceTypes", [])
    if wish.get("launchTemplate"):
        _with_template(wish, data)
    if bad := [name for name in [*types, data.get("InstanceType", "t3.medium")] if not capacity.exists(name)]:
        raise invalid_parameter(f"The following supplied instance types do not exist: [{bad[0]}]")
    market = data.get("InstanceMarketOptions", {}).get("MarketType")
    block = wish.get("capacityType") == "CAPACITY_BLOCK"
    if block != (market == "capacity-block"):
        raise invalid_parameter(
            "capacityType CAPACITY_BLOCK and a launch template whose InstanceMarketOptions.MarketType is"
            " capacity-block need each other"
        )
    return data


def sizes(config: dict[str, int]) -> None:
    """The sizes are in order."""
    low, most = config.get("minSize", 1), config.get("maxSize", 2)
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
    """The launch template's data; `chosen` is given its id, name and version."""
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
    """What must not stand in both places, and what a template for EKS must not say."""
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
    """Whether nodes in these subnets will find their cluster: permissions, and a way to it."""
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


def _has_way_out(ec2: Any, subnet_id: str) -> bool:  # noqa: ANN401 - moto's EC2 backend
    """Whether the subnet's table leads anywhere by NAT, or by an internet gateway and public addresses."""
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
