"""Orphaned resources: a cluster's controllers created them; they cost money and block the network's deletion.

`AwsNetworkOrphansDriver` finds them in the VPC, or by the names that EKS and its controllers choose. It does
so only once the cluster is deleted: before, they belong to the cluster's users.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from cloudrec.engine.cost import BY_USE, FREE
from cloudrec.engine.graph import TAG_CLUSTER, Condition, Observed
from cloudrec.providers.aws import errors
from cloudrec.providers.aws.api import eks
from cloudrec.providers.aws.api.driver import AwsDriver
from cloudrec.providers.aws.api.ec2 import naming
from cloudrec.providers.base.leftovers import Leftover

if TYPE_CHECKING:
    from collections.abc import Sequence

    from types_boto3_ec2.type_defs import (
        DescribeNetworkInterfacesRequestPaginateTypeDef,
        DescribeSecurityGroupsRequestPaginateTypeDef,
        DescribeVolumesRequestPaginateTypeDef,
        DescribeVpcEndpointsRequestPaginateTypeDef,
        FilterTypeDef,
        NetworkInterfaceTypeDef,
        SecurityGroupTypeDef,
        VolumeTypeDef,
        VpcEndpointTypeDef,
    )
    from types_boto3_logs.type_defs import LogGroupTypeDef

LOAD_BALANCER, TARGETS, INTERFACE = "load-balancer", "target-group", "network-interface"
VOLUME, GROUP, LOGS = "volume", "stray-security-group", "stray-log-group"
GUARDDUTY = "guardduty-endpoint"
OWNER_TAG = "kubernetes.io/cluster/"  # the cluster's name in EKS follows
LOG_PREFIX = "/aws/eks/"


@dataclass(frozen=True, kw_only=True)
class AwsOrphanScope:
    """Where a cluster's orphaned resources can be.

    Attributes:
        title: the cluster's name in cloudrec.
        vpcs: the IDs of its VPCs; several if the response of a creation was lost.
    """

    title: str
    vpcs: tuple[str, ...]

    @property
    def cluster(self) -> str:
        """The cluster's name in EKS."""
        return f"{eks.PREFIX}{self.title}"


class AwsOrphanDriver(Leftover, AwsDriver):
    """Handles one kind of orphaned resources; cloudrec never creates them."""

    deadline_s = 1200.0

    @abstractmethod
    def left(self, place: AwsOrphanScope) -> Sequence[Observed]:
        """Return the orphaned resources of a deleted cluster."""

    def observe(
        self,
        place: AwsOrphanScope,
        identity: str,
        *,
        hourly_usd: float | None,
        name: str = "",
        location: str = "",
    ) -> Observed:
        """Return one as an `Observed`."""
        return Observed(
            kind=self.kind,
            name=name or identity,
            identity=identity,
            condition=Condition.READY,
            tags={TAG_CLUSTER: place.title},
            hourly_usd=hourly_usd,
            location=location or self.aws.region,
        )


class LoadBalancerDriver(AwsOrphanDriver):
    """Handles load balancers. The identity is the ARN, or the name of a classic load balancer."""

    kind = LOAD_BALANCER

    def left(self, place: AwsOrphanScope) -> Sequence[Observed]:
        """Return those in the VPC."""
        price = self.aws.prices.service
        newer = self.aws.rows(
            self.aws.elbv2.get_paginator("describe_load_balancers").paginate,
            lambda page: page.get("LoadBalancers"),
        )
        classic = self.aws.rows(
            self.aws.elb.get_paginator("describe_load_balancers").paginate,
            lambda page: page.get("LoadBalancerDescriptions"),
        )
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
        """Return READY; the service's error if it does not exist."""
        if identity.startswith("arn:"):
            self.aws.read(self.aws.elbv2.describe_load_balancers, LoadBalancerArns=[identity])
        else:
            self.aws.read(self.aws.elb.describe_load_balancers, LoadBalancerNames=[identity])
        return Condition.READY, ""

    def remove(self, observed: Observed) -> None:
        """Delete the resource."""
        if observed.identity.startswith("arn:"):
            self.aws.elbv2.delete_load_balancer(LoadBalancerArn=observed.identity)
        else:
            self.aws.elb.delete_load_balancer(LoadBalancerName=observed.identity)


class TargetGroupDriver(AwsOrphanDriver):
    """Handles target groups of load balancers. The identity is the ARN."""

    kind = TARGETS

    def left(self, place: AwsOrphanScope) -> Sequence[Observed]:
        """Return those in the VPC."""
        rows = self.aws.rows(
            self.aws.elbv2.get_paginator("describe_target_groups").paginate,
            lambda page: page.get("TargetGroups"),
        )
        return [
            self.observe(place, row["TargetGroupArn"], name=row["TargetGroupName"], hourly_usd=FREE)
            for row in rows
            if row.get("VpcId") in place.vpcs
        ]

    def look(self, identity: str) -> tuple[Condition, str]:
        """Return READY; the service's error if it does not exist."""
        self.aws.read(self.aws.elbv2.describe_target_groups, TargetGroupArns=[identity])
        return Condition.READY, ""

    def remove(self, observed: Observed) -> None:
        """Delete the target group; refused while a load balancer uses it."""
        self.aws.elbv2.delete_target_group(TargetGroupArn=observed.identity)


