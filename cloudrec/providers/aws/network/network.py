"""The network: a VPC, its internet gateway, and a private and a public subnet in each zone."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from cloudrec.engine.cost import FREE
from cloudrec.engine.graph import TAG_EXPIRES, Condition, Observed, Properties
from cloudrec.errors import SpecError
from cloudrec.providers.aws import errors, zones
from cloudrec.providers.aws.api.ec2 import Ec2Driver, Ec2Facts
from cloudrec.providers.aws.layout import TAG_ZONES
from cloudrec.providers.base.driver import needed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from types_boto3_ec2.type_defs import (
        DescribeInternetGatewaysRequestPaginateTypeDef,
        DescribeSubnetsRequestPaginateTypeDef,
        DescribeVpcsRequestPaginateTypeDef,
        FilterTypeDef,
        InternetGatewayTypeDef,
        SubnetTypeDef,
        VpcTypeDef,
    )

    from cloudrec.engine.graph import Resource
    from cloudrec.providers.aws.api.client import Aws
    from cloudrec.providers.aws.api.driver import AwsDriver
    from cloudrec.providers.aws.layout import AwsLayout

VPC, GATEWAY, SUBNET = "vpc", "internet-gateway", "subnet"
KINDS: Mapping[str, AbstractSet[str]] = {
    VPC: frozenset(),
    GATEWAY: frozenset({VPC}),
    SUBNET: frozenset({VPC}),
}

# A VPC's block has 8 parts: one for the private subnet of each zone (a to g), the last for public subnets.
_PARTS = 8
_PUBLIC_BITS = 5  # a public subnet's prefix is so much longer than that of the last part


def resources(layout: AwsLayout) -> list[Resource]:
    """Describe the VPC, its internet gateway and its subnets."""
    laid_out = zones.as_tag(zones.AwsZones(gpu=layout.gpu_zones, all=layout.zones))
    vpc = layout.resource(
        VPC,
        properties=VpcProperties(
            cidr=layout.settings.vpc_cidr,
            dns_hostnames=True,
            zones=laid_out,
            expires=layout.cluster.expires or "",
        ),
        tags={TAG_ZONES: laid_out},
        hourly_usd=FREE,
    )
    attached = InternetGatewayProperties(attached=True)
    gateway = layout.resource(GATEWAY, needs=(vpc.key,), properties=attached, hourly_usd=FREE)
    return [vpc, gateway, *(subnet for zone in layout.zones for subnet in _subnets(layout, zone))]


def drivers(aws: Aws) -> Mapping[str, AwsDriver]:
    """Return the drivers by kind."""
    return {VPC: VpcDriver(aws), GATEWAY: InternetGatewayDriver(aws), SUBNET: AwsSubnetDriver(aws)}


def private(layout: AwsLayout, only: Sequence[str] | None = None) -> tuple[str, ...]:
    """Return the keys of the private subnets of these zones; of all zones if None."""
    return layout.keys(SUBNET, [f"private-{zone}" for zone in (layout.zones if only is None else only)])


def public(layout: AwsLayout) -> tuple[str, ...]:
    """Return the keys of the public subnets."""
    return layout.keys(SUBNET, [f"public-{zone}" for zone in layout.zones])


def _subnets(layout: AwsLayout, zone: str) -> list[Resource[AwsSubnetProperties]]:
    """Describe a zone's subnets.

    Their blocks depend on the zone's letter alone: a zone that is added later cannot move existing subnets.
    """
    parts = list(ipaddress.IPv4Network(layout.settings.vpc_cidr).subnets(prefixlen_diff=3))
    number = ord(zone[-1]) - ord("a")
    if not 0 <= number < _PARTS - 1:
        raise SpecError(
            f"cluster.zones: zone {zone!r} does not end in a letter from a to g", remedy="take another zone"
        )
    blocks = {
        "private": parts[number],
        "public": list(parts[-1].subnets(prefixlen_diff=_PUBLIC_BITS))[number],
    }
    # The load balancers' controller finds its subnets by these tags.
    roles = {"private": "kubernetes.io/role/internal-elb", "public": "kubernetes.io/role/elb"}
    return [
        layout.resource(
            SUBNET,
            f"{side}-{zone}",
            needs=(layout.key(VPC),),
            properties=AwsSubnetProperties(cidr=str(block), zone=zone),
            tags={roles[side]: "1"},
            hourly_usd=FREE,
        )
        for side, block in blocks.items()
    ]


@dataclass(frozen=True, kw_only=True)
class VpcProperties(Properties):
    """The requested properties of a VPC.

    Attributes:
        cidr: its block of IPv4 addresses.
        dns_hostnames: whether hosts in it get DNS names.
        zones: the value of the tag `cloudrec-zones`, from `zones.as_tag`.
        expires: the value of the tag `cloudrec-expires` (ISO 8601, UTC); empty if the cluster has no end.
    """

    cidr: str
    dns_hostnames: bool
    zones: str
    expires: str


class VpcDriver(Ec2Driver["VpcTypeDef", VpcProperties]):
    """Handles VPCs."""

    kind = VPC
    tag_type = "vpc"
    charge = FREE
    changeable = frozenset({"dns_hostnames", "zones", "expires"})

    def rows(self, *, ids: Sequence[str] = (), filters: Sequence[FilterTypeDef] = ()) -> list[VpcTypeDef]:
        """Return VPCs by ID or by filters."""
        asked: DescribeVpcsRequestPaginateTypeDef = {"VpcIds": ids} if ids else {"Filters": filters}
        pages = self.ec2.get_paginator("describe_vpcs").paginate
        return self.aws.rows(pages, lambda page: page.get("Vpcs"), **asked)

    def facts(self, row: VpcTypeDef) -> Ec2Facts:
        """Return ID, tags and state."""
        return Ec2Facts(identity=row["VpcId"], tags=row.get("Tags"), state=row.get("State", "available"))

    def find(self, resource: Resource[VpcProperties]) -> Observed | None:
        """Find the VPC, and whether its hosts get DNS names, which endpoints with private DNS require."""
        found = super().find(resource)
        if found is None or found.condition is not Condition.READY:
            return found
        answer = self.aws.read(
            self.ec2.describe_vpc_attribute, VpcId=found.identity, Attribute="enableDnsHostnames"
        )
        names = {"dns_hostnames": answer["EnableDnsHostnames"]["Value"]}
        return replace(found, properties={**found.properties, **names})

    def make(self, resource: Resource[VpcProperties], *, token: str, identities: Mapping[str, str]) -> str:
        """Create the VPC; EC2 has no idempotency token for it."""
        del token, identities
        answer = self.ec2.create_vpc(
            CidrBlock=resource.properties.cidr, TagSpecifications=self.born_with(resource)
        )
        return str(answer["Vpc"]["VpcId"])

    def complete(
        self, resource: Resource[VpcProperties], identity: str, *, identities: Mapping[str, str]
    ) -> None:
        """Turn DNS names of hosts on, and set the tags of zones and expiry."""
        del identities
        self.ec2.modify_vpc_attribute(VpcId=identity, EnableDnsHostnames={"Value": True})
        wanted = {TAG_ZONES: resource.properties.zones, TAG_EXPIRES: resource.properties.expires}
        self.tag(identity, {name: value for name, value in wanted.items() if value})

    def properties(self, row: VpcTypeDef, tags: Mapping[str, str]) -> Mapping[str, object]:
        """Return block, zones and expiry; `find` adds `dns_hostnames`, which takes a call for each VPC."""
        return {
            "cidr": row["CidrBlock"],
            "zones": tags.get(TAG_ZONES, ""),
            "expires": tags.get(TAG_EXPIRES, ""),
        }

    def remove(self, observed: Observed) -> None:
        """Delete the VPC."""
        self.ec2.delete_vpc(VpcId=observed.identity)


@dataclass(frozen=True, kw_only=True)
class InternetGatewayProperties(Properties):
    """The requested properties of an internet gateway.

    Attributes:
        attached: whether it is attached to its VPC.
    """

    attached: bool


class InternetGatewayDriver(Ec2Driver["InternetGatewayTypeDef", InternetGatewayProperties]):
    """Handles internet gateways, each attached to its VPC."""

    kind = GATEWAY
    tag_type = "internet-gateway"
    charge = FREE
    changeable = frozenset({"attached"})
    deadline_s = 1800.0  # EC2 refuses to detach it while public addresses are mapped: up to 20 minutes

    def rows(
        self, *, ids: Sequence[str] = (), filters: Sequence[FilterTypeDef] = ()
    ) -> list[InternetGatewayTypeDef]:
        """Return internet gateways by ID or by filters."""
        asked: DescribeInternetGatewaysRequestPaginateTypeDef = (
            {"InternetGatewayIds": ids} if ids else {"Filters": filters}
        )
        pages = self.ec2.get_paginator("describe_internet_gateways").paginate
        return self.aws.rows(pages, lambda page: page.get("InternetGateways"), **asked)

    def facts(self, row: InternetGatewayTypeDef) -> Ec2Facts:
        """Return ID and tags; a gateway has no state."""
        return Ec2Facts(identity=row["InternetGatewayId"], tags=row.get("Tags"))

    def make(
        self, resource: Resource[InternetGatewayProperties], *, token: str, identities: Mapping[str, str]
    ) -> str:
        """Create the gateway; EC2 has no idempotency token for it."""
        del token, identities
        answer = self.ec2.create_internet_gateway(TagSpecifications=self.born_with(resource))
        return str(answer["InternetGateway"]["InternetGatewayId"])

    def complete(
        self, resource: Resource[InternetGatewayProperties], identity: str, *, identities: Mapping[str, str]
    ) -> None:
        """Attach the gateway to the VPC."""
        vpc = needed(resource, identities, VPC)
        try:
            self.ec2.attach_internet_gateway(InternetGatewayId=identity, VpcId=vpc)
        except ClientError as error:
            if errors.code(error) != "Resource.AlreadyAssociated":
                raise

    def properties(self, row: InternetGatewayTypeDef, tags: Mapping[str, str]) -> Mapping[str, object]:
        """Return whether the gateway is attached to a VPC."""
        del tags
        return {"attached": bool(row["Attachments"])}

    def remove(self, observed: Observed) -> None:
        """Detach the gateway, and delete it."""
        for row in self.rows(ids=[observed.identity]):
            for attachment in row["Attachments"]:
                self.ec2.detach_internet_gateway(
                    InternetGatewayId=observed.identity, VpcId=attachment["VpcId"]
                )
        self.ec2.delete_internet_gateway(InternetGatewayId=observed.identity)


@dataclass(frozen=True, kw_only=True)
class AwsSubnetProperties(Properties):
    """The requested properties of a subnet.

    Attributes:
        cidr: its block of IPv4 addresses, part of the VPC's.
        zone: its availability zone.
    """

    cidr: str
    zone: str


class AwsSubnetDriver(Ec2Driver["SubnetTypeDef", AwsSubnetProperties]):
    """Handles subnets."""

    kind = SUBNET
    tag_type = "subnet"
    charge = FREE
    deadline_s = 1800.0  # network interfaces remain for minutes after their owners

    def rows(self, *, ids: Sequence[str] = (), filters: Sequence[FilterTypeDef] = ()) -> list[SubnetTypeDef]:
        """Return subnets by ID or by filters."""
        asked: DescribeSubnetsRequestPaginateTypeDef = {"SubnetIds": ids} if ids else {"Filters": filters}
        pages = self.ec2.get_paginator("describe_subnets").paginate
        return self.aws.rows(pages, lambda page: page.get("Subnets"), **asked)

    def facts(self, row: SubnetTypeDef) -> Ec2Facts:
        """Return ID, tags and state."""
        return Ec2Facts(identity=row["SubnetId"], tags=row.get("Tags"), state=row.get("State", "available"))

    def make(
        self, resource: Resource[AwsSubnetProperties], *, token: str, identities: Mapping[str, str]
    ) -> str:
        """Create the subnet; EC2 has no idempotency token for it."""
        del token
        answer = self.ec2.create_subnet(
            VpcId=needed(resource, identities, VPC),
            CidrBlock=resource.properties.cidr,
            AvailabilityZone=resource.properties.zone,
            TagSpecifications=self.born_with(resource),
        )
        return str(answer["Subnet"]["SubnetId"])

    def properties(self, row: SubnetTypeDef, tags: Mapping[str, str]) -> Mapping[str, object]:
        """Return block and zone."""
        del tags
        return {"cidr": row["CidrBlock"], "zone": row["AvailabilityZone"]}

    def remove(self, observed: Observed) -> None:
        """Delete the subnet."""
        self.ec2.delete_subnet(SubnetId=observed.identity)
