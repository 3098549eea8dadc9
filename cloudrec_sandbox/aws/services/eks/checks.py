"""What EKS refuses at once in a cluster's role, network and version."""

from __future__ import annotations

from ipaddress import IPv4Network, ip_network
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.aws.api.constraints import violation
from cloudrec_sandbox.aws.api.errors import AwsError
from cloudrec_sandbox.aws.services import iam
from cloudrec_sandbox.aws.services.eks import versions
from cloudrec_sandbox.aws.services.eks.state import invalid_parameter

if TYPE_CHECKING:
    from cloudrec_sandbox.aws.api.call import Call

# AWS has no EKS in the zone ids use1-az3, usw1-az2 and cac1-az3; in this account 1e is use1-az3.
_UNSUPPORTED_ZONES = ("us-east-1e",)
_NOT_PUBLIC = tuple(
    map(IPv4Network, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "169.254.0.0/16"))
)
_FEWEST_ZONES = 2
_FEWEST_ADDRESSES = 6  # in each subnet, for the control plane's interfaces (EKS network requirements)


def shape(call: Call) -> None:
    """Raise InvalidParameterException for a value that botocore's model does not allow."""
    problem = violation(call)
    if problem:
        raise invalid_parameter(problem)


def role(call: Call, arn: str, service: str, what: str) -> Any:  # noqa: ANN401 - moto's role
    """Return the role; InvalidParameterException unless `service` can assume it by now."""
    found = iam.role_of(call.world, arn)
    if found is None:
        raise invalid_parameter(f"{what} {arn} could not be assumed because it does not exist")
    if not iam.trusts(found, service):
        raise invalid_parameter(
            f"{what} {arn} could not be assumed because the trusted entity is not correct"
        )
    return found


def iam_role_exists(call: Call, arn: str) -> None:
    """Raise InvalidParameterException for a role that is missing or too young."""
    if iam.role_of(call.world, arn) is None:
        raise invalid_parameter(f"Service account role {arn} does not exist")


def cluster_role(call: Call, arn: str) -> None:
    """Check that EKS can assume the cluster's role and that the role has its policy."""
    found = role(call, arn, "eks.amazonaws.com", "Role with arn:")
    if "AmazonEKSClusterPolicy" not in iam.policy_names(found) and not found.policies:
        raise invalid_parameter(
            f"Error in role params: the policy of {arn} must include AmazonEKSClusterPolicy"
        )


def version(call: Call) -> str:
    """Return the Kubernetes version that the cluster gets."""
    wanted: str = call.params.get("version", versions.DEFAULT)
    support = versions.status(call.world, wanted)
    if support == "UNSUPPORTED":
        raise invalid_parameter(f"unsupported Kubernetes version {wanted}")
    # supportType defaults to EXTENDED in botocore's model of CreateCluster.
    policy = call.params.get("upgradePolicy", {}).get("supportType", "EXTENDED")
    if support == "EXTENDED_SUPPORT" and policy == "STANDARD":
        raise invalid_parameter(
            f"Kubernetes version {wanted} is in extended support; supportType is STANDARD"
        )
    return wanted


def subnets(call: Call, ids: list[str]) -> list[Any]:
    """Return moto's subnets with those ids, all in one VPC."""
    ec2 = call.backend("ec2")
    known = {net.id: net for zone in ec2.subnets.values() for net in zone.values()}
    if missing := [name for name in ids if name not in known]:
        raise invalid_parameter(f"The subnet ID '{missing[0]}' does not exist")
    found = [known[name] for name in ids]
    if len({net.vpc_id for net in found}) > 1:
        raise invalid_parameter("Subnets specified must be in the same VPC")
    return found


def network(call: Call, config: dict[str, Any]) -> list[Any]:
    """Return the subnets; InvalidParameterException unless a control plane can run in this network."""
    found = subnets(call, config.get("subnetIds", []))
    zones = {net.availability_zone for net in found}
    if bad := sorted(zones & set(_UNSUPPORTED_ZONES)):
        valid = [f"{call.region}{letter}" for letter in "abcdf"]
        raise AwsError(
            "UnsupportedAvailabilityZoneException",
            f"Cannot create cluster '{call.params['name']}' because {bad[0]}, the targeted availability zone,"
            " does not currently have sufficient capacity to support the cluster. Retry and choose from these"
            f" availability zones: {', '.join(valid)}",
            fields={"validZones": valid, "clusterName": call.params["name"]},
        )
    if len(zones) < _FEWEST_ZONES:
        raise invalid_parameter("Subnets specified must be in at least two different AZs")
    if full := [net.id for net in found if net.available_ip_address_count < _FEWEST_ADDRESSES]:
        raise invalid_parameter(f"Subnet {full[0]} does not have enough free IP addresses")
    security_groups(call, config.get("securityGroupIds", []), found[0].vpc_id)
    endpoint(config)
    return found


def security_groups(call: Call, ids: list[str], vpc_id: str) -> None:
    """Check that the groups exist in the VPC."""
    groups = call.backend("ec2").groups.get(vpc_id, {})
    if missing := [name for name in ids if name not in groups]:
        raise invalid_parameter(f"The security group ID '{missing[0]}' does not exist")


def endpoint(config: dict[str, Any]) -> None:
    """Check that the API server has an endpoint, and that its CIDRs are valid."""
    if not config.get("endpointPublicAccess", True) and not config.get("endpointPrivateAccess", False):
        raise invalid_parameter("Private and public endpoint access cannot be false")
    for cidr in config.get("publicAccessCidrs", []):
        try:
            block = ip_network(cidr)
        except ValueError as error:
            raise invalid_parameter(
                f"The following CIDRs are invalid in publicAccessCidrs: [{cidr}]"
            ) from error
        # No requests come from there over the internet. EKS refuses documentation's blocks (RFC 5737) too, as
        # users report; here they are a stand-in's addresses of the internet.
        if isinstance(block, IPv4Network) and any(map(block.subnet_of, _NOT_PUBLIC)):
            raise invalid_parameter(f"The following CIDRs are not allowed in publicAccessCidrs: [{cidr}]")


def encryption(call: Call, configs: list[dict[str, Any]]) -> None:
    """Check that the keys exist and are enabled."""
    keys = call.backend("kms").keys
    for config in configs:
        arn = config.get("provider", {}).get("keyArn", "")
        key = keys.get(arn.rpartition("/")[2])
        if key is None or key.arn != arn:
            raise invalid_parameter(f"The keyArn in encryptionConfig provider does not exist: {arn}")
        if key.key_state != "Enabled":
            raise invalid_parameter(f"The key {arn} is not enabled: {key.key_state}")
