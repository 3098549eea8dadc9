"""VPC endpoints: AWS's services, reached without leaving the VPC."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from botocore.exceptions import ClientError

from cloudrec.cloud.driver import all_needed, needed
from cloudrec.engine.graph import Condition, Observed
from cloudrec.providers.aws import charges, firewall, network, routes
from cloudrec.providers.aws.ec2 import Ec2Driver, Row

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet

    from cloudrec.engine.graph import Resource
    from cloudrec.providers.aws.client import Aws
    from cloudrec.providers.aws.driver import AwsDriver
    from cloudrec.providers.aws.layout import Layout

ENDPOINT = "endpoint"
KINDS: Mapping[str, AbstractSet[str]] = {
    ENDPOINT: frozenset({network.VPC, network.SUBNET, routes.TABLE, firewall.GROUP})
}

_GATEWAYS = frozenset({"s3"})  # by a route, at no cost; the others have an address in every zone
_DOTTED: Mapping[str, str] = {"ecr-api": "ecr.api", "ecr-dkr": "ecr.dkr"}


def resources(layout: Layout) -> list[Resource]:
    """Describe the endpoints that the settings ask for."""
    return [_endpoint(layout, name) for name in layout.settings.endpoints]


def drivers(aws: Aws) -> Mapping[str, AwsDriver]:
    """Return the driver by its kind."""
    return {ENDPOINT: EndpointDriver(aws)}


def _endpoint(layout: Layout, name: str) -> Resource:
    service = f"com.amazonaws.{layout.region}.{_DOTTED.get(name, name)}"
    vpc = layout.key(network.VPC)
    if name in _GATEWAYS:
        needs = (vpc, layout.key(routes.TABLE, "private"))
        return layout.resource(ENDPOINT, name, needs=needs, properties={"service": service, "subnets": 0})
    subnets = network.private(layout)
    return layout.resource(
        ENDPOINT,
        name,
        needs=(vpc, *subnets, layout.key(firewall.GROUP, "endpoints")),
        properties={"service": service, "subnets": len(subnets)},
        hourly_usd=len(subnets) * charges.INTERFACE_ENDPOINT,
    )


class EndpointDriver(Ec2Driver):
    """Handles VPC endpoints of both types: gateways, and interfaces with private DNS."""

    kind, tag_type = ENDPOINT, "vpc-endpoint"
    operation, rows, id_field, ids = (
        "describe_vpc_endpoints",
        "VpcEndpoints",
        "VpcEndpointId",
        "VpcEndpointIds",
    )
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

    def make(self, resource: Resource, *, token: str, identities: Mapping[str, str]) -> str:
        """Create the endpoint."""
        how: dict[str, Any] = {
            "VpcEndpointType": "Interface",
            "SubnetIds": all_needed(resource, identities, network.SUBNET),
            "SecurityGroupIds": all_needed(resource, identities, firewall.GROUP),
            "PrivateDnsEnabled": True,
        }
        tables = all_needed(resource, identities, routes.TABLE)
        if tables:
            how = {"VpcEndpointType": "Gateway", "RouteTableIds": tables}
        answer = self.ec2.create_vpc_endpoint(
            VpcId=needed(resource, identities, network.VPC),
            ServiceName=resource.properties["service"],
            ClientToken=token,
            TagSpecifications=self.born_with(resource),
            **how,
        )
        return str(answer["VpcEndpoint"]["VpcEndpointId"])

    def change(self, resource: Resource, observed: Observed, *, identities: Mapping[str, str]) -> None:
        """Let it serve the zones that it does not serve yet."""
        rows = self.read(VpcEndpointIds=[observed.identity])
        served = {subnet for row in rows for subnet in row.get("SubnetIds", ())}
        more = [one for one in all_needed(resource, identities, network.SUBNET) if one not in served]
        if more:
            self.ec2.modify_vpc_endpoint(VpcEndpointId=observed.identity, AddSubnetIds=more)

    def properties(self, row: Row, tags: Mapping[str, str]) -> dict[str, Any]:
        """Tell the service, and in how many zones it is."""
        del tags
        return {"service": row["ServiceName"], "subnets": len(row.get("SubnetIds", ()))}

    def hourly_usd(self, row: Row) -> float:
        """Tell what it costs without the traffic."""
        return len(row.get("SubnetIds", ())) * charges.INTERFACE_ENDPOINT

    def remove(self, observed: Observed) -> None:
        """Delete the endpoint; EC2 tells a refusal in a reply that says all is well."""
        answer = self.ec2.delete_vpc_endpoints(VpcEndpointIds=[observed.identity])
        for refused in answer.get("Unsuccessful", ()):
            raise ClientError(
                {"Error": refused["Error"], "ResponseMetadata": answer["ResponseMetadata"]},
                "DeleteVpcEndpoints",
            )
