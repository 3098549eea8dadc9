"""Security groups: who may talk to nodes, to the endpoints and to the file system."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from botocore.exceptions import ClientError

from cloudrec.cloud.driver import needed
from cloudrec.engine.graph import Difference, Observed
from cloudrec.providers.aws import errors, network
from cloudrec.providers.aws.ec2 import Ec2Driver, Row

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from collections.abc import Set as AbstractSet

    from cloudrec.engine.graph import Resource
    from cloudrec.providers.aws.client import Aws
    from cloudrec.providers.aws.driver import AwsDriver
    from cloudrec.providers.aws.layout import Layout

GROUP = "security-group"
KINDS: Mapping[str, AbstractSet[str]] = {GROUP: frozenset({network.VPC})}

_SELF, _EVERYTHING, _ANYWHERE = "itself", "-1", "0.0.0.0/0"
_HTTPS = (443, 443)
_LUSTRE_PORTS = ((988, 988), (1018, 1023))


class Rule(NamedTuple):
    """What is let through: which way, what, from or to whom (a block of addresses, or the group itself)."""

    way: str  # "in" or "out"
    protocol: str
    first: int
    last: int
    peer: str

    def as_permission(self, group: str) -> dict[str, Any]:
        """Return it as EC2 takes it."""
        permission: dict[str, Any] = {"IpProtocol": self.protocol}
        if self.protocol != _EVERYTHING:
            permission |= {"FromPort": self.first, "ToPort": self.last}
        if self.peer == _SELF:
            return {**permission, "UserIdGroupPairs": [{"GroupId": group}]}
        return {**permission, "IpRanges": [{"CidrIp": self.peer}]}


_BORN = Rule("out", _EVERYTHING, -1, -1, _ANYWHERE)  # every group has it from the start


def resources(layout: Layout) -> list[Resource]:
    """Describe the groups that the settings ask for."""
    inside = layout.settings.vpc_cidr
    # EFA wants a rule that names the group itself both ways; one that names all addresses does not count.
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
            properties={
                "name": f"{layout.name}-{suffix}",
                "rules": tuple(sorted(rules)),
                "to_anywhere": _BORN in rules,
            },
        )
        for suffix, rules in groups.items()
    ]


def drivers(aws: Aws) -> Mapping[str, AwsDriver]:
    """Return the driver by its kind."""
    return {GROUP: SecurityGroupDriver(aws)}


class SecurityGroupDriver(Ec2Driver):
    """Handles security groups with their rules. Rules that others added are left alone."""

    kind, tag_type = GROUP, "security-group"
    operation, rows, id_field, ids = "describe_security_groups", "SecurityGroups", "GroupId", "GroupIds"
    deadline_s = 1800.0  # interfaces that bear it linger for minutes after what they belonged to

    def make(self, resource: Resource, *, token: str, identities: Mapping[str, str]) -> str:
        """Create the group; EC2 has no token for it, but refuses a second one of its name."""
        del token
        answer = self.ec2.create_security_group(
            GroupName=resource.properties["name"],
            Description=f"cloudrec: {resource.name}",
            VpcId=needed(resource, identities, network.VPC),
            TagSpecifications=self.born_with(resource),
        )
        return str(answer["GroupId"])

    def complete(self, resource: Resource, identity: str, *, identities: Mapping[str, str]) -> None:
        """Let through what is asked for, and unless that is everything take away the rule from birth."""
        del identities
        ways = {
            "in": self.ec2.authorize_security_group_ingress,
            "out": self.ec2.authorize_security_group_egress,
        }
        for rule in resource.properties["rules"]:
            if rule == _BORN:
                continue
            try:
                ways[rule.way](GroupId=identity, IpPermissions=[rule.as_permission(identity)])
            except ClientError as error:
                if errors.code(error) != "InvalidPermission.Duplicate":
                    raise
        if not resource.properties["to_anywhere"]:
            try:
                self.ec2.revoke_security_group_egress(
                    GroupId=identity, IpPermissions=[_BORN.as_permission(identity)]
                )
            except ClientError as error:
                if errors.code(error) != "InvalidPermission.NotFound":
                    raise

    def difference(self, resource: Resource, observed: Observed) -> Difference | None:
        """Tell which rules are missing, and whether it is open where it should not be."""
        there = observed.properties["rules"]
        wrong = [f"it lacks {rule}" for rule in resource.properties["rules"] if rule not in there]
        if observed.properties["to_anywhere"] and not resource.properties["to_anywhere"]:
            wrong.append("it lets everything out")
        return Difference(reason="; ".join(wrong), in_place=True) if wrong else None

    def properties(self, row: Row, tags: Mapping[str, str]) -> dict[str, Any]:
        """Tell its rules."""
        del tags
        rules = tuple(sorted(_rules(row)))
        return {"name": row["GroupName"], "rules": rules, "to_anywhere": _BORN in rules}

    def remove(self, observed: Observed) -> None:
        """Take the group out of other groups' rules, since while one names it it stays, and delete it."""
        group = observed.identity
        for name, way in (("", "ingress"), ("egress.", "egress")):
            named = [{"Name": f"{name}ip-permission.group-id", "Values": [group]}]
            for row in self.read(Filters=named):
                if row["GroupId"] != group:
                    self._revoke(row, way, group)
        self.ec2.delete_security_group(GroupId=group)

    def _revoke(self, row: Row, way: str, group: str) -> None:
        permissions = row["IpPermissions" if way == "ingress" else "IpPermissionsEgress"]
        naming = [
            {
                **{key: value for key, value in each.items() if key in {"IpProtocol", "FromPort", "ToPort"}},
                "UserIdGroupPairs": [{"GroupId": group}],
            }
            for each in permissions
            if any(pair.get("GroupId") == group for pair in each.get("UserIdGroupPairs", ()))
        ]
        if naming:
            revoke = getattr(self.ec2, f"revoke_security_group_{way}")
            revoke(GroupId=row["GroupId"], IpPermissions=naming)


def _rules(row: Row) -> Iterator[Rule]:
    """Read the rules off a described group."""
    for way, field in (("in", "IpPermissions"), ("out", "IpPermissionsEgress")):
        for each in row.get(field, ()):
            ends = (each.get("FromPort", -1), each.get("ToPort", -1))
            if each["IpProtocol"] == _EVERYTHING:
                ends = (-1, -1)
            peers = [block["CidrIp"] for block in each.get("IpRanges", ())]
            peers += [pair.get("GroupId", "") for pair in each.get("UserIdGroupPairs", ())]
            for peer in peers:
                yield Rule(way, each["IpProtocol"], *ends, _SELF if peer == row["GroupId"] else peer)
