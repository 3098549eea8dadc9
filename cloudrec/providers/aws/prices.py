"""What things cost: a dated table that ships with the code, and the cloud's own price list to renew it.

The table is of one region (us-east-1). It serves plans, which are made offline and the same every time; what
is spent is known by the bill alone.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from cloudrec.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from cloudrec.providers.aws.client import Aws

HOURS_A_MONTH = 730.0  # as the price list counts
PRICE_LIST_REGION = "us-east-1"  # the price list is served in few regions, and tells of all


@dataclass(frozen=True, kw_only=True)
class Prices:
    """Prices of one moment and region.

    Attributes:
        date: ISO 8601.
        source: who says so.
        region: where they hold.
        types: instance type -> USD an hour of one on-demand Linux node.
        services: what else costs -> USD an hour, of one, or of one GiB where its name ends so.
    """

    date: str
    source: str
    region: str
    types: Mapping[str, float]
    services: Mapping[str, float]

    @property
    def label(self) -> str:
        """Date, region and source, as shown beside a price."""
        return f"{self.date}, {self.region}, {self.source}"

    def node(self, instance_type: str) -> float | None:
        """USD an hour of one on-demand node; None where the table does not have the type."""
        return self.types.get(instance_type)

    def nodes(self, instance_type: str, count: int) -> float:
        """USD an hour of some nodes, at most: spot nodes never cost more. 0 where the type is not known."""
        return count * self.types.get(instance_type, 0.0)

    def service(self, name: str, count: float = 1.0) -> float:
        """USD an hour of something else that costs, such as `nat-gateway`."""
        return count * self.services[name]

    def save(self, path: Path) -> None:
        """Write the prices of types, so that `saved` can read them."""
        path.write_text(
            json.dumps(
                {
                    "date": self.date,
                    "source": self.source,
                    "region": self.region,
                    "hourly_usd": dict(self.types),
                }
            ),
            encoding="utf-8",
        )


@cache
def shipped() -> Prices:
    """Return the table that ships with the code."""
    table = json.loads(files(__package__).joinpath("prices.json").read_text(encoding="utf-8"))
    types, services = table["types"], table["services"]
    monthly = {name: usd / HOURS_A_MONTH for name, usd in services["monthly_usd"].items()}
    return Prices(
        date=types["date"],
        source=types["source"],
        region=types["region"],
        types=types["hourly_usd"],
        services={**services["hourly_usd"], **monthly},
    )


def saved(path: Path) -> Prices:
    """Return the shipped table with the prices that `save` wrote; DataError where the file holds none."""
    try:
        types = json.loads(path.read_text(encoding="utf-8"))
        hourly = {str(name): float(usd) for name, usd in types["hourly_usd"].items()}
        return replace(
            shipped(), date=types["date"], source=types["source"], region=types["region"], types=hourly
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{path} is no price table: {error}", remedy=f"remove {path}") from error


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
