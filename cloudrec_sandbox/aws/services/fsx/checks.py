"""What FSx refuses of a new file system; the limits are those of botocore's model and its texts."""

from __future__ import annotations

from ipaddress import IPv4Network
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.aws.services.ec2.network.groups import rules_are_visible
from cloudrec_sandbox.aws.services.fsx.store import refuse

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cloudrec_sandbox.aws.api.call import Call

_PORT = 988  # of Lustre's network; FSx also needs 1018 to 1023 (LustreGuide, "cannot create file system")
_SMALLEST, _STEP = 1200, 2400  # GiB
_THROUGHPUT = {"PERSISTENT_1": (50, 100, 200), "PERSISTENT_2": (125, 250, 500, 1000)}
# The oldest version is also the default without FileSystemTypeVersion.
_OLDEST = {"SCRATCH_1": "2.10", "SCRATCH_2": "2.10", "PERSISTENT_1": "2.10", "PERSISTENT_2": "2.12"}
_VERSIONS = ("2.10", "2.12", "2.15")
_TIERED_STEP = 4000  # MB/s


def check(call: Call) -> None:
    """Raise AwsError for a parameter that FSx refuses."""
    wanted = call.params
    lustre = wanted.get("LustreConfiguration", {})
    if wanted["FileSystemType"] != "LUSTRE":
        raise refuse("BadRequest", "this stand-in has file systems of type LUSTRE only")
    deployment = lustre.get("DeploymentType", "SCRATCH_1")
    _check_subnet(call, wanted.get("SubnetIds", []))
    _check_version(wanted.get("FileSystemTypeVersion"), deployment)
    if wanted.get("StorageType", "SSD") == "INTELLIGENT_TIERING":
        _check_tiering(wanted, lustre, deployment)
    else:
        _check_capacity(wanted.get("StorageCapacity"), deployment)
        _check_throughput(lustre, deployment)
    _check_groups(call, wanted, lustre)


def version_of(wanted: Mapping[str, Any]) -> str:
    """Return the version of Lustre that a file system will have."""
    deployment = wanted.get("LustreConfiguration", {}).get("DeploymentType", "SCRATCH_1")
    return str(wanted.get("FileSystemTypeVersion") or _OLDEST[deployment])


def _check_subnet(call: Call, subnets: Sequence[str]) -> None:
    if len(subnets) != 1:
        raise refuse(
            "BadRequest", f"Exactly 1 subnet IDs are required for LUSTRE, {len(subnets)} were given."
        )
    if not any(subnets[0] in zone for zone in call.backend("ec2").subnets.values()):
        raise refuse(
            "InvalidNetworkSettings", f"The subnet '{subnets[0]}' does not exist.", InvalidSubnetId=subnets[0]
        )


def _check_version(version: str | None, deployment: str) -> None:
    if version is not None and version not in _VERSIONS:
        raise refuse("BadRequest", f"Lustre {version} is not offered; there are {', '.join(_VERSIONS)}.")
    if version is not None and float(version) < float(_OLDEST[deployment]):
        raise refuse("BadRequest", f"Lustre {version} is not supported by {deployment}.")


def _check_capacity(capacity: int | None, deployment: str) -> None:
    if capacity is None:
        raise refuse("BadRequest", "StorageCapacity is required.")
    step = 3600 if deployment == "SCRATCH_1" else _STEP
    if capacity != _SMALLEST and (capacity % step or capacity < _STEP) and capacity != _STEP:
        raise refuse(
            "BadRequest",
            f"Invalid storage capacity {capacity} GiB for {deployment}: {_SMALLEST}, {_STEP} and increments "
            f"of {step} are valid.",
        )


def _check_throughput(lustre: Mapping[str, Any], deployment: str) -> None:
    throughput, valid = lustre.get("PerUnitStorageThroughput"), _THROUGHPUT.get(deployment)
    if valid is None and throughput is not None:
        raise refuse("BadRequest", f"PerUnitStorageThroughput is not supported by {deployment}.")
    if valid is not None and throughput not in valid:
        raise refuse(
            "InvalidPerUnitStorageThroughput",
            f"Invalid per unit storage throughput {throughput} for {deployment}: valid are "
            f"{', '.join(map(str, valid))}.",
        )
    if lustre.get("EfaEnabled") and deployment != "PERSISTENT_2":
        raise refuse("BadRequest", f"EfaEnabled is not supported by {deployment}.")


def _check_tiering(wanted: Mapping[str, Any], lustre: Mapping[str, Any], deployment: str) -> None:
    if deployment != "PERSISTENT_2" or wanted.get("StorageCapacity"):
        raise refuse("BadRequest", "INTELLIGENT_TIERING takes PERSISTENT_2 and no StorageCapacity.")
    if not lustre.get("ThroughputCapacity") or lustre["ThroughputCapacity"] % _TIERED_STEP:
        raise refuse("BadRequest", f"ThroughputCapacity must be a multiple of {_TIERED_STEP} MBps.")
    if "DataReadCacheConfiguration" not in lustre:
        raise refuse("BadRequest", "DataReadCacheConfiguration is required for INTELLIGENT_TIERING.")


def _check_groups(call: Call, wanted: Mapping[str, Any], lustre: Mapping[str, Any]) -> None:
    ec2 = call.backend("ec2")
    subnet = ec2.get_subnet(wanted["SubnetIds"][0])
    names = wanted.get("SecurityGroupIds") or [ec2.get_default_security_group(subnet.vpc_id).id]
    groups = []
    for name in names:
        group = ec2.get_security_group_from_id(name)
        if group is None or group.vpc_id != subnet.vpc_id:
            raise refuse(
                "InvalidNetworkSettings",
                f"The security group '{name}' does not exist in VPC {subnet.vpc_id}.",
                InvalidSecurityGroupId=name,
            )
        groups.append(group)
    block = IPv4Network(subnet.cidr_block)
    # FSx sees a rule some seconds after EC2 has it, so a group without visible rules lets nothing through.
    seen = [group for group in groups if rules_are_visible(call.world, call.region, group.id)]
    inward = [rule for group in seen for rule in group.ingress_rules]
    outward = [rule for group in seen for rule in group.egress_rules]
    if not all(any(_lets(rule, names, block) for rule in rules) for rules in (inward, outward)):
        raise refuse(
            "InvalidNetworkSettings",
            "The file system cannot be created because the default security group in the subnet provided or "
            "the provided security groups do not permit Lustre LNET network traffic on port 988",
            InvalidSecurityGroupId=names[0],
        )
    if lustre.get("EfaEnabled") and not all(
        any(rule.ip_protocol == "-1" and rule.source_group.get("GroupId") in names for rule in rules)
        for rules in (inward, outward)
    ):
        raise refuse(
            "InvalidNetworkSettings",
            "The provided security groups do not permit all traffic to and from themselves, which EFA needs.",
            InvalidSecurityGroupId=names[0],
        )


def _lets(rule: Any, groups: Sequence[str], block: IPv4Network) -> bool:  # noqa: ANN401 - moto's rule
    """Return whether a rule lets the file system's servers reach each other."""
    if rule.ip_protocol == "tcp":
        if not rule.from_port <= _PORT <= rule.to_port:
            return False
    elif rule.ip_protocol != "-1":
        return False
    if rule.source_group.get("GroupId") in groups:
        return True
    return bool(rule.cidr_ipv4) and block.subnet_of(IPv4Network(rule.cidr_ipv4, strict=False))
