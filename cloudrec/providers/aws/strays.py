"""What a cluster's controllers made and left: no resource of ours, but it costs, and blocks the network.

They are looked for by LeftoversDriver, in the VPC or by the names that EKS and its controllers give, and only
once the cluster is gone: before, they are its users'.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from cloudrec.cloud.leftovers import Leftover
from cloudrec.engine.graph import TAG_CLUSTER, Condition, Observed
from cloudrec.providers.aws import eks, errors
from cloudrec.providers.aws.driver import AwsDriver

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from botocore.exceptions import ClientError


LOAD_BALANCER, TARGETS, INTERFACE = "load-balancer", "target-group", "network-interface"
VOLUME, GROUP, LOGS = "volume", "stray-security-group", "stray-log-group"
OWNER_TAG = "kubernetes.io/cluster/"  # EKS's name of the cluster follows
LOG_PREFIX = "/aws/eks/"


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a cluster's leftovers may be.

    Attributes:
        title: the cluster's name with us.
        vpcs: its VPCs' ids; several where an answer was lost.
    """

    title: str
    vpcs: tuple[str, ...]

    @property
    def cluster(self) -> str:
        """EKS's name of the cluster."""
        return f"{eks.PREFIX}{self.title}"


class StrayDriver(Leftover, AwsDriver):
    """Handles one kind of leftovers. They are never made here."""

    deadline_s = 1200.0

    @abstractmethod
    def left(self, place: Place) -> Sequence[Observed]:
        """List what a cluster that is gone left there."""

    def observe(
        self, place: Place, identity: str, *, name: str = "", hourly_usd: float = 0.0, location: str = ""
    ) -> Observed:
        """Tell of one what the engine wants to know."""
        return Observed(
            kind=self.kind,
            name=name or identity,
            identity=identity,
            condition=Condition.READY,
            tags={TAG_CLUSTER: place.title},
            hourly_usd=hourly_usd,
            location=location or self.aws.region,
        )


class LoadBalancerDriver(StrayDriver):
    """Handles load balancers; the identity of a classic one is its name, of the others their ARN."""

    kind = LOAD_BALANCER

    def left(self, place: Place) -> Sequence[Observed]:
        """List those in the VPC."""
        price = self.aws.prices.service
        newer = self.aws.read("elbv2", "describe_load_balancers", "LoadBalancers")
        classic = self.aws.read("elb", "describe_load_balancers", "LoadBalancerDescriptions")
        return [
            self.observe(
                place,
                row["LoadBalancerArn"],
                name=row["LoadBalancerName"],
                hourly_usd=price("load-balancer"),
            )
            for row in newer
            if row["VpcId"] in place.vpcs
        ] + [
            self.observe(place, row["LoadBalancerName"], hourly_usd=price("classic-load-balancer"))
            for row in classic
            if row.get("VPCId") in place.vpcs
        ]

    def look(self, identity: str) -> tuple[Condition, str]:
        """Describe it."""
        if identity.startswith("arn:"):
            self.aws.read("elbv2", "describe_load_balancers", LoadBalancerArns=[identity])
        else:
            self.aws.read("elb", "describe_load_balancers", LoadBalancerNames=[identity])
        return Condition.READY, ""

    def remove(self, observed: Observed) -> None:
        """Delete it."""
        if observed.identity.startswith("arn:"):
            self.aws.client("elbv2").delete_load_balancer(LoadBalancerArn=observed.identity)
        else:
            self.aws.client("elb").delete_load_balancer(LoadBalancerName=observed.identity)


class TargetGroupDriver(StrayDriver):
    """Handles target groups of load balancers."""

    kind = TARGETS

    def left(self, place: Place) -> Sequence[Observed]:
        """List those in the VPC."""
        rows = self.aws.read("elbv2", "describe_target_groups", "TargetGroups")
        return [
            self.observe(place, row["TargetGroupArn"], name=row["TargetGroupName"])
            for row in rows
            if row.get("VpcId") in place.vpcs
        ]

    def look(self, identity: str) -> tuple[Condition, str]:
        """Describe it."""
        self.aws.read("elbv2", "describe_target_groups", TargetGroupArns=[identity])
        return Condition.READY, ""

    def remove(self, observed: Observed) -> None:
        """Delete it; refused while a load balancer uses it."""
        self.aws.client("elbv2").delete_target_group(TargetGroupArn=observed.identity)


class _Ec2StrayDriver(StrayDriver):
    """Handles a kind of EC2's."""

    operation: ClassVar[str]
    rows: ClassVar[str]
    id_field: ClassVar[str]
    ids: ClassVar[str]

    def read(self, **parameters: object) -> list[dict[str, Any]]:
        """Describe."""
        rows: list[dict[str, Any]] = self.aws.read("ec2", self.operation, self.rows, **parameters)
        return rows

    def look(self, identity: str) -> tuple[Condition, str]:
        """Describe it by its id."""
        rows = self.read(**{self.ids: [identity]})
        return (Condition.READY if rows else Condition.GONE), ""

    def within(self, place: Place, **filters: str) -> list[dict[str, Any]]:
        """Describe what is in the VPC and passes the filters."""
        if not place.vpcs:
            return []
        asked = {"vpc-id": list(place.vpcs)} | {name: [value] for name, value in filters.items()}
        return self.read(Filters=[{"Name": name, "Values": values} for name, values in asked.items()])


