"""The network: a VPC, its internet gateway, and in each zone a private and a public subnet."""

from __future__ import annotations

import ipaddress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from cloudrec.cloud.driver import needed
from cloudrec.engine.graph import TAG_EXPIRES, Condition, Observed
from cloudrec.errors import SpecError
from cloudrec.providers.aws import errors, zones
from cloudrec.providers.aws.ec2 import Ec2Driver, Row
from cloudrec.providers.aws.layout import TAG_ZONES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from cloudrec.engine.graph import Resource
    from cloudrec.providers.aws.client import Aws
    from cloudrec.providers.aws.driver import AwsDriver
    from cloudrec.providers.aws.layout import Layout

VPC, GATEWAY, SUBNET = "vpc", "internet-gateway", "subnet"
KINDS: Mapping[str, AbstractSet[str]] = {
    VPC: frozenset(),
    GATEWAY: frozenset({VPC}),
    SUBNET: frozenset({VPC}),
}

_PARTS = 8  # of the VPC's block: a private subnet in each of seven zones, the last one for public ones
_PUBLIC_BITS = 5  # by which a public subnet's block is longer than that last part's


def resources(layout: Layout) -> list[Resource]:
    """Describe the VPC, its way out, and its subnets."""
    laid_out = zones.as_tag(zones.Zones(gpu=layout.gpu_zones, all=layout.zones))
    vpc = layout.resource(
        VPC,
        properties={
            "cidr": layout.settings.vpc_cidr,
            "dns_hostnames": True,
            "zones": laid_out,
            "expires": layout.cluster.expires or "",
        },
        tags={TAG_ZONES: laid_out},
    )
    gateway = layout.resource(GATEWAY, needs=(vpc.key,), properties={"attached": True})
    return [vpc, gateway, *(subnet for zone in layout.zones for subnet in _subnets(layout, zone))]


def drivers(aws: Aws) -> Mapping[str, AwsDriver]:
    """Return the drivers by kind."""
    return {driver.kind: driver(aws) for driver in (VpcDriver, InternetGatewayDriver, SubnetDriver)}


def private(layout: Layout, only: Sequence[str] | None = None) -> tuple[str, ...]:
    """Return the keys of the private subnets, of all zones or of some."""
    return layout.keys(SUBNET, [f"private-{zone}" for zone in (layout.zones if only is None else only)])


def public(layout: Layout) -> tuple[str, ...]:
    """Return the keys of the public subnets."""
    return layout.keys(SUBNET, [f"public-{zone}" for zone in layout.zones])


def _subnets(layout: Layout, zone: str) -> list[Resource]:
    """Describe a zone's subnets; their blocks depend on its letter, not on what other zones there are."""
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
    # Where the load balancers' controller looks for subnets.
    roles = {"private": "kubernetes.io/role/internal-elb", "public": "kubernetes.io/role/elb"}
    return [
        layout.resource(
            SUBNET,
            f"{side}-{zone}",
            needs=(layout.key(VPC),),
            properties={"cidr": str(block), "zone": zone},
            tags={roles[side]: "1"},
        )
        for side, block in blocks.items()
    ]


