"""Where packets go: a route table for the public subnets, one for the private ones and its way out."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from cloudrec.cloud.driver import all_needed, name_of, needed
from cloudrec.engine.graph import TAG_KEY, Condition, Observed
from cloudrec.providers.aws import errors, nat, network
from cloudrec.providers.aws.driver import AwsDriver, as_map
from cloudrec.providers.aws.ec2 import Ec2Driver, Row, of_cluster

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from cloudrec.engine.graph import Resource
    from cloudrec.providers.aws.client import Aws
    from cloudrec.providers.aws.layout import Layout

TABLE, ROUTE = "route-table", "route"
KINDS: Mapping[str, AbstractSet[str]] = {
    TABLE: frozenset({network.VPC, network.SUBNET, network.GATEWAY}),
    ROUTE: frozenset({TABLE, nat.GATEWAY}),
}

_ANYWHERE = "0.0.0.0/0"
_JOINT = "|"  # in a route's identity: table|destination


def resources(layout: Layout) -> list[Resource]:
    """Describe the tables; the private default route is apart, so that nothing else waits for the NAT."""
    vpc, public, private = layout.key(network.VPC), network.public(layout), network.private(layout)
    tables = [
        layout.resource(
            TABLE,
            "public",
            needs=(vpc, layout.key(network.GATEWAY), *public),
            properties={"subnets": tuple(sorted(public)), "to_internet": True},
        ),
        layout.resource(
            TABLE,
            "private",
            needs=(vpc, *private),
            properties={"subnets": tuple(sorted(private))},
        ),
    ]
    if not layout.settings.nat:
        return tables
    needs = (layout.key(TABLE, "private"), layout.key(nat.GATEWAY))
    return [*tables, layout.resource(ROUTE, "private", needs=needs)]


def drivers(aws: Aws) -> Mapping[str, AwsDriver]:
    """Return the drivers by kind."""
    return {TABLE: RouteTableDriver(aws), ROUTE: RouteDriver(aws)}


class RouteTableDriver(Ec2Driver):
    """Handles route tables with their associations and, on the public one, the route to the internet."""

    kind, tag_type = TABLE, "route-table"
    operation, rows, id_field, ids = "describe_route_tables", "RouteTables", "RouteTableId", "RouteTableIds"
    changeable = frozenset({"subnets", "to_internet"})

    def make(self, resource: Resource, *, token: str, identities: Mapping[str, str]) -> str:
        """Create the table."""
        answer = self.ec2.create_route_table(
            VpcId=needed(resource, identities, network.VPC),
            ClientToken=token,
            TagSpecifications=self.born_with(resource),
        )
        return str(answer["RouteTable"]["RouteTableId"])

    def complete(self, resource: Resource, identity: str, *, identities: Mapping[str, str]) -> None:
        """Associate the subnets, and route to the internet gateway."""
        if resource.properties.get("to_internet"):
            gateway = needed(resource, identities, network.GATEWAY)
            _route(self.ec2, identity, GatewayId=gateway)
        for subnet in all_needed(resource, identities, network.SUBNET):
            try:
                self.ec2.associate_route_table(RouteTableId=identity, SubnetId=subnet)
            except ClientError as error:
                if errors.code(error) != "Resource.AlreadyAssociated":
                    raise

    def listed(self, filters: Sequence[Mapping[str, Any]]) -> list[Observed]:
        """Observe the tables, and name the subnets that they are associated with."""
        found = super().listed(filters)
        of_tables = {identity for table in found for identity in table.properties["subnets"]}
        if not of_tables:
            return found
        asked = [{"Name": "subnet-id", "Values": sorted(of_tables)}]
        subnets = self.aws.read("ec2", "describe_subnets", "Subnets", Filters=asked)
        keys = {row["SubnetId"]: as_map(row.get("Tags")).get(TAG_KEY, row["SubnetId"]) for row in subnets}
        return [_with_keys(table, keys) for table in found]

    def properties(self, row: Row, tags: Mapping[str, str]) -> dict[str, Any]:
        """Tell the subnets that it is associated with, and whether it leads to the internet."""
        del tags
        return {
            "subnets": tuple(each["SubnetId"] for each in row["Associations"] if "SubnetId" in each),
            "to_internet": any(
                route.get("DestinationCidrBlock") == _ANYWHERE
                and route.get("GatewayId", "").startswith("igw-")
                and route.get("State") == "active"
                for route in row["Routes"]
            ),
        }

    def remove(self, observed: Observed) -> None:
        """Dissociate the subnets, and delete the table."""
        for row in self.read(RouteTableIds=[observed.identity]):
            for association in row["Associations"]:
                if not association.get("Main"):
                    self.ec2.disassociate_route_table(AssociationId=association["RouteTableAssociationId"])
        self.ec2.delete_route_table(RouteTableId=observed.identity)


class RouteDriver(AwsDriver):
    """Handles the private table's default route. It has no tags of its own: it bears its table's."""

    kind = ROUTE

    def search(self, cluster: str | None) -> Sequence[Observed]:
        """Look into the cluster's tables."""
        rows = self.aws.read("ec2", "describe_route_tables", "RouteTables", Filters=of_cluster(cluster))
        return [seen for row in rows for seen in self._observe(row)]

    def look(self, identity: str) -> tuple[Condition, str]:
        """Look into its table."""
        table, _, _ = identity.partition(_JOINT)
        rows = self.aws.read("ec2", "describe_route_tables", "RouteTables", RouteTableIds=[table])
        for seen in (seen for row in rows for seen in self._observe(row)):
            return seen.condition, seen.reason
        return Condition.GONE, ""

    def make(self, resource: Resource, *, token: str, identities: Mapping[str, str]) -> str:
        """Route everything that leaves the VPC to the NAT gateway."""
        del token  # a route is its own: a second one of the same destination is refused
        table = needed(resource, identities, TABLE)
        _route(self.aws.client("ec2"), table, NatGatewayId=needed(resource, identities, nat.GATEWAY))
        return f"{table}{_JOINT}{_ANYWHERE}"

    def remove(self, observed: Observed) -> None:
        """Delete the route."""
        table, _, destination = observed.identity.partition(_JOINT)
        self.aws.client("ec2").delete_route(RouteTableId=table, DestinationCidrBlock=destination)

    def _observe(self, row: Row) -> list[Observed]:
        tags = as_map(row.get("Tags"))
        name = name_of(tags, row["RouteTableId"])
        return [
            Observed(
                kind=ROUTE,
                name=name,
                identity=f"{row['RouteTableId']}{_JOINT}{_ANYWHERE}",
                condition=Condition.READY if route.get("State") == "active" else Condition.FAILED,
                tags={**tags, TAG_KEY: f"{ROUTE}/{name}"},
                reason="" if route.get("State") == "active" else "leads to a NAT gateway that is gone",
                location=self.aws.region,
            )
            for route in row["Routes"]
            if route.get("DestinationCidrBlock") == _ANYWHERE and route.get("NatGatewayId")
        ]


def _route(ec2: Any, table: str, **target: str) -> None:  # noqa: ANN401 - boto3 has no types
    """Send what leaves the VPC to a gateway; a route that is there is turned to it."""
    try:
        ec2.create_route(RouteTableId=table, DestinationCidrBlock=_ANYWHERE, **target)
    except ClientError as error:
        if errors.code(error) != "RouteAlreadyExists":
            raise
        ec2.replace_route(RouteTableId=table, DestinationCidrBlock=_ANYWHERE, **target)


def _with_keys(table: Observed, keys: Mapping[str, str]) -> Observed:
    subnets = tuple(sorted(keys.get(identity, identity) for identity in table.properties["subnets"]))
    return replace(table, properties={**table.properties, "subnets": subnets})
