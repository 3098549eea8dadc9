"""Private nodes' way to the internet: one NAT gateway and its public address."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from cloudrec.engine.cost import FREE
from cloudrec.engine.graph import Condition, ErrorVerdict, Observed, Properties
from cloudrec.providers.aws import charges, errors
from cloudrec.providers.aws.api.ec2 import Ec2Driver, Ec2Facts
from cloudrec.providers.aws.network import network
from cloudrec.providers.base.driver import needed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from types_boto3_ec2.type_defs import (
        AddressTypeDef,
        DescribeAddressesRequestTypeDef,
        DescribeNatGatewaysRequestPaginateTypeDef,
        FilterTypeDef,
        NatGatewayTypeDef,
    )

    from cloudrec.engine.graph import Resource
    from cloudrec.providers.aws.api.client import Aws
    from cloudrec.providers.aws.api.driver import AwsDriver
    from cloudrec.providers.aws.layout import AwsLayout

ADDRESS, GATEWAY = "elastic-ip", "nat-gateway"
_PUBLIC_TABLE = "route-table"  # routes.TABLE; the module routes imports this one
KINDS: Mapping[str, AbstractSet[str]] = {
    ADDRESS: frozenset(),
    GATEWAY: frozenset({ADDRESS, network.SUBNET, network.GATEWAY, _PUBLIC_TABLE}),
}


def resources(layout: AwsLayout) -> list[Resource]:
    """Describe the gateway, in the first zone for GPU nodes, and its address."""
    if not layout.settings.nat:
        return []
    address = layout.resource(ADDRESS, hourly_usd=layout.prices.service(charges.PUBLIC_ADDRESS))
    # The gateway reaches the internet by the public subnet's route, which must exist before it is used.
    needs = (
        address.key,
        layout.key(network.SUBNET, f"public-{layout.gpu_zones[0]}"),
        layout.key(network.GATEWAY),
        layout.key(_PUBLIC_TABLE, "public"),
    )
    hourly_usd = layout.prices.service(charges.NAT_GATEWAY)
    return [address, layout.resource(GATEWAY, needs=needs, hourly_usd=hourly_usd)]


def drivers(aws: Aws) -> Mapping[str, AwsDriver]:
    """Return the drivers by kind."""
    return {ADDRESS: ElasticIpDriver(aws), GATEWAY: NatGatewayDriver(aws)}


class ElasticIpDriver(Ec2Driver["AddressTypeDef", Properties]):
    """Handles elastic IP addresses."""

    kind = ADDRESS
    tag_type = "elastic-ip"

    def rows(self, *, ids: Sequence[str] = (), filters: Sequence[FilterTypeDef] = ()) -> list[AddressTypeDef]:
        """Return addresses by ID or by filters."""
        asked: DescribeAddressesRequestTypeDef = {"AllocationIds": ids} if ids else {"Filters": filters}
        return list(self.aws.read(self.ec2.describe_addresses, **asked).get("Addresses") or ())

    def facts(self, row: AddressTypeDef) -> Ec2Facts:
        """Return ID and tags; an address has no state."""
        return Ec2Facts(identity=row["AllocationId"], tags=row.get("Tags"))

    def make(self, resource: Resource, *, token: str, identities: Mapping[str, str]) -> str:
        """Allocate an address; EC2 has no idempotency token for it."""
        del token, identities
        answer = self.ec2.allocate_address(Domain="vpc", TagSpecifications=self.born_with(resource))
        return str(answer["AllocationId"])

    def hourly_usd(self, row: AddressTypeDef) -> float | None:
        """Return the USD an hour; AWS charges for an address whether it is in use or not."""
        del row
        return self.aws.prices.service(charges.PUBLIC_ADDRESS)

    def remove(self, observed: Observed) -> None:
        """Release the address."""
        self.ec2.release_address(AllocationId=observed.identity)

    def verdict(self, error: Exception) -> ErrorVerdict:
        """Return the verdict; a denied release of an address is RETRY.

        EC2 denies it (AuthFailure) for a while after the NAT gateway that used the address is gone.
        """
        if errors.code(error) == "AuthFailure" and getattr(error, "operation_name", "") == "ReleaseAddress":
            return ErrorVerdict.RETRY
        return super().verdict(error)


class NatGatewayDriver(Ec2Driver["NatGatewayTypeDef", Properties]):
    """Handles NAT gateways. Deleted ones stay listed for about an hour."""

    kind = GATEWAY
    tag_type = "natgateway"
    states: ClassVar[Mapping[str, Condition]] = {
        "available": Condition.READY,
        "failed": Condition.FAILED,
        "deleting": Condition.DELETING,
        "deleted": Condition.GONE,
    }
    deadline_s = 900.0
    poll_s = 5.0

    def rows(
        self, *, ids: Sequence[str] = (), filters: Sequence[FilterTypeDef] = ()
    ) -> list[NatGatewayTypeDef]:
        """Return NAT gateways by ID or by filters."""
        asked: DescribeNatGatewaysRequestPaginateTypeDef = {"NatGatewayIds": ids}
        if not ids:  # botocore's name is Filter; the stubs have Filters
            asked = {"Filter": filters}  # type: ignore[typeddict-unknown-key]
        pages = self.ec2.get_paginator("describe_nat_gateways").paginate
        return self.aws.rows(pages, lambda page: page.get("NatGateways"), **asked)

    def facts(self, row: NatGatewayTypeDef) -> Ec2Facts:
        """Return ID, tags, state and creation time."""
        return Ec2Facts(
            identity=row["NatGatewayId"],
            tags=row.get("Tags"),
            state=row.get("State", "available"),
            created=row.get("CreateTime"),
        )

    def make(self, resource: Resource, *, token: str, identities: Mapping[str, str]) -> str:
        """Create the gateway; `look` shows later whether that succeeded."""
        answer = self.ec2.create_nat_gateway(
            SubnetId=needed(resource, identities, network.SUBNET),
            AllocationId=needed(resource, identities, ADDRESS),
            ClientToken=token,
            TagSpecifications=self.born_with(resource),
        )
        return str(answer["NatGateway"]["NatGatewayId"])

    def state(self, row: NatGatewayTypeDef) -> tuple[Condition, str]:
        """Return the condition, and EC2's code and message if the gateway failed."""
        condition, _ = super().state(row)
        if condition is not Condition.FAILED:
            return condition, ""
        return condition, f"{row.get('FailureCode', '')}: {row.get('FailureMessage', '')}"

    def hourly_usd(self, row: NatGatewayTypeDef) -> float | None:
        """Return the USD an hour without traffic; a failed gateway is free."""
        return FREE if row.get("State") == "failed" else self.aws.prices.service(charges.NAT_GATEWAY)

    def remove(self, observed: Observed) -> None:
        """Delete the gateway; its address stays allocated."""
        self.ec2.delete_nat_gateway(NatGatewayId=observed.identity)
