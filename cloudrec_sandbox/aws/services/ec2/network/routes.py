"""Routes and route tables: which targets a route may have, and black holes after a target is deleted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.aws.api.errors import AwsError
from cloudrec_sandbox.aws.api.registry import operation

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec_sandbox.aws.api.call import Call
    from cloudrec_sandbox.core.http import Reply

_USABLE = ("pending", "available")


@operation("ec2", "CreateRoute", "ReplaceRoute")
def lead(call: Call) -> Reply:
    """Refuse a target that does not exist or is in another VPC."""
    ec2, wanted = call.backend(), call.params
    if nat_id := wanted.get("NatGatewayId"):
        nat = ec2.nat_gateways.get(nat_id)
        if nat is None or nat.state not in _USABLE:
            raise AwsError("InvalidNatGatewayID.NotFound", f"The natGateway ID '{nat_id}' does not exist")
    igw = ec2.internet_gateways.get(wanted.get("GatewayId"))
    table = ec2.route_tables.get(wanted["RouteTableId"])
    if igw and table and (igw.vpc is None or igw.vpc.id != table.vpc_id):
        raise AwsError(
            "InvalidParameterValue",
            f"route table {table.id} and network gateway {igw.id} belong to different networks",
        )
    return call.pass_on()


@operation("ec2", "AssociateRouteTable")
def associate(call: Call) -> Reply:
    """Refuse a subnet that has another table."""
    ec2, wanted = call.backend(), call.params
    for table in ec2.route_tables.values():
        if table.id != wanted["RouteTableId"] and wanted.get("SubnetId", "") in table._associations.values():
            raise AwsError(
                "Resource.AlreadyAssociated",
                f"the specified association for route table {wanted['RouteTableId']} conflicts with an "
                "existing association",
            )
    return call.pass_on()


@operation("ec2", "DeleteRouteTable")
def delete(call: Call) -> Reply:
    """Refuse a VPC's main table."""
    table = call.backend().route_tables.get(call.params["RouteTableId"])
    if table is not None and table.main_association_id:
        raise AwsError(
            "DependencyViolation", f"The routeTable '{table.id}' has dependencies and cannot be deleted."
        )
    return call.pass_on()


@operation("ec2", "DescribeRouteTables")
def describe(call: Call) -> Reply | dict[str, Any]:
    """Show routes whose target is gone as black holes; in moto they stay active."""
    ec2 = call.backend()
    if not any(
        _is_black(ec2, _target(route)) for table in ec2.route_tables.values() for route in table.routes
    ):
        return call.pass_on()
    output = call.output()
    for row in (row for table in output["RouteTables"] for row in table["Routes"]):
        if _is_black(ec2, row):
            row["State"] = "blackhole"
    return output


def _target(route: Any) -> dict[str, Any]:  # noqa: ANN401 - moto's route
    return {"NatGatewayId": route.nat_gateway_id, "GatewayId": route.gateway_id}


def _is_black(ec2: Any, route: Mapping[str, Any]) -> bool:  # noqa: ANN401 - moto's EC2 backend
    nat_id, gateway_id = route.get("NatGatewayId"), route.get("GatewayId") or ""
    if nat_id:
        nat = ec2.nat_gateways.get(nat_id)
        return nat is None or nat.state not in (*_USABLE, "deleting")
    if gateway_id.startswith("igw-"):
        igw = ec2.internet_gateways.get(gateway_id)
        return igw is None or igw.vpc is None
    return False
