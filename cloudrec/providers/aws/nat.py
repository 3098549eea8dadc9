"""The way out for private nodes: one NAT gateway, and the public address that it is seen under."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from cloudrec.cloud.driver import needed
from cloudrec.engine.graph import Condition, Observed, Verdict
from cloudrec.providers.aws import charges, errors, network
from cloudrec.providers.aws.ec2 import Ec2Driver, Row

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet

    from cloudrec.engine.graph import Resource
    from cloudrec.providers.aws.client import Aws
    from cloudrec.providers.aws.driver import AwsDriver
    from cloudrec.providers.aws.layout import Layout

ADDRESS, GATEWAY = "elastic-ip", "nat-gateway"
_PUBLIC_TABLE = "route-table"  # routes.TABLE, which stands on this file
KINDS: Mapping[str, AbstractSet[str]] = {
    ADDRESS: frozenset(),
    GATEWAY: frozenset({ADDRESS, network.SUBNET, network.GATEWAY, _PUBLIC_TABLE}),
}


def resources(layout: Layout) -> list[Resource]:
    """Describe the gateway, in the zone that GPU nodes are tried in first, and its address."""
    if not layout.settings.nat:
        return []
    address = layout.resource(ADDRESS, hourly_usd=charges.PUBLIC_ADDRESS)
    needs = (
        address.key,
        layout.key(network.SUBNET, f"public-{layout.gpu_zones[0]}"),
        layout.key(network.GATEWAY),
        layout.key(_PUBLIC_TABLE, "public"),
    )
    return [address, layout.resource(GATEWAY, needs=needs, hourly_usd=charges.NAT_GATEWAY)]


def drivers(aws: Aws) -> Mapping[str, AwsDriver]:
    """Return the drivers by kind."""
    return {ADDRESS: ElasticIpDriver(aws), GATEWAY: NatGatewayDriver(aws)}


class ElasticIpDriver(Ec2Driver):
    """Handles elastic IP addresses."""

    kind, tag_type = ADDRESS, "elastic-ip"
    operation, rows, id_field, ids = "describe_addresses", "Addresses", "AllocationId", "AllocationIds"

    def make(self, resource: Resource, *, token: str, identities: Mapping[str, str]) -> str:
        """Allocate an address; EC2 has no token for it."""
        del token, identities
        answer = self.ec2.allocate_address(Domain="vpc", TagSpecifications=self.born_with(resource))
        return str(answer["AllocationId"])

    def hourly_usd(self, row: Row) -> float:
        """Tell what it costs, in use or not."""
        del row
        return charges.PUBLIC_ADDRESS

    def remove(self, observed: Observed) -> None:
        """Release the address."""
        self.ec2.release_address(AllocationId=observed.identity)

    def verdict(self, error: Exception) -> Verdict:
        """Wait where EC2 says that we may not: it says so of an address whose NAT gateway is just gone."""
        if errors.code(error) == "AuthFailure" and getattr(error, "operation_name", "") == "ReleaseAddress":
            return Verdict.RETRY
        return super().verdict(error)


class NatGatewayDriver(Ec2Driver):
    """Handles NAT gateways. Deleted ones stay listed for about an hour."""

    kind, tag_type = GATEWAY, "natgateway"
    operation, rows, id_field, ids = "describe_nat_gateways", "NatGateways", "NatGatewayId", "NatGatewayIds"
    filters = "Filter"
    states: ClassVar[Mapping[str, Condition]] = {
        "available": Condition.READY,
        "failed": Condition.FAILED,
        "deleting": Condition.DELETING,
        "deleted": Condition.GONE,
    }
    deadline_s = 900.0
    poll_s = 5.0

    def make(self, resource: Resource, *, token: str, identities: Mapping[str, str]) -> str:
        """Create the gateway; whether it comes up is seen later."""
        answer = self.ec2.create_nat_gateway(
            SubnetId=needed(resource, identities, network.SUBNET),
            AllocationId=needed(resource, identities, ADDRESS),
            ClientToken=token,
            TagSpecifications=self.born_with(resource),
        )
        return str(answer["NatGateway"]["NatGatewayId"])

    def state(self, row: Row) -> tuple[Condition, str]:
        """Tell how far it has come, and in EC2's words why it failed."""
        condition, _ = super().state(row)
        if condition is not Condition.FAILED:
            return condition, ""
        return condition, f"{row.get('FailureCode', '')}: {row.get('FailureMessage', '')}"

    def hourly_usd(self, row: Row) -> float:
        """Tell what it costs without the traffic; one that failed costs nothing."""
        return 0.0 if row.get("State") == "failed" else charges.NAT_GATEWAY

    def remove(self, observed: Observed) -> None:
        """Delete the gateway; its address stays ours."""
        self.ec2.delete_nat_gateway(NatGatewayId=observed.identity)
