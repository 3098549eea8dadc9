"""Security groups of nodes, of endpoints and of the file system."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from botocore.exceptions import ClientError

from cloudrec.engine.cost import FREE
from cloudrec.engine.graph import Difference, Observed, Properties
from cloudrec.providers.aws import errors
from cloudrec.providers.aws.api.ec2 import Ec2Driver, Ec2Facts, naming
from cloudrec.providers.aws.network import network
from cloudrec.providers.base.driver import needed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from types_boto3_ec2.type_defs import (
        DescribeSecurityGroupsRequestPaginateTypeDef,
        FilterTypeDef,
        IpPermissionOutputTypeDef,
        IpPermissionTypeDef,
        SecurityGroupTypeDef,
    )

    from cloudrec.engine.graph import Resource
    from cloudrec.providers.aws.api.client import Aws
    from cloudrec.providers.aws.api.driver import AwsDriver
    from cloudrec.providers.aws.layout import AwsLayout

GROUP = "security-group"
KINDS: Mapping[str, AbstractSet[str]] = {GROUP: frozenset({network.VPC})}

_SELF, _EVERYTHING, _ANYWHERE = "itself", "-1", "0.0.0.0/0"
_HTTPS = (443, 443)
_LUSTRE_PORTS = ((988, 988), (1018, 1023))  # first and last; FSx creates no file system without them


class Rule(NamedTuple):
    """A rule: direction, protocol, first and last port, and the peer (a block of addresses, or the group)."""

    way: str  # "in" or "out"
    protocol: str
    first: int
    last: int
    peer: str

    def as_permission(self, group: str) -> IpPermissionTypeDef:
        """Return the rule of this group in EC2's form."""
        permission: IpPermissionTypeDef = {"IpProtocol": self.protocol}
        if self.protocol != _EVERYTHING:
            permission["FromPort"], permission["ToPort"] = self.first, self.last
        if self.peer == _SELF:
            permission["UserIdGroupPairs"] = [{"GroupId": group}]
        else:
            permission["IpRanges"] = [{"CidrIp": self.peer}]
        return permission


_BORN = Rule("out", _EVERYTHING, -1, -1, _ANYWHERE)  # EC2 creates every group with this rule


def resources(layout: AwsLayout) -> list[Resource]:
    """Describe the security groups that the settings require."""
    inside = layout.settings.vpc_cidr
    # EFA needs rules that name the group itself in both directions; a rule for all addresses is not enough.
    nodes = [Rule(way, _EVERYTHING, -1, -1, _SELF) for way in ("in", "out")]
    groups = {"nodes": [*nodes, _BORN]}
    if layout.settings.lustre_gib:
        groups["nodes"] += [Rule("in", "tcp", *ports, inside) for ports in _LUSTRE_PORTS]
        groups["lustre"] = [
            Rule(way, "tcp", *ports, peer)
            for ports in _LUSTRE_PORTS
            for way in ("in", "out")
            for peer in (_SELF, inside)
        ]
    if layout.settings.endpoints:
        groups["endpoints"] = [Rule("in", "tcp", *_HTTPS, inside)]
    return [
        layout.resource(
            GROUP,
            suffix,
            needs=(layout.key(network.VPC),),
            properties=SecurityGroupProperties(
                name=f"{layout.name}-{suffix}",
                rules=tuple(sorted(rules)),
                to_anywhere=_BORN in rules,
            ),
            hourly_usd=FREE,
        )
        for suffix, rules in groups.items()
    ]


def drivers(aws: Aws) -> Mapping[str, AwsDriver]:
    """Return the driver by its kind."""
    return {GROUP: SecurityGroupDriver(aws)}


@dataclass(frozen=True, kw_only=True)
class SecurityGroupProperties(Properties):
    """The requested properties of a security group.

    Attributes:
        name: EC2's name of the group, unique in the VPC.
        rules: the rules that it must have, sorted.
        to_anywhere: whether it keeps the rule that lets all traffic out, which every new group has.
    """

    name: str
    rules: tuple[Rule, ...]
    to_anywhere: bool


