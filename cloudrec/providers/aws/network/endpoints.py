"""VPC endpoints, by which nodes reach AWS's services without leaving the VPC."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from botocore.exceptions import ClientError

from cloudrec.engine.cost import FREE
from cloudrec.engine.graph import Condition, Observed, Properties
from cloudrec.providers.aws import charges
from cloudrec.providers.aws.api.ec2 import Ec2Driver, Ec2Facts
from cloudrec.providers.aws.network import firewall, network, routes
from cloudrec.providers.base.driver import all_needed, needed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from types_boto3_ec2.type_defs import (
        CreateVpcEndpointRequestTypeDef,
        DescribeVpcEndpointsRequestPaginateTypeDef,
        FilterTypeDef,
        VpcEndpointTypeDef,
    )

    from cloudrec.engine.graph import Resource
    from cloudrec.providers.aws.api.client import Aws
    from cloudrec.providers.aws.api.driver import AwsDriver
    from cloudrec.providers.aws.layout import AwsLayout

ENDPOINT = "endpoint"
KINDS: Mapping[str, AbstractSet[str]] = {
    ENDPOINT: frozenset({network.VPC, network.SUBNET, routes.TABLE, firewall.GROUP})
}

_GATEWAYS = frozenset({"s3"})  # a free entry in a route table; other services have an address in every zone
# The settings' names of services have no dots; AWS's names of these two do.
_DOTTED: Mapping[str, str] = {"ecr-api": "ecr.api", "ecr-dkr": "ecr.dkr"}


def resources(layout: AwsLayout) -> list[Resource]:
    """Describe the endpoints that the settings name."""
    return [_endpoint(layout, name) for name in offered(layout)]


def offered(layout: AwsLayout) -> list[str]:
    """Return the settings' services that have endpoints here; nodes reach the others through the NAT."""
    return [name for name in layout.settings.endpoints if name in _GATEWAYS or _zones(layout, name)]


def _zones(layout: AwsLayout, name: str) -> list[str]:
    """Return the cluster's zones in which a service has interface endpoints."""
    there = layout.endpoint_zones.get(name, layout.zones)
    return [zone for zone in layout.zones if zone in there]