class VpcDriver(Ec2Driver):
    """Handles VPCs."""

    kind, tag_type = VPC, "vpc"
    operation, rows, id_field, ids = "describe_vpcs", "Vpcs", "VpcId", "VpcIds"
    changeable = frozenset({"dns_hostnames", "zones", "expires"})

    def find(self, resource: Resource) -> Observed | None:
        """Look it up, and whether hosts have names, which endpoints with private DNS need."""
        found = super().find(resource)
        if found is None or found.condition is not Condition.READY:
            return found
        answer = self.aws.read(
            "ec2", "describe_vpc_attribute", VpcId=found.identity, Attribute="enableDnsHostnames"
        )
        names = {"dns_hostnames": answer["EnableDnsHostnames"]["Value"]}
        return replace(found, properties={**found.properties, **names})

    def make(self, resource: Resource, *, token: str, identities: Mapping[str, str]) -> str:
        """Create the VPC; EC2 has no token for it."""
        del token, identities
        answer = self.ec2.create_vpc(
            CidrBlock=resource.properties["cidr"], TagSpecifications=self.born_with(resource)
        )
        return str(answer["Vpc"]["VpcId"])

    def complete(self, resource: Resource, identity: str, *, identities: Mapping[str, str]) -> None:
        """Give hosts names, and write down the zones."""
        del identities
        self.ec2.modify_vpc_attribute(VpcId=identity, EnableDnsHostnames={"Value": True})
        told = {TAG_ZONES: resource.properties["zones"], TAG_EXPIRES: resource.properties["expires"]}
        self.tag(identity, {name: value for name, value in told.items() if value})

    def properties(self, row: Row, tags: Mapping[str, str]) -> dict[str, Any]:
        """Tell its block and its zones."""
        return {
            "cidr": row["CidrBlock"],
            "zones": tags.get(TAG_ZONES, ""),
            "expires": tags.get(TAG_EXPIRES, ""),
        }

    def remove(self, observed: Observed) -> None:
        """Delete the VPC."""
        self.ec2.delete_vpc(VpcId=observed.identity)


class InternetGatewayDriver(Ec2Driver):
    """Handles internet gateways, each attached to its VPC."""

    kind, tag_type = GATEWAY, "internet-gateway"
    operation, rows = "describe_internet_gateways", "InternetGateways"
    id_field, ids = "InternetGatewayId", "InternetGatewayIds"
    changeable = frozenset({"attached"})
    deadline_s = 1800.0  # it cannot be detached while public addresses are mapped, 20 minutes at times

    def make(self, resource: Resource, *, token: str, identities: Mapping[str, str]) -> str:
        """Create the gateway; EC2 has no token for it."""
        del token, identities
        answer = self.ec2.create_internet_gateway(TagSpecifications=self.born_with(resource))
        return str(answer["InternetGateway"]["InternetGatewayId"])

    def complete(self, resource: Resource, identity: str, *, identities: Mapping[str, str]) -> None:
        """Attach it."""
        vpc = needed(resource, identities, VPC)
        try:
            self.ec2.attach_internet_gateway(InternetGatewayId=identity, VpcId=vpc)
        except ClientError as error:
            if errors.code(error) != "Resource.AlreadyAssociated":
                raise

    def properties(self, row: Row, tags: Mapping[str, str]) -> dict[str, Any]:
        """Tell whether it is attached."""
        del tags
        return {"attached": bool(row["Attachments"])}

    def remove(self, observed: Observed) -> None:
        """Detach and delete it."""
        for row in self.read(InternetGatewayIds=[observed.identity]):
            for attachment in row["Attachments"]:
                self.ec2.detach_internet_gateway(
                    InternetGatewayId=observed.identity, VpcId=attachment["VpcId"]
                )
        self.ec2.delete_internet_gateway(InternetGatewayId=observed.identity)


class SubnetDriver(Ec2Driver):
    """Handles subnets."""

    kind, tag_type = SUBNET, "subnet"
    operation, rows, id_field, ids = "describe_subnets", "Subnets", "SubnetId", "SubnetIds"
    deadline_s = 1800.0  # interfaces in it linger for minutes after what they belonged to

    def make(self, resource: Resource, *, token: str, identities: Mapping[str, str]) -> str:
        """Create the subnet; EC2 has no token for it."""
        del token
        answer = self.ec2.create_subnet(
            VpcId=needed(resource, identities, VPC),
            CidrBlock=resource.properties["cidr"],
            AvailabilityZone=resource.properties["zone"],
            TagSpecifications=self.born_with(resource),
        )
        return str(answer["Subnet"]["SubnetId"])

    def properties(self, row: Row, tags: Mapping[str, str]) -> dict[str, Any]:
        """Tell its block and zone."""
        del tags
        return {"cidr": row["CidrBlock"], "zone": row["AvailabilityZone"]}

    def remove(self, observed: Observed) -> None:
        """Delete the subnet."""
        self.ec2.delete_subnet(SubnetId=observed.identity)