class InterfaceDriver(AwsOrphanDriver):
    """Handles unattached network interfaces, which block the deletion of subnets and security groups."""

    kind = INTERFACE

    def left(self, place: AwsOrphanScope) -> Sequence[Observed]:
        """Return the VPC's unattached interfaces, without those that an AWS service manages and deletes."""
        return [
            self.observe(
                place, row["NetworkInterfaceId"], location=row.get("AvailabilityZone", ""), hourly_usd=FREE
            )
            for row in self._within(place, "available")
            if not row.get("RequesterManaged")
        ]

    def leaving(self, place: AwsOrphanScope) -> list[str]:
        """Return the IDs of interfaces of nodes and of the control plane, which are being deleted.

        Soon they are unattached, and would then be left.
        """
        return [
            row["NetworkInterfaceId"]
            for row in self._within(place, "in-use")
            # EC2 marks a node's interface by the instance; EKS marks its own by the description.
            if row.get("Attachment", {}).get("InstanceId") or row["Description"].startswith("Amazon EKS ")
        ]

    def look(self, identity: str) -> tuple[Condition, str]:
        """Return READY if EC2 lists this ID, else GONE."""
        return _there(self._described({"NetworkInterfaceIds": [identity]}))

    def remove(self, observed: Observed) -> None:
        """Delete the resource."""
        self.aws.ec2.delete_network_interface(NetworkInterfaceId=observed.identity)

    def _within(self, place: AwsOrphanScope, status: str) -> list[NetworkInterfaceTypeDef]:
        """Return the VPC's interfaces with this status."""
        # A filter by VPC needs a value: without a VPC there are no interfaces to find.
        if not place.vpcs:
            return []
        return self._described({"Filters": [*_within(place), {"Name": "status", "Values": [status]}]})

    def _described(
        self, asked: DescribeNetworkInterfacesRequestPaginateTypeDef
    ) -> list[NetworkInterfaceTypeDef]:
        pages = self.aws.ec2.get_paginator("describe_network_interfaces").paginate
        return self.aws.rows(pages, lambda page: page.get("NetworkInterfaces"), **asked)


class VolumeDriver(AwsOrphanDriver):
    """Handles disks of persistent volume claims."""

    kind = VOLUME

    def left(self, place: AwsOrphanScope) -> Sequence[Observed]:
        """Return the disks with the cluster's name in a tag: disks belong to no VPC."""
        tagged = [f"{OWNER_TAG}{place.cluster}"]
        return [
            self.observe(
                place,
                row["VolumeId"],
                hourly_usd=self.aws.prices.service(f"ebs-{row['VolumeType']}-gib", row["Size"]),
                location=self.aws.region,
            )
            for row in self._described({"Filters": [{"Name": "tag-key", "Values": tagged}]})
        ]

    def look(self, identity: str) -> tuple[Condition, str]:
        """Return READY if EC2 lists this ID, else GONE."""
        return _there(self._described({"VolumeIds": [identity]}))

    def remove(self, observed: Observed) -> None:
        """Delete the disk; refused while it is attached."""
        self.aws.ec2.delete_volume(VolumeId=observed.identity)

    def _described(self, asked: DescribeVolumesRequestPaginateTypeDef) -> list[VolumeTypeDef]:
        pages = self.aws.ec2.get_paginator("describe_volumes").paginate
        return self.aws.rows(pages, lambda page: page.get("Volumes"), **asked)


class GuardDutyEndpointDriver(AwsOrphanDriver):
    """Handles the endpoint that GuardDuty's Runtime Monitoring makes in a cluster's VPC, and never deletes.

    Its interfaces hold the subnets and its security group, which `StrayGroupDriver` deletes. Both have the
    tag GuardDutyManaged (hashicorp/terraform-provider-aws #46747 and #46953). The endpoint costs nothing
    ("Creating an Amazon VPC endpoint" in GuardDuty's user guide).
    """

    kind = GUARDDUTY

    def left(self, place: AwsOrphanScope) -> Sequence[Observed]:
        """Return those in the VPC, also while they are deleted: until then their interfaces exist."""
        if not place.vpcs:
            return []
        tagged: FilterTypeDef = {"Name": "tag:GuardDutyManaged", "Values": ["true"]}
        return [
            self.observe(place, row["VpcEndpointId"], hourly_usd=FREE)
            for row in self._described({"Filters": [*_within(place), tagged]})
            if row["VpcEndpointType"] == "Interface" and row["State"].lower() != "deleted"
        ]

    def look(self, identity: str) -> tuple[Condition, str]:
        """Return READY if EC2 lists this ID, else GONE."""
        return _there(self._described({"VpcEndpointIds": [identity]}))

    def remove(self, observed: Observed) -> None:
        """Delete the endpoint; ClientError if the successful response contains an error."""
        answer = self.aws.ec2.delete_vpc_endpoints(VpcEndpointIds=[observed.identity])
        for refused in answer.get("Unsuccessful", ()):
            raise ClientError({"Error": {**refused["Error"]}}, "DeleteVpcEndpoints")

    def _described(self, asked: DescribeVpcEndpointsRequestPaginateTypeDef) -> list[VpcEndpointTypeDef]:
        pages = self.aws.ec2.get_paginator("describe_vpc_endpoints").paginate
        return self.aws.rows(pages, lambda page: page.get("VpcEndpoints"), **asked)