class InterfaceDriver(_Ec2StrayDriver):
    """Handles network interfaces that nothing uses: they block subnet and security group."""

    kind = INTERFACE
    operation, rows = "describe_network_interfaces", "NetworkInterfaces"
    id_field, ids = "NetworkInterfaceId", "NetworkInterfaceIds"

    def left(self, place: Place) -> Sequence[Observed]:
        """List those in the VPC that are attached to nothing; a service's own go with the service."""
        return [
            self.observe(place, row[self.id_field], location=row.get("AvailabilityZone", ""))
            for row in self.within(place, status="available")
            if not row.get("RequesterManaged")
        ]

    def leaving(self, place: Place) -> list[str]:
        """List those of ending nodes and of the control plane: soon they are attached to nothing."""
        return [
            row[self.id_field]
            for row in self.within(place, status="in-use")
            if row.get("Attachment", {}).get("InstanceId") or row["Description"].startswith("Amazon EKS ")
        ]

    def remove(self, observed: Observed) -> None:
        """Delete it."""
        self.aws.client("ec2").delete_network_interface(NetworkInterfaceId=observed.identity)


class VolumeDriver(_Ec2StrayDriver):
    """Handles disks that were made for volume claims."""

    kind = VOLUME
    operation, rows, id_field, ids = "describe_volumes", "Volumes", "VolumeId", "VolumeIds"

    def left(self, place: Place) -> Sequence[Observed]:
        """List those that bear the cluster's name: disks are in no VPC."""
        tagged = [f"{OWNER_TAG}{place.cluster}"]
        return [
            self.observe(
                place,
                row[self.id_field],
                hourly_usd=self.aws.prices.service("ebs-gp3-gib", row["Size"]),
                location=self.aws.region,
            )
            for row in self.read(Filters=[{"Name": "tag-key", "Values": tagged}])
        ]

    def remove(self, observed: Observed) -> None:
        """Delete it; refused while it is attached."""
        self.aws.client("ec2").delete_volume(VolumeId=observed.identity)


class StrayGroupDriver(_Ec2StrayDriver):
    """Handles security groups that controllers, or EKS itself, made in the VPC."""

    kind = GROUP
    operation, rows = "describe_security_groups", "SecurityGroups"
    id_field, ids = "GroupId", "GroupIds"

    def left(self, place: Place) -> Sequence[Observed]:
        """List those that are neither ours nor the VPC's own."""
        return [
            self.observe(place, row[self.id_field], name=row["GroupName"])
            for row in self.within(place)
            if row["GroupName"] != "default"
            and not any(tag["Key"] == TAG_CLUSTER for tag in row.get("Tags") or ())
        ]

    def remove(self, observed: Observed) -> None:
        """Delete it, after the rules of other groups that name it."""
        ec2, group = self.aws.client("ec2"), observed.identity
        for way, revoke in (
            ("ip-permission", ec2.revoke_security_group_ingress),
            ("egress.ip-permission", ec2.revoke_security_group_egress),
        ):
            for row in self.read(Filters=[{"Name": f"{way}.group-id", "Values": [group]}]):
                rules = row["IpPermissions" if way == "ip-permission" else "IpPermissionsEgress"]
                revoke(GroupId=row["GroupId"], IpPermissions=_naming(rules, group))
        ec2.delete_security_group(GroupId=group)


class StrayLogsDriver(StrayDriver):
    """Handles the log group that EKS makes for the control plane and never removes."""

    kind = LOGS

    def left(self, place: Place) -> Sequence[Observed]:
        """Look the name up."""
        name = f"{LOG_PREFIX}{place.cluster}/cluster"
        return [self.observe(place, name)] if self.look(name)[0] is Condition.READY else []

    def look(self, identity: str) -> tuple[Condition, str]:
        """List by name."""
        rows = self.aws.read("logs", "describe_log_groups", "logGroups", logGroupNamePrefix=identity)
        return (
            Condition.READY if any(row["logGroupName"] == identity for row in rows) else Condition.GONE
        ), ""

    def remove(self, observed: Observed) -> None:
        """Delete it with all that was logged."""
        self.aws.client("logs").delete_log_group(logGroupName=observed.identity)


# In the order in which they go: what is left of the first keeps the later ones.
DRIVERS: tuple[type[StrayDriver], ...] = (
    LoadBalancerDriver,
    TargetGroupDriver,
    VolumeDriver,
    InterfaceDriver,
    StrayGroupDriver,
    StrayLogsDriver,
)


def is_busy(error: ClientError) -> bool:
    """Tell whether it says that something else must go first."""
    return errors.code(error) in {
        "DependencyViolation",
        "ResourceInUse",
        "VolumeInUse",
        "InvalidNetworkInterface.InUse",
        "InvalidParameterValue",  # an interface "is currently in use"
    }


def _naming(rules: Sequence[Mapping[str, Any]], group: str) -> list[dict[str, Any]]:
    """The rules, as far as they name the group."""
    return [
        {
            **{key: rule[key] for key in ("IpProtocol", "FromPort", "ToPort") if key in rule},
            "UserIdGroupPairs": [{"GroupId": group}],
        }
        for rule in rules
        if any(pair.get("GroupId") == group for pair in rule.get("UserIdGroupPairs") or ())
    ]
