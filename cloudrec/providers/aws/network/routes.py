"""Route tables of the public and of the private subnets, and the private table's default route."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from cloudrec.engine.cost import FREE
from cloudrec.engine.graph import TAG_KEY, Condition, Observed, Properties
from cloudrec.providers.aws import errors
from cloudrec.providers.aws.api.driver import AwsDriver, as_map
from cloudrec.providers.aws.api.ec2 import Ec2Driver, Ec2Facts, of_cluster
from cloudrec.providers.aws.network import nat, network
from cloudrec.providers.base.driver import all_needed, name_of, needed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from types_boto3_ec2.type_defs import (
        CreateRouteRequestTypeDef,
        DescribeRouteTablesRequestPaginateTypeDef,
        FilterTypeDef,
        ReplaceRouteRequestTypeDef,
        RouteTableTypeDef,
    )

    from cloudrec.engine.graph import Resource
    from cloudrec.providers.aws.api.client import Aws
    from cloudrec.providers.aws.layout import AwsLayout

TABLE, ROUTE = "route-table", "route"
KINDS: Mapping[str, AbstractSet[str]] = {
    TABLE: frozenset({network.VPC, network.SUBNET, network.GATEWAY}),
    ROUTE: frozenset({TABLE, nat.GATEWAY}),
}

_ANYWHERE = "0.0.0.0/0"
_JOINT = "|"  # in a route's identity: table|destination


def resources(layout: AwsLayout) -> list[Resource]:
    """Describe the tables and the private default route.

    The route is a separate resource: only it waits for the NAT gateway, which takes minutes.
    """
    vpc, public, private = layout.key(network.VPC), network.public(layout), network.private(layout)
    tables: list[Resource] = [
        layout.resource(
            TABLE,
            "public",
            needs=(vpc, layout.key(network.GATEWAY), *public),
            properties=RouteTableProperties(subnets=tuple(sorted(public)), to_internet=True),
            hourly_usd=FREE,
        ),
        layout.resource(
            TABLE,
            "private",
            needs=(vpc, *private),
            properties=RouteTableProperties(subnets=tuple(sorted(private))),
            hourly_usd=FREE,
        ),
    ]
    if not layout.settings.nat:
        return tables
    needs = (layout.key(TABLE, "private"), layout.key(nat.GATEWAY))
    return [*tables, layout.resource(ROUTE, "private", needs=needs, hourly_usd=FREE)]


def drivers(aws: Aws) -> Mapping[str, AwsDriver]:
    """Return the drivers by kind."""
    return {TABLE: RouteTableDriver(aws), ROUTE: RouteDriver(aws)}


@dataclass(frozen=True, kw_only=True)
class RouteTableProperties(Properties):
    """The requested properties of a route table.

    Attributes:
        subnets: keys of the subnets that it is associated with, sorted.
        to_internet: whether it has a default route to the internet gateway; None where `RouteDriver` handles
            the default route.
    """

    subnets: tuple[str, ...]
    to_internet: bool | None = None


class RouteTableDriver(Ec2Driver["RouteTableTypeDef", RouteTableProperties]):
    """Handles route tables with their associations and, on the public one, the route to the internet."""

    kind = TABLE
    tag_type = "route-table"
    charge = FREE
    changeable = frozenset({"subnets", "to_internet"})

    def rows(
        self, *, ids: Sequence[str] = (), filters: Sequence[FilterTypeDef] = ()
    ) -> list[RouteTableTypeDef]:
        """Return route tables by ID or by filters."""
        return _tables(self.aws, {"RouteTableIds": ids} if ids else {"Filters": filters})

    def facts(self, row: RouteTableTypeDef) -> Ec2Facts:
        """Return ID and tags."""
        return Ec2Facts(identity=row["RouteTableId"], tags=row.get("Tags"))

    def make(
        self, resource: Resource[RouteTableProperties], *, token: str, identities: Mapping[str, str]
    ) -> str:
        """Create the table; `complete` adds associations and route."""
        answer = self.ec2.create_route_table(
            VpcId=needed(resource, identities, network.VPC),
            ClientToken=token,
            TagSpecifications=self.born_with(resource),
        )
        return str(answer["RouteTable"]["RouteTableId"])

    def complete(
        self, resource: Resource[RouteTableProperties], identity: str, *, identities: Mapping[str, str]
    ) -> None:
        """Associate the subnets, and create the public table's route to the internet gateway."""
        if resource.properties.to_internet:
            gateway = needed(resource, identities, network.GATEWAY)
            _route(
                self.aws,
                {"RouteTableId": identity, "DestinationCidrBlock": _ANYWHERE, "GatewayId": gateway},
                {"RouteTableId": identity, "DestinationCidrBlock": _ANYWHERE, "GatewayId": gateway},
            )
        for subnet in all_needed(resource, identities, network.SUBNET):
            try:
                self.ec2.associate_route_table(RouteTableId=identity, SubnetId=subnet)
            except ClientError as error:
                if errors.code(error) != "Resource.AlreadyAssociated":
                    raise

    def listed(self, filters: Sequence[FilterTypeDef]) -> list[Observed]:
        """Return the tables; their subnets are named by key instead of ID, as in the requested properties."""
        found = super().listed(filters)
        # One request for the subnets of all tables.
        of_tables: set[str] = {identity for table in found for identity in table.properties["subnets"]}
        if not of_tables:
            return found
        subnets = self.aws.rows(
            self.ec2.get_paginator("describe_subnets").paginate,
            lambda page: page.get("Subnets"),
            Filters=[{"Name": "subnet-id", "Values": sorted(of_tables)}],
        )
        keys = {row["SubnetId"]: as_map(row.get("Tags")).get(TAG_KEY, row["SubnetId"]) for row in subnets}
        return [_with_keys(table, keys) for table in found]

    def properties(self, row: RouteTableTypeDef, tags: Mapping[str, str]) -> Mapping[str, object]:
        """Return the IDs of the associated subnets, and whether there is an active default route."""
        del tags
        return {
            "subnets": tuple(each["SubnetId"] for each in row["Associations"] if "SubnetId" in each),
            # EC2 keeps the route of a deleted gateway, in the state blackhole.
            "to_internet": any(
                route.get("DestinationCidrBlock") == _ANYWHERE
                and route.get("GatewayId", "").startswith("igw-")
                and route.get("State") == "active"
                for route in row["Routes"]
            ),
        }

    def remove(self, observed: Observed) -> None:
        """Remove the associations, and delete the table."""
        for row in self.rows(ids=[observed.identity]):
            for association in row["Associations"]:
                # The association that makes a table the VPC's main one cannot be removed.
                if not association.get("Main"):
                    self.ec2.disassociate_route_table(AssociationId=association["RouteTableAssociationId"])
        self.ec2.delete_route_table(RouteTableId=observed.identity)


