"""AWS's price list (the Price List Query API): products of EC2, VPC, EKS, load balancing and data transfer.

Filters work as the service's model describes them. A product without the field of a filter does not match.
Attributes and usage types are those of AWS's price list files: in most regions a usage type begins with the
region's code.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import NAMESPACE_DNS, uuid5

from moto.ec2.models.instance_types import INSTANCE_TYPES

from cloudrec_sandbox.aws.api.errors import AwsError
from cloudrec_sandbox.aws.api.registry import operation
from cloudrec_sandbox.aws.services import capacity, prices

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cloudrec_sandbox.aws.api.call import Call

_INSTANCE = "Compute Instance"
_HOME = "us-east-1"
_PAGE = 100  # the most products of one answer
_FILTERS = 50  # the most filters of one request
# Region -> its name in the list, and its code in usage types.
_REGIONS = {
    "us-east-1": ("US East (N. Virginia)", ""),
    "us-east-2": ("US East (Ohio)", "USE2-"),
    "us-west-2": ("US West (Oregon)", "USW2-"),
    "eu-west-1": ("EU (Ireland)", "EU-"),
    "eu-central-1": ("EU (Frankfurt)", "EUC1-"),
}
_TRAFFIC = "AWSDataTransfer"
# Types that AWS sells as capacity blocks only: the list has no on-demand price of them.
_UNLISTED = frozenset({"p5e.48xlarge"})


@dataclass(frozen=True, kw_only=True)
class _Service:
    """A product other than an instance.

    Attributes:
        code: the code of its AWS service.
        family: its product family.
        usage: its usage type without a region.
        unit: the unit that is sold.
        usd: the price of a unit in us-east-1.
        coded: whether the usage type has the region's code in us-east-1, too.
        extra: further attributes.
    """

    code: str
    family: str
    usage: str
    unit: str
    usd: float
    coded: bool = False
    extra: tuple[tuple[str, str], ...] = ()


_SERVICES = (
    _Service(code="AmazonEC2", family="NAT Gateway", usage="NatGateway-Hours", unit="Hrs", usd=0.045),
    _Service(code="AmazonEC2", family="NAT Gateway", usage="NatGateway-Bytes", unit="GB", usd=0.045),
    _Service(
        code="AmazonEC2",
        family="NAT Gateway",
        usage="NatGateway-Prvd-Bytes",
        unit="GB",
        usd=0.0,
    ),
    _Service(code="AmazonVPC", family="VpcEndpoint", usage="VpcEndpoint-Hours", unit="Hrs", usd=0.01),
    _Service(code="AmazonVPC", family="VpcEndpoint", usage="VpcEndpoint-Bytes", unit="GB", usd=0.01),
    _Service(code="AmazonVPC", family="VpcEndpoint", usage="VpcEndpoint-GWLBE-Hours", unit="Hrs", usd=0.01),
    *(
        _Service(
            code="AmazonVPC",
            family="VpcPublicIPv4",
            usage=f"PublicIPv4:{state}Address",
            unit="Hrs",
            usd=0.005,
            extra=(("group", "VPCPublicIPv4Address"),),
        )
        for state in ("InUse", "Idle")
    ),
    _Service(
        code="AmazonEKS",
        family="Compute",
        usage="AmazonEKS-Hours:perCluster",
        unit="Hours",
        usd=0.10,
        coded=True,
    ),
    _Service(
        code="AmazonEKS",
        family="Compute",
        usage="AmazonEKS-Hours:extendedSupport",
        unit="Hours",
        usd=0.50,
        coded=True,
    ),
    *(
        _Service(code="AWSELB", family=family, usage="LoadBalancerUsage", unit="Hrs", usd=usd)
        for family, usd in (
            ("Load Balancer-Application", 0.0225),
            ("Load Balancer-Network", 0.0225),
            ("Load Balancer", 0.025),
        )
    ),
    _Service(
        code="AmazonEC2",
        family="Storage",
        usage="EBS:VolumeUsage.gp3",
        unit="GB-Mo",
        usd=0.08,
        extra=(("volumeApiName", "gp3"),),
    ),
    _Service(code="AmazonEC2", family="Storage Snapshot", usage="EBS:SnapshotUsage", unit="GB-Mo", usd=0.05),
)


def service_usd(usage: str, region: str) -> float:
    """Return the price of a unit of a usage type, in USD."""
    usd = next(each.usd for each in _SERVICES if each.usage == usage)
    return usd if region == _HOME else usd * prices.ABROAD


@operation("pricing", "GetProducts")
def get_products(call: Call) -> dict[str, Any]:
    """Return a service's products that match all filters, with their on-demand terms."""
    wanted = call.params
    filters = wanted.get("Filters", [])
    _check(wanted, filters)
    matching = [
        product
        for product in _products(wanted["ServiceCode"], filters)
        if all(_matches(product["product"], row) for row in filters)
    ]
    start = _start(wanted.get("NextToken"), len(matching))
    end = start + wanted.get("MaxResults", _PAGE)
    more = {"NextToken": str(end)} if end < len(matching) else {}
    return {
        "FormatVersion": "aws_v1",
        "PriceList": [json.dumps(product) for product in matching[start:end]],
        **more,
    }


