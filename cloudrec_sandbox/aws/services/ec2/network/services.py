"""The services that VPC endpoints can be made for, and the zones that have them.

The names are some of "AWS services that integrate with AWS PrivateLink". A service is not in every zone:
`endpoint_zones_missing` of /_control has the zones in which a service has no interface endpoints,
{"eks-auth": ["us-east-1b"]}.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.aws.api.errors import AwsError
from cloudrec_sandbox.aws.api.registry import operation, setting
from cloudrec_sandbox.aws.services.ec2.filters import matching

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cloudrec_sandbox.aws.api.call import Call
    from cloudrec_sandbox.aws.api.world import World

_GATEWAYS = ("dynamodb", "s3")
_INTERFACES = (
    *("autoscaling", "cloudformation", "codebuild", "dynamodb", "ec2", "ec2messages", "ecr.api", "ecr.dkr"),
    *("eks", "eks-auth", "elasticfilesystem", "elasticloadbalancing", "events", "fsx", "kms", "lambda"),
    *("logs", "monitoring", "s3", "sagemaker.api", "secretsmanager", "servicequotas", "sns", "sqs", "ssm"),
    *("ssmmessages", "states", "sts", "tagging", "xray"),
)


@dataclass
class Missing:
    """The zones that lack a service."""

    zones: dict[str, list[str]] = field(default_factory=dict)


def check(call: Call, service: str, kind: str) -> None:
    """Raise AwsError for a service that does not exist in the region, or not with endpoints of this kind."""
    if not any(row["ServiceName"] == service and _kind(row) == kind for row in _rows(call)):
        raise _unknown(service)


def check_zones(call: Call, service: str, subnets: Iterable[Any]) -> None:
    """Raise AwsError for a subnet in a zone without the service, in the words of EC2."""
    lacking = _lacking(call.world, _short(call, service))
    for subnet in subnets:
        if subnet.availability_zone in lacking:
            raise AwsError(
                "InvalidParameter",
                f"The VPC endpoint service {service} does not support the availability zone of the subnet: "
                f"{subnet.id}.",
            )


@operation("ec2", "DescribeVpcEndpointServices")
def describe(call: Call) -> dict[str, Any]:
    """Return the services with their zones; an unknown name is an error."""
    rows, names = list(_rows(call)), call.params.get("ServiceNames", [])
    for name in names:
        if not any(row["ServiceName"] == name for row in rows):
            raise _unknown(name)
    values = {
        "service-name": lambda row: row["ServiceName"],
        "service-type": _kind,
        "owner": lambda row: row["Owner"],
    }
    found = [row for row in rows if not names or row["ServiceName"] in names]
    found = matching(found, call.params.get("Filters", []), values)
    return {"ServiceNames": sorted({row["ServiceName"] for row in found}), "ServiceDetails": found}


def _rows(call: Call) -> Iterator[dict[str, Any]]:
    zones = [zone.name for zone in call.backend("ec2").describe_availability_zones()]
    for kind, names in (("Gateway", _GATEWAYS), ("Interface", _INTERFACES)):
        for name in names:
            lacking = _lacking(call.world, name) if kind == "Interface" else ()
            yield {
                "ServiceName": f"com.amazonaws.{call.region}.{name}",
                "ServiceType": [{"ServiceType": kind}],
                "AvailabilityZones": [zone for zone in zones if zone not in lacking],
                "Owner": "amazon",
                "VpcEndpointPolicySupported": True,
                "AcceptanceRequired": False,
                "Tags": [],
            }


def _kind(row: dict[str, Any]) -> str:
    kind: str = row["ServiceType"][0]["ServiceType"]
    return kind


def _short(call: Call, service: str) -> str:
    return service.removeprefix(f"com.amazonaws.{call.region}.")


def _lacking(world: World, name: str) -> list[str]:
    return world.state(Missing).zones.get(name, [])


def _unknown(service: str) -> AwsError:
    return AwsError("InvalidServiceName", f"The Vpc Endpoint Service '{service}' does not exist")


def _write(world: World, wishes: dict[str, list[str]]) -> None:
    if unknown := sorted(set(wishes) - set(_INTERFACES)):
        raise ValueError(f"endpoint_zones_missing has no service {', '.join(unknown)}")
    world.state(Missing).zones = {service: list(zones) for service, zones in wishes.items()}


setting("endpoint_zones_missing", read=lambda world: world.state(Missing).zones, write=_write)