def zones_of(aws: Aws, names: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the zones in which each service has interface endpoints; none for one that the region lacks.

    EC2 refuses an endpoint with a subnet in another zone.
    """
    asked = {_service(aws.region, name): name for name in names if name not in _GATEWAYS}
    if not asked:
        return {}
    # A filter leaves out a service that does not exist; the parameter ServiceNames would fail.
    rows = aws.rows(
        aws.ec2.get_paginator("describe_vpc_endpoint_services").paginate,
        lambda page: page.get("ServiceDetails"),
        Filters=[
            {"Name": "service-name", "Values": sorted(asked)},
            {"Name": "service-type", "Values": ["Interface"]},
        ],
    )
    there = {row["ServiceName"]: tuple(row.get("AvailabilityZones", ())) for row in rows}
    return {name: there.get(service, ()) for service, name in asked.items()}


def _service(region: str, name: str) -> str:
    return f"com.amazonaws.{region}.{_DOTTED.get(name, name)}"


def drivers(aws: Aws) -> Mapping[str, AwsDriver]:
    """Return the driver by its kind."""
    return {ENDPOINT: EndpointDriver(aws)}


def _endpoint(layout: AwsLayout, name: str) -> Resource[EndpointProperties]:
    service = _service(layout.region, name)
    vpc = layout.key(network.VPC)
    if name in _GATEWAYS:
        needs = (vpc, layout.key(routes.TABLE, "private"))
        properties = EndpointProperties(service=service, subnets=0)
        return layout.resource(ENDPOINT, name, needs=needs, properties=properties, hourly_usd=FREE)
    subnets = network.private(layout, _zones(layout, name))
    return layout.resource(
        ENDPOINT,
        name,
        needs=(vpc, *subnets, layout.key(firewall.GROUP, "endpoints")),
        properties=EndpointProperties(service=service, subnets=len(subnets)),
        hourly_usd=layout.prices.service(charges.INTERFACE_ENDPOINT, len(subnets)),
    )


@dataclass(frozen=True, kw_only=True)
class EndpointProperties(Properties):
    """The requested properties of a VPC endpoint.

    Attributes:
        service: AWS's name of the service, `com.amazonaws.REGION.SERVICE`.
        subnets: number of subnets with an address of the endpoint; 0 for a gateway.
    """

    service: str
    subnets: int


class EndpointDriver(Ec2Driver["VpcEndpointTypeDef", EndpointProperties]):
    """Handles gateway endpoints, and interface endpoints with private DNS."""

    kind = ENDPOINT
    tag_type = "vpc-endpoint"
    states: ClassVar[Mapping[str, Condition]] = {
        "available": Condition.READY,
        "failed": Condition.FAILED,
        "rejected": Condition.FAILED,
        "expired": Condition.FAILED,
        "deleting": Condition.DELETING,
        "deleted": Condition.GONE,
    }
    changeable = frozenset({"subnets"})
    deadline_s = 900.0
    poll_s = 5.0

    def rows(
        self, *, ids: Sequence[str] = (), filters: Sequence[FilterTypeDef] = ()
    ) -> list[VpcEndpointTypeDef]:
        """Return endpoints by ID or by filters."""
        asked: DescribeVpcEndpointsRequestPaginateTypeDef = (
            {"VpcEndpointIds": ids} if ids else {"Filters": filters}
        )
        pages = self.ec2.get_paginator("describe_vpc_endpoints").paginate
        return self.aws.rows(pages, lambda page: page.get("VpcEndpoints"), **asked)

    def facts(self, row: VpcEndpointTypeDef) -> Ec2Facts:
        """Return ID, tags, state and creation time."""
        return Ec2Facts(
            identity=row["VpcEndpointId"],
            tags=row.get("Tags"),
            state=row.get("State", "available"),
            created=row.get("CreationTimestamp"),
        )

    def make(
        self, resource: Resource[EndpointProperties], *, token: str, identities: Mapping[str, str]
    ) -> str:
        """Create the endpoint: a gateway if it needs a route table, else an interface."""
        asked: CreateVpcEndpointRequestTypeDef = {
            "VpcId": needed(resource, identities, network.VPC),
            "ServiceName": resource.properties.service,
            "ClientToken": token,
            "TagSpecifications": self.born_with(resource),
        }
        tables = all_needed(resource, identities, routes.TABLE)
        if tables:
            asked["VpcEndpointType"] = "Gateway"
            asked["RouteTableIds"] = tables
        else:
            asked["VpcEndpointType"] = "Interface"
            asked["SubnetIds"] = all_needed(resource, identities, network.SUBNET)
            asked["SecurityGroupIds"] = all_needed(resource, identities, firewall.GROUP)
            asked["PrivateDnsEnabled"] = True
        return self.ec2.create_vpc_endpoint(**asked)["VpcEndpoint"]["VpcEndpointId"]

    def change(
        self, resource: Resource[EndpointProperties], observed: Observed, *, identities: Mapping[str, str]
    ) -> None:
        """Add the subnets that the endpoint has no address in yet."""
        rows = self.rows(ids=[observed.identity])
        served = {subnet for row in rows for subnet in row.get("SubnetIds", ())}
        more = [one for one in all_needed(resource, identities, network.SUBNET) if one not in served]
        if more:
            self.ec2.modify_vpc_endpoint(VpcEndpointId=observed.identity, AddSubnetIds=more)

    def properties(self, row: VpcEndpointTypeDef, tags: Mapping[str, str]) -> Mapping[str, object]:
        """Return the service, and the number of subnets."""
        del tags
        return {"service": row["ServiceName"], "subnets": len(row.get("SubnetIds", ()))}

    def hourly_usd(self, row: VpcEndpointTypeDef) -> float | None:
        """Return the USD an hour without traffic; a gateway has no subnets, and so is free."""
        return self.aws.prices.service(charges.INTERFACE_ENDPOINT, len(row.get("SubnetIds", ())))

    def remove(self, observed: Observed) -> None:
        """Delete the endpoint; ClientError if the successful response contains an error."""
        answer = self.ec2.delete_vpc_endpoints(VpcEndpointIds=[observed.identity])
        # The call deletes several endpoints, so that it succeeds even if it deletes none.
        for refused in answer.get("Unsuccessful", ()):
            raise ClientError({"Error": {**refused["Error"]}}, "DeleteVpcEndpoints")