class SecurityGroupDriver(Ec2Driver["SecurityGroupTypeDef", SecurityGroupProperties]):
    """Handles security groups with their rules. Rules that users have added stay."""

    kind = GROUP
    tag_type = "security-group"
    charge = FREE
    deadline_s = 1800.0  # network interfaces that have it remain for minutes after their owners

    def rows(
        self, *, ids: Sequence[str] = (), filters: Sequence[FilterTypeDef] = ()
    ) -> list[SecurityGroupTypeDef]:
        """Return security groups by ID or by filters."""
        asked: DescribeSecurityGroupsRequestPaginateTypeDef = (
            {"GroupIds": ids} if ids else {"Filters": filters}
        )
        pages = self.ec2.get_paginator("describe_security_groups").paginate
        return self.aws.rows(pages, lambda page: page.get("SecurityGroups"), **asked)

    def facts(self, row: SecurityGroupTypeDef) -> Ec2Facts:
        """Return ID and tags."""
        return Ec2Facts(identity=row["GroupId"], tags=row.get("Tags"))

    def make(
        self, resource: Resource[SecurityGroupProperties], *, token: str, identities: Mapping[str, str]
    ) -> str:
        """Create the group; EC2 has no idempotency token for it, but refuses a second one of the name."""
        del token
        answer = self.ec2.create_security_group(
            GroupName=resource.properties.name,
            Description=f"cloudrec: {resource.name}",
            VpcId=needed(resource, identities, network.VPC),
            TagSpecifications=self.born_with(resource),
        )
        return str(answer["GroupId"])

    def complete(
        self, resource: Resource[SecurityGroupProperties], identity: str, *, identities: Mapping[str, str]
    ) -> None:
        """Add the missing rules, and remove the rule that EC2 creates groups with if it is not requested."""
        del identities
        for rule in resource.properties.rules:
            if rule == _BORN:
                continue
            # One call for each rule: an existing rule is an error, which must not stop the others.
            wanted = [rule.as_permission(identity)]
            try:
                if rule.way == "in":
                    self.ec2.authorize_security_group_ingress(GroupId=identity, IpPermissions=wanted)
                else:
                    self.ec2.authorize_security_group_egress(GroupId=identity, IpPermissions=wanted)
            except ClientError as error:
                if errors.code(error) != "InvalidPermission.Duplicate":
                    raise
        if not resource.properties.to_anywhere:
            try:
                self.ec2.revoke_security_group_egress(
                    GroupId=identity, IpPermissions=[_BORN.as_permission(identity)]
                )
            except ClientError as error:
                if errors.code(error) != "InvalidPermission.NotFound":
                    raise

    def difference(
        self, resource: Resource[SecurityGroupProperties], observed: Observed
    ) -> Difference | None:
        """Return the missing rules, and whether the group lets all traffic out against the request."""
        there: Sequence[Rule] = observed.properties["rules"]
        wrong = [f"it lacks {rule}" for rule in resource.properties.rules if rule not in there]
        if observed.properties["to_anywhere"] and not resource.properties.to_anywhere:
            wrong.append("it lets all traffic out")
        return Difference(reason="; ".join(wrong), in_place=True) if wrong else None

    def properties(self, row: SecurityGroupTypeDef, tags: Mapping[str, str]) -> Mapping[str, object]:
        """Return name and rules."""
        del tags
        rules = tuple(sorted(_rules(row)))
        return {"name": row["GroupName"], "rules": rules, "to_anywhere": _BORN in rules}

    def remove(self, observed: Observed) -> None:
        """Delete the group, after the rules of other groups that name it: EC2 refuses while one does."""
        group = observed.identity
        for row in self.rows(filters=[{"Name": "ip-permission.group-id", "Values": [group]}]):
            rules = naming(row["IpPermissions"], group)
            if row["GroupId"] != group and rules:
                self.ec2.revoke_security_group_ingress(GroupId=row["GroupId"], IpPermissions=rules)
        for row in self.rows(filters=[{"Name": "egress.ip-permission.group-id", "Values": [group]}]):
            rules = naming(row["IpPermissionsEgress"], group)
            if row["GroupId"] != group and rules:
                self.ec2.revoke_security_group_egress(GroupId=row["GroupId"], IpPermissions=rules)
        self.ec2.delete_security_group(GroupId=group)


def _rules(row: SecurityGroupTypeDef) -> Iterator[Rule]:
    """Return the rules of a group in EC2's response."""
    ways: list[tuple[str, Sequence[IpPermissionOutputTypeDef]]] = [
        ("in", row.get("IpPermissions", [])),
        ("out", row.get("IpPermissionsEgress", [])),
    ]
    for way, rules in ways:
        for each in rules:
            ends = (each.get("FromPort", -1), each.get("ToPort", -1))
            # A rule for all protocols has no ports, whatever EC2 reports.
            if each["IpProtocol"] == _EVERYTHING:
                ends = (-1, -1)
            peers = [block["CidrIp"] for block in each.get("IpRanges", ())]
            peers += [pair.get("GroupId", "") for pair in each.get("UserIdGroupPairs", ())]
            for peer in peers:
                yield Rule(way, each["IpProtocol"], *ends, _SELF if peer == row["GroupId"] else peer)
