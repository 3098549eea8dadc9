"""Current prices from AWS: the price list for on-demand nodes and services, EC2 for spot nodes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypedDict, cast

from cloudrec.providers.aws import charges
from cloudrec.providers.base.offers import ON_DEMAND, SPOT
from cloudrec.providers.base.prices import GIB_MONTH, Price, today, traffic_to
from cloudrec_contract.safe_json import safe_object

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from types_boto3_ec2.literals import InstanceTypeType
    from types_boto3_ec2.type_defs import SpotPriceTypeDef

    from cloudrec.providers.aws.api.client import Aws

PRICE_LIST_REGION = "us-east-1"  # one of the few regions with a price list endpoint; it covers all regions
_SOURCE = "AWS price list"
# The list's unit -> ours.
_UNITS = {"Hrs": "hour", "Hours": "hour", "hours": "hour", "GB-Mo": GIB_MONTH, "GB": "GB"}


class _Dimension(TypedDict):
    """The price of a term for one unit, in one range of use."""

    unit: str
    beginRange: str
    pricePerUnit: dict[str, str]


class _Term(TypedDict):
    """One way to buy a product."""

    priceDimensions: dict[str, _Dimension]


class _Terms(TypedDict, total=False):
    """The ways to buy a product; only on demand is read."""

    OnDemand: dict[str, _Term]


class _Described(TypedDict):
    """What a product is; the attributes differ by service."""

    attributes: dict[str, str]


class _Product(TypedDict, total=False):
    """A product of the price list: the keys that are read."""

    product: _Described
    terms: _Terms


@dataclass(frozen=True, kw_only=True)
class _Listed:
    """Where the price list has services.

    Attributes:
        service: the list's code of the AWS service.
        fields: attributes that the products have.
        uses: a product's usage type, without the region's code that it has in most regions -> our name of it.
    """

    service: str
    fields: Mapping[str, str]
    uses: Mapping[str, str]


# Service codes, product families and usage types as in the price list's files (AWS Price List API) and in
# infracost's filters for it.
_SERVICES = (
    _Listed(
        service="AmazonEC2",
        fields={"productFamily": "NAT Gateway"},
        uses={"NatGateway-Hours": charges.NAT_GATEWAY, "NatGateway-Bytes": f"{charges.NAT_GATEWAY}-gb"},
    ),
    _Listed(
        service="AmazonVPC",
        fields={"productFamily": "VpcEndpoint"},
        uses={
            "VpcEndpoint-Hours": charges.INTERFACE_ENDPOINT,
            "VpcEndpoint-Bytes": f"{charges.INTERFACE_ENDPOINT}-gb",
        },
    ),
    _Listed(
        service="AmazonVPC",
        fields={"group": "VPCPublicIPv4Address"},
        uses={"PublicIPv4:InUseAddress": charges.PUBLIC_ADDRESS},
    ),
    _Listed(service="AmazonEKS", fields={}, uses={"AmazonEKS-Hours:perCluster": charges.CONTROL_PLANE}),
    _Listed(
        service="AWSELB",
        fields={"productFamily": "Load Balancer-Network"},
        uses={"LoadBalancerUsage": "load-balancer"},
    ),
    _Listed(
        service="AWSELB",
        fields={"productFamily": "Load Balancer"},
        uses={"LoadBalancerUsage": "classic-load-balancer"},
    ),
    _Listed(
        service="AmazonEC2",
        fields={"productFamily": "Storage", "volumeApiName": "gp3"},
        uses={"EBS:VolumeUsage.gp3": "ebs-gp3-gib"},
    ),
    _Listed(
        service="AmazonEC2",
        fields={"productFamily": "Storage Snapshot"},
        uses={"EBS:SnapshotUsage": "ebs-snapshot-gib"},
    ),
)


def on_demand(price_list: Aws, region: str, instance_types: Sequence[str]) -> list[Price]:
    """Return the price of a shared Linux node of each type that the price list has in a region.

    Args:
        price_list: the account in PRICE_LIST_REGION.
        region: the region of the prices.
        instance_types: the types.
    """
    found: list[Price] = []
    for name in instance_types:
        fields = {
            "instanceType": name,
            "operatingSystem": "Linux",
            "tenancy": "Shared",
            "preInstalledSw": "NA",
            # The other values are those of nodes in capacity reservations.
            "capacitystatus": "Used",
        }
        for product in _products(price_list, "AmazonEC2", region, fields):
            found += [
                _price(region, name, ON_DEMAND, unit, usd) for unit, usd in _rates(product) if unit == "hour"
            ]
    return found


def services(price_list: Aws, region: str) -> list[Price]:
    """Return the prices of a region's network, disks and control plane; those not listed are left out."""
    found: list[Price] = []
    for listed in _SERVICES:
        for product in _products(price_list, listed.service, region, listed.fields):
            # Without the code of the region: USE2-NatGateway-Hours
            used = re.sub(r"^[A-Z]{2,4}\d?-", "", product["product"]["attributes"].get("usagetype", ""))
            if name := listed.uses.get(used):
                found += [_price(region, name, "", unit, usd) for unit, usd in _rates(product)]
    return found