def _check(wanted: Mapping[str, Any], filters: list[dict[str, str]]) -> None:
    """Refuse what the service's model does not allow."""
    kinds = ("TERM_MATCH", "EQUALS", "CONTAINS", "ANY_OF", "NONE_OF")
    problem = ""
    if wanted.get("FormatVersion", "aws_v1") != "aws_v1":
        problem = f"Invalid FormatVersion: {wanted['FormatVersion']}"
    elif not 1 <= wanted.get("MaxResults", _PAGE) <= _PAGE:
        problem = f"MaxResults must be from 1 to {_PAGE}"
    elif len(filters) > _FILTERS:
        problem = f"There are more than {_FILTERS} filters"
    elif strange := [row["Type"] for row in filters if row.get("Type") not in kinds]:
        problem = f"Invalid filter type: {strange[0]}"
    elif any(not row.get("Field") or not row.get("Value") for row in filters):
        problem = "A filter needs a Field and a Value"
    if problem:
        raise AwsError("InvalidParameterException", problem)
    codes = {_TRAFFIC, *(each.code for each in _SERVICES)}
    if wanted["ServiceCode"] not in codes:
        raise AwsError("NotFoundException", f"Service {wanted['ServiceCode']} not found")


def _start(token: str | None, count: int) -> int:
    if not token:
        return 0
    if not token.isdigit() or int(token) >= count:
        raise AwsError("InvalidNextTokenException", "The pagination token is invalid.")
    return int(token)


def _matches(product: Mapping[str, Any], row: Mapping[str, str]) -> bool:
    fields = {**product["attributes"], "productFamily": product["productFamily"]}
    if row["Field"] not in fields:
        return False
    value, wanted = str(fields[row["Field"]]), row["Value"]
    listed = [each.strip() for each in wanted.split(",")]
    return {
        "TERM_MATCH": value == wanted,
        "EQUALS": value == wanted,
        "CONTAINS": wanted in value,
        "ANY_OF": value in listed,
        "NONE_OF": value not in listed,
    }[row["Type"]]


def _products(code: str, filters: list[dict[str, str]]) -> Iterator[dict[str, Any]]:
    """Yield a service's products; those that cannot match are left out, since EC2 has thousands."""
    if code == _TRAFFIC:
        yield from _traffic()
        return
    only = {row["Field"]: row["Value"] for row in filters if row["Type"] in {"TERM_MATCH", "EQUALS"}}
    kind, family = only.get("instanceType"), only.get("productFamily", _INSTANCE)
    for region, (location, front) in _REGIONS.items():
        if only.get("regionCode", region) != region:
            continue
        place = {
            "servicecode": code,
            "regionCode": region,
            "location": location,
            "locationType": "AWS Region",
        }
        factor = 1.0 if region == _HOME else prices.ABROAD
        for each in _SERVICES:
            if each.code == code:
                coded = "USE1-" if each.coded and not front else front
                attributes = {**place, "usagetype": f"{coded}{each.usage}", **dict(each.extra)}
                yield _product(each.family, attributes, each.unit, each.usd * factor)
        if code == "AmazonEC2" and family == _INSTANCE:
            for name in (kind,) if kind is not None else INSTANCE_TYPES:
                if name in INSTANCE_TYPES and name not in _UNLISTED:
                    yield from _instances(name, region, {**place, "usagetype": f"{front}BoxUsage:{name}"})


def _traffic() -> Iterator[dict[str, Any]]:
    """Yield traffic between regions. Its products have the codes of two regions, and no regionCode."""
    for start, (start_title, start_code) in _REGIONS.items():
        for end, (end_title, end_code) in _REGIONS.items():
            if start == end:
                continue
            pair = f"{start_code or 'USE1-'}{end_code or 'USE1-'}"
            for direction, usd in (("Out", _traffic_usd(start, end)), ("In", 0.0)):
                attributes = {
                    "servicecode": _TRAFFIC,
                    "transferType": f"InterRegion {direction}bound",
                    "fromLocation": start_title,
                    "fromLocationType": "AWS Region",
                    "fromRegionCode": start,
                    "toLocation": end_title,
                    "toLocationType": "AWS Region",
                    "toRegionCode": end,
                    "usagetype": f"{pair}AWS-{direction}-Bytes",
                }
                yield _product("Data Transfer", attributes, "GB", usd)


def _traffic_usd(start: str, end: str) -> float:
    return 0.01 if {start, end} == {"us-east-1", "us-east-2"} else 0.02


def _instances(kind: str, region: str, place: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """Yield what the list has of an instance type: shared Linux nodes, and those of a reservation at 0."""
    usd = prices.on_demand(kind, region)
    for status, price in (("Used", usd), ("AllocatedCapacityReservation", 0.0)):
        attributes = {
            **place,
            "instanceType": kind,
            "operatingSystem": "Linux",
            "preInstalledSw": "NA",
            "tenancy": "Shared",
            "capacitystatus": status,
            "vcpu": str(capacity.vcpus(kind)),
        }
        yield _product(_INSTANCE, attributes, "Hrs", price)


def _product(family: str, attributes: Mapping[str, str], unit: str, usd: float) -> dict[str, Any]:
    words = ".".join([family, *attributes.values()])
    sku = uuid5(NAMESPACE_DNS, words).hex[:16].upper()
    offer, dimension = f"{sku}.JRTCKXETXF", f"{sku}.JRTCKXETXF.6YS6EN2CT7"
    return {
        "product": {"productFamily": family, "sku": sku, "attributes": dict(attributes)},
        "serviceCode": attributes["servicecode"],
        "terms": {
            "OnDemand": {
                offer: {
                    "sku": sku,
                    "offerTermCode": "JRTCKXETXF",
                    "priceDimensions": {
                        dimension: {
                            "unit": unit,
                            "beginRange": "0",
                            "endRange": "Inf",
                            "pricePerUnit": {"USD": f"{usd:.10f}"},
                        }
                    },
                    "termAttributes": {},
                }
            }
        },
    }