class RouteDriver(AwsDriver[Properties]):
    """Handles the private table's default route. Routes have no tags: it is observed with its table's."""

    kind = ROUTE

    def search(self, cluster: str | None) -> Sequence[Observed]:
        """List the default routes of the cluster's tables."""
        rows = _tables(self.aws, {"Filters": of_cluster(cluster)})
        return [seen for row in rows for seen in self._observe(row)]

    def look(self, identity: str) -> tuple[Condition, str]:
        """Return the condition of the route, from its table; FAILED if its NAT gateway is gone."""
        table, _, _ = identity.partition(_JOINT)
        rows = _tables(self.aws, {"RouteTableIds": [table]})
        for seen in (seen for row in rows for seen in self._observe(row)):
            return seen.condition, seen.reason
        return Condition.GONE, ""

    def make(self, resource: Resource, *, token: str, identities: Mapping[str, str]) -> str:
        """Create the default route to the NAT gateway."""
        del token  # EC2 refuses a second route of the same destination
        table = needed(resource, identities, TABLE)
        gateway = needed(resource, identities, nat.GATEWAY)
        _route(
            self.aws,
            {"RouteTableId": table, "DestinationCidrBlock": _ANYWHERE, "NatGatewayId": gateway},
            {"RouteTableId": table, "DestinationCidrBlock": _ANYWHERE, "NatGatewayId": gateway},
        )
        return f"{table}{_JOINT}{_ANYWHERE}"

    def remove(self, observed: Observed) -> None:
        """Delete the route."""
        table, _, destination = observed.identity.partition(_JOINT)
        self.aws.ec2.delete_route(RouteTableId=table, DestinationCidrBlock=destination)

    def _observe(self, row: RouteTableTypeDef) -> list[Observed]:
        tags = as_map(row.get("Tags"))
        name = name_of(tags, row["RouteTableId"])
        return [
            Observed(
                kind=ROUTE,
                name=name,
                identity=f"{row['RouteTableId']}{_JOINT}{_ANYWHERE}",
                condition=Condition.READY if route.get("State") == "active" else Condition.FAILED,
                tags={**tags, TAG_KEY: f"{ROUTE}/{name}"},
                reason="" if route.get("State") == "active" else "its NAT gateway is gone",
                location=self.aws.region,
                hourly_usd=FREE,
            )
            for route in row["Routes"]
            if route.get("DestinationCidrBlock") == _ANYWHERE and route.get("NatGatewayId")
        ]


def _tables(aws: Aws, asked: DescribeRouteTablesRequestPaginateTypeDef) -> list[RouteTableTypeDef]:
    pages = aws.ec2.get_paginator("describe_route_tables").paginate
    return aws.rows(pages, lambda page: page.get("RouteTables"), **asked)


def _route(aws: Aws, wanted: CreateRouteRequestTypeDef, otherwise: ReplaceRouteRequestTypeDef) -> None:
    """Create a route; an existing route of the same destination is replaced by `otherwise`."""
    try:
        aws.ec2.create_route(**wanted)
    except ClientError as error:
        if errors.code(error) != "RouteAlreadyExists":
            raise
        aws.ec2.replace_route(**otherwise)


def _with_keys(table: Observed, keys: Mapping[str, str]) -> Observed:
    subnets = tuple(sorted(keys.get(identity, identity) for identity in table.properties["subnets"]))
    return replace(table, properties={**table.properties, "subnets": subnets})
