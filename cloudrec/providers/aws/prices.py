"""AWS's prices: the table that ships with the code, the price list to renew it, and the spot market."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any

from cloudrec.cloud.prices import table_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cloudrec.cloud.prices import Prices
    from cloudrec.providers.aws.client import Aws

PRICE_LIST_REGION = "us-east-1"  # the price list is served in few regions, and tells of all


@cache
def shipped() -> Prices:
    """Return the table that ships with the code, of us-east-1."""
    return table_of(__package__)


def refresh(price_list: Aws, region: str, instance_types: Sequence[str] = ()) -> Prices:
    """Ask the cloud's price list for the prices of a region.

    Args:
        price_list: how it is reached: in PRICE_LIST_REGION, which tells of every region.
        region: whose prices are wanted.
        instance_types: types to ask for beside those of the shipped table.
    """
    wanted = sorted({*shipped().types, *instance_types})
    asked = {name: price for name in wanted if (price := _listed(price_list, region, name)) is not None}
    return replace(
        shipped(),
        date=datetime.now(UTC).date().isoformat(),
        source="AWS price list",
        region=region,
        types=asked,
    )


def spot(aws: Aws, instance_types: Sequence[str]) -> dict[tuple[str, str], float]:
    """Return the newest spot price of each type and zone, in USD an hour."""
    rows = aws.read(
        "ec2",
        "describe_spot_price_history",
        key="SpotPriceHistory",
        InstanceTypes=list(instance_types),
        ProductDescriptions=["Linux/UNIX"],
        StartTime=datetime.now(UTC),  # the price that holds now, not its history
    )
    newest: dict[tuple[str, str], dict[str, Any]] = {}
    for row in rows:
        place = (row["InstanceType"], row["AvailabilityZone"])
        if place not in newest or row["Timestamp"] > newest[place]["Timestamp"]:
            newest[place] = row
    return {place: float(row["SpotPrice"]) for place, row in newest.items()}


def _listed(price_list: Aws, region: str, instance_type: str) -> float | None:
    """The on-demand price of a shared Linux node with nothing installed; None where none is sold."""
    wanted = {
        "regionCode": region,
        "instanceType": instance_type,
        "operatingSystem": "Linux",
        "tenancy": "Shared",
        "preInstalledSw": "NA",
        "capacitystatus": "Used",
    }
    products = price_list.read(
        "pricing",
        "get_products",
        key="PriceList",
        ServiceCode="AmazonEC2",
        Filters=[{"Type": "TERM_MATCH", "Field": field, "Value": value} for field, value in wanted.items()],
    )
    for product in products:
        for term in json.loads(product).get("terms", {}).get("OnDemand", {}).values():
            for dimension in term["priceDimensions"].values():
                usd = float(dimension["pricePerUnit"]["USD"])
                if usd and dimension["unit"] == "Hrs":
                    return usd
    return None