class StrayGroupDriver(AwsOrphanDriver):
    """Handles security groups that controllers, or EKS itself, created in the VPC."""

    kind = GROUP

    def left(self, place: AwsOrphanScope) -> Sequence[Observed]:
        """Return the VPC's security groups without cloudrec's and the default group."""
        return [
            self.observe(place, row["GroupId"], name=row["GroupName"], hourly_usd=FREE)
            for row in (self._described({"Filters": _within(place)}) if place.vpcs else ())
            if row["GroupName"] != "default"  # EC2 deletes this group with the VPC
            and not any(tag["Key"] == TAG_CLUSTER for tag in row.get("Tags") or ())
        ]

    def look(self, identity: str) -> tuple[Condition, str]:
        """Return READY if EC2 lists this ID, else GONE."""
        return _there(self._described({"GroupIds": [identity]}))

    def remove(self, observed: Observed) -> None:
        """Delete the group, after the rules of other groups that name it: EC2 refuses while one does."""
        ec2, group = self.aws.ec2, observed.identity
        for row in self._described({"Filters": [{"Name": "ip-permission.group-id", "Values": [group]}]}):
            rules = naming(row["IpPermissions"], group)
            ec2.revoke_security_group_ingress(GroupId=row["GroupId"], IpPermissions=rules)
        for row in self._described(
            {"Filters": [{"Name": "egress.ip-permission.group-id", "Values": [group]}]}
        ):
            rules = naming(row["IpPermissionsEgress"], group)
            ec2.revoke_security_group_egress(GroupId=row["GroupId"], IpPermissions=rules)
        ec2.delete_security_group(GroupId=group)

    def _described(self, asked: DescribeSecurityGroupsRequestPaginateTypeDef) -> list[SecurityGroupTypeDef]:
        pages = self.aws.ec2.get_paginator("describe_security_groups").paginate
        return self.aws.rows(pages, lambda page: page.get("SecurityGroups"), **asked)


class StrayLogsDriver(AwsOrphanDriver):
    """Handles the log group that EKS creates for the control plane and never deletes.

    One with a cluster's tag is cloudrec's own: EKS creates one if a late event comes after its deletion.
    """

    kind = LOGS

    def left(self, place: AwsOrphanScope) -> Sequence[Observed]:
        """Return the log group if it exists."""
        name = f"{LOG_PREFIX}{place.cluster}/cluster"
        rows = self._strays(name)
        return [self.observe(place, row["logGroupName"], hourly_usd=BY_USE) for row in rows]

    def look(self, identity: str) -> tuple[Condition, str]:
        """Return READY if a log group has exactly this name and no cluster's tag, else GONE."""
        return _there(self._strays(identity))

    def _strays(self, name: str) -> list[LogGroupTypeDef]:
        pages = self.aws.logs.get_paginator("describe_log_groups").paginate
        rows = self.aws.rows(pages, lambda page: page.get("logGroups"), logGroupNamePrefix=name)
        return [row for row in rows if row["logGroupName"] == name and not self._is_known(row)]

    def _is_known(self, row: LogGroupTypeDef) -> bool:
        arn = row["arn"].removesuffix(":*")  # the suffix means the streams in it
        return TAG_CLUSTER in self.aws.read(self.aws.logs.list_tags_for_resource, resourceArn=arn)["tags"]

    def remove(self, observed: Observed) -> None:
        """Delete the log group with its events, unless `up` has taken it over."""
        if self._strays(observed.identity):
            self.aws.logs.delete_log_group(logGroupName=observed.identity)


# In the order of deletion: load balancers use target groups; endpoints and interfaces use security groups.
DRIVERS: tuple[type[AwsOrphanDriver], ...] = (
    LoadBalancerDriver,
    TargetGroupDriver,
    VolumeDriver,
    GuardDutyEndpointDriver,
    InterfaceDriver,
    StrayGroupDriver,
    StrayLogsDriver,
)


def is_busy(error: ClientError) -> bool:
    """Return whether the error means that another resource must be deleted first."""
    return errors.code(error) in {
        "DependencyViolation",
        "ResourceInUse",
        "VolumeInUse",
        "InvalidNetworkInterface.InUse",
        "InvalidParameterValue",  # an interface "is currently in use"
    }


def _within(place: AwsOrphanScope) -> list[FilterTypeDef]:
    return [{"Name": "vpc-id", "Values": list(place.vpcs)}]


def _there(rows: Sequence[object]) -> tuple[Condition, str]:
    return (Condition.READY if rows else Condition.GONE), ""