def traffic(price_list: Aws, region: str) -> list[Price]:
    """Return the prices of traffic from a region to each of the others."""
    found: list[Price] = []
    fields = {"fromRegionCode": region, "transferType": "InterRegion Outbound"}
    for product in _matching(price_list, "AWSDataTransfer", fields):
        # Local zones have products of this kind too.
        if there := product["product"]["attributes"].get("toRegionCode"):
            found += [_price(region, traffic_to(there), "", unit, usd) for unit, usd in _rates(product)]
    return found


def spot(aws: Aws, instance_types: Sequence[str]) -> list[Price]:
    """Return the newest spot price of each type and zone."""
    rows = aws.rows(
        aws.ec2.get_paginator("describe_spot_price_history").paginate,
        lambda page: page.get("SpotPriceHistory"),
        InstanceTypes=cast("list[InstanceTypeType]", list(instance_types)),
        ProductDescriptions=["Linux/UNIX"],
        StartTime=datetime.now(UTC),  # only the current price, without its history
    )
    # EC2 may return several rows of a type and zone, in no order.
    newest: dict[tuple[str, str], SpotPriceTypeDef] = {}
    for row in rows:
        place = (row["InstanceType"], row["AvailabilityZone"])
        if place not in newest or row["Timestamp"] > newest[place]["Timestamp"]:
            newest[place] = row
    return [
        Price(
            region=zone,
            name=name,
            capacity=SPOT,
            unit="hour",
            usd=float(row["SpotPrice"]),
            as_of=today(),
            source="EC2 spot price history",
        )
        for (name, zone), row in newest.items()
    ]


def _products(price_list: Aws, service: str, region: str, fields: Mapping[str, str]) -> Iterator[_Product]:
    yield from _matching(price_list, service, {"regionCode": region, **fields})


def _matching(price_list: Aws, service: str, wanted: Mapping[str, str]) -> Iterator[_Product]:
    listed = price_list.rows(
        price_list.pricing.get_paginator("get_products").paginate,
        lambda page: page.get("PriceList"),
        ServiceCode=service,
        Filters=[{"Type": "TERM_MATCH", "Field": field, "Value": value} for field, value in wanted.items()],
    )
    for product in listed:
        yield cast("_Product", safe_object(product))


def _rates(product: _Product) -> Iterator[tuple[str, float]]:
    """Yield the unit and the price of a product's first range of use on demand; none if it is zero."""
    for term in product.get("terms", {}).get("OnDemand", {}).values():
        for dimension in term["priceDimensions"].values():
            usd = float(dimension["pricePerUnit"].get("USD", 0))
            # The list has products at 0 that are not sold, such as nodes in a reservation of another account.
            if usd and dimension["unit"] in _UNITS and float(dimension.get("beginRange", 0)) == 0:
                yield _UNITS[dimension["unit"]], usd


def _price(region: str, name: str, capacity: str, unit: str, usd: float) -> Price:
    return Price(
        region=region, name=name, capacity=capacity, unit=unit, usd=usd, as_of=today(), source=_SOURCE
    )
