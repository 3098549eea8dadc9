"""Security groups: what prevents their deletion, names, the quota of rules.

Duration: rules-visible, after which other services see a new rule.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.aws.api.errors import AwsError
from cloudrec_sandbox.aws.api.registry import durations, operation
from cloudrec_sandbox.aws.services import quotas

if TYPE_CHECKING:
    from cloudrec_sandbox.aws.api.call import Call
    from cloudrec_sandbox.aws.api.world import World
    from cloudrec_sandbox.core.http import Reply

durations({"rules-visible": 1})

_FIRST_FAILURE = 300  # of HTTP's statuses


@dataclass
class Changes:
    """When a group's rules were changed last, by id."""

    moments: dict[str, float] = field(default_factory=dict)


def rules_are_visible(world: World, region: str, group_id: str) -> bool:
    """Return whether other services see the group's current rules."""
    changed = world.state(Changes, region).moments.get(group_id, 0.0)
    return world.now() >= changed + world.duration("rules-visible")


@operation("ec2", "CreateSecurityGroup")
def create(call: Call) -> Reply:
    """Refuse a name that the VPC has already, ignoring case, and a VPC that does not exist."""
    ec2, name = call.backend(), call.params.get("GroupName", "")
    vpc_id = call.params.get("VpcId")
    if vpc_id is not None and vpc_id not in ec2.vpcs:
        raise AwsError("InvalidVpcID.NotFound", f"The vpc ID '{vpc_id}' does not exist")
    # EC2 compares names of groups in a VPC without regard to case.
    if any(group.name.lower() == name.lower() for group in ec2.groups.get(vpc_id, {}).values()):
        raise AwsError(
            "InvalidGroup.Duplicate", f"The security group '{name}' already exists for VPC '{vpc_id}'"
        )
    return call.pass_on()


@operation("ec2", "DeleteSecurityGroup")
def delete(call: Call) -> Reply:
    """Refuse a group that an interface uses, that another group's rule names, or the VPC's default."""
    ec2 = call.backend()
    group = ec2.get_security_group_from_id(call.params.get("GroupId", ""))
    if group is None:
        return call.pass_on()
    if group.name == "default":
        raise AwsError(
            "CannotDelete",
            f'the specified group: "{group.id}" name: "default" cannot be deleted by a user',
        )
    if _is_used(ec2, group.id):
        raise AwsError("DependencyViolation", f"resource {group.id} has a dependent object")
    return call.pass_on()


def _is_used(ec2: Any, name: str) -> bool:  # noqa: ANN401 - moto's EC2 backend
    # Interfaces of services hold a group too, until the service is gone.
    return any(name == group.id for eni in ec2.enis.values() for group in eni.group_set) or any(
        name in _named(other)
        for groups in ec2.groups.values()
        for other in groups.values()
        if other.id != name
    )


def _named(group: Any) -> set[str]:  # noqa: ANN401 - moto's security group
    """Return the groups that a group's rules name."""
    return {str(rule.source_group.get("GroupId")) for rule in (*group.ingress_rules, *group.egress_rules)}


@operation("ec2", "AuthorizeSecurityGroupIngress", "AuthorizeSecurityGroupEgress")
def authorize(call: Call) -> Reply:
    """Refuse more rules than the quota, rules that name a missing group, and all if one of them exists."""
    ec2 = call.backend()
    wanted = call.params.get("IpPermissions", [])
    for pair in (pair for permission in wanted for pair in permission.get("UserIdGroupPairs", [])):
        source = pair.get("GroupId")
        if source is not None and ec2.get_security_group_from_id(source) is None:
            raise AwsError("InvalidGroup.NotFound", f"The security group '{source}' does not exist")
    group = ec2.get_security_group_from_id(call.params.get("GroupId", ""))
    if group is None:
        return call.pass_on()
    rules = group.ingress_rules if call.action.endswith("Ingress") else group.egress_rules
    before = list(rules)
    more = sum(
        len(permission.get(kind, []))
        for permission in wanted
        for kind in ("IpRanges", "Ipv6Ranges", "UserIdGroupPairs", "PrefixListIds")
    )
    if len(before) + more > quotas.limit(call.world, quotas.RULES):
        raise AwsError(
            "RulesPerSecurityGroupLimitExceeded",
            "The maximum number of rules per security group has been reached.",
        )
    reply = call.pass_on()
    if reply.status >= _FIRST_FAILURE:
        rules[:] = before  # moto keeps the rules that it added before the wrong one
    else:
        call.world.state(Changes, call.region).moments[group.id] = call.world.now()
    return reply
