"""What instances cost: the price list, and prices of spot capacity.

`spot_price_factor` of /_control: spot prices as parts of the on-demand one, by "type/zone", "type" or "*":
{"p4d.24xlarge/us-east-1b": 0.3}.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import NAMESPACE_DNS, uuid5

from moto.ec2.models.instance_types import INSTANCE_TYPES

from cloudrec.sandbox.aws.registry import operation, setting
from cloudrec.sandbox.aws.services import capacity

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec.sandbox.aws.call import Call
    from cloudrec.sandbox.aws.world import World

# USD an hour of Linux in us-east-1, on demand.
_ON_DEMAND = {
    "p4d.24xlarge": 21.96,
    "p4de.24xlarge": 27.45,
    "p5.48xlarge": 55.04,
    "p5en.48xlarge": 63.30,
    "g5.xlarge": 1.006,
    "g5.12xlarge": 5.672,
    "g5.48xlarge": 16.288,
    "g6.xlarge": 0.805,
    "g6.12xlarge": 4.602,
    "g6.48xlarge": 13.35,
    "m5.large": 0.096,
    "m5.xlarge": 0.192,
    "m5.2xlarge": 0.384,
    "m6i.large": 0.096,
    "m6i.xlarge": 0.192,
    "m6i.2xlarge": 0.384,
    "m7i.large": 0.1008,
    "m7i.xlarge": 0.2016,
    "t3.medium": 0.0416,
    "t3.large": 0.0832,
}
_HOME = "us-east-1"
_ABROAD = 1.1  # other regions are dearer
_PER_VCPU = 0.05  # USD an hour, of what is not listed
_SPOT = 0.4  # of the on-demand price, unless told otherwise
_LOCATIONS = {
    "us-east-1": "US East (N. Virginia)",
    "us-east-2": "US East (Ohio)",
    "us-west-2": "US West (Oregon)",
    "eu-west-1": "EU (Ireland)",
    "eu-central-1": "EU (Frankfurt)",
}
_PAGE = 100


@dataclass
class Factors:
    """What /_control has said of spot prices."""

    values: dict[str, float] = field(default_factory=dict)


def _write(world: World, factors: Mapping[str, Any]) -> None:
    world.state(Factors).values.update({name: float(factor) for name, factor in factors.items()})


setting("spot_price_factor", read=lambda world: dict(world.state(Factors).values), write=_write)


def on_demand(kind: str, region: str) -> float:
    """USD an hour of a type."""
    listed = _ON_DEMAND.get(kind)
    price = listed if listed is not None else _PER_VCPU * capacity.vcpus(kind)
    return price if region == _HOME else round(price * _ABROAD, 4)


def spot(world: World, kind: str, zone: str) -> float:
    """USD an hour of a type's spot capacity in a zone."""
    factors = world.state(Factors).values
    factor = next((factors[name] for name in (f"{kind}/{zone}", kind, "*") if name in factors), None)
    if factor is None:
        factor = _SPOT + (ord(zone[-1]) - ord("a")) / 100  # zones differ a little
    return round(on_demand(kind, zone[:-1]) * factor, 4)


@operation("pricing", "GetProducts")
def get_products(call: Call) -> dict[str, Any]:
    """On-demand terms of EC2's instance types."""
    wanted = call.params
    if wanted["ServiceCode"] != "AmazonEC2":
        return {"FormatVersion": "aws_v1", "PriceList": []}
    fields = {row["Field"]: row["Value"] for row in wanted.get("Filters", [])}
    regions = [
        region
        for region, location in _LOCATIONS.items()
        if fields.get("regionCode", region) == region and fields.get("location", location) == location
    ]
    kinds = [kind for kind in INSTANCE_TYPES if fields.get("instanceType", kind) == kind]
    products = [_product(kind, region) for region in regions for kind in kinds]
    matching = [
        product
        for product in products
        if all(product["product"]["attributes"].get(name, value) == value for name, value in fields.items())
    ]
    start = int(wanted.get("NextToken") or 0)
    end = start + wanted.get("MaxResults", _PAGE)
    more = {"NextToken": str(end)} if end < len(matching) else {}
    return {
        "FormatVersion": "aws_v1",
        "PriceList": [json.dumps(product) for product in matching[start:end]],
        **more,
    }


def _product(kind: str, region: str) -> dict[str, Any]:
    sku = uuid5(NAMESPACE_DNS, f"{kind}.{region}").hex[:16].upper()
    offer, dimension = f"{sku}.JRTCKXETXF", f"{sku}.JRTCKXETXF.6YS6EN2CT7"
    return {
        "product": {
            "productFamily": "Compute Instance",
            "sku": sku,
            "attributes": {
                "servicecode": "AmazonEC2",
                "instanceType": kind,
                "regionCode": region,
                "location": _LOCATIONS[region],
                "operatingSystem": "Linux",
                "preInstalledSw": "NA",
                "tenancy": "Shared",
                "capacitystatus": "Used",
                "vcpu": str(capacity.vcpus(kind)),
            },
        },
        "serviceCode": "AmazonEC2",
        "terms": {
            "OnDemand": {
                offer: {
                    "sku": sku,
                    "offerTermCode": "JRTCKXETXF",
                    "priceDimensions": {
                        dimension: {
                            "unit": "Hrs",
                            "beginRange": "0",
                            "endRange": "Inf",
                            "pricePerUnit": {"USD": f"{on_demand(kind, region):.10f}"},
                        }
                    },
                    "termAttributes": {},
                }
            }
        },
    }
