"""What things cost: a dated table that ships with the code; each cloud renews it from its own price list.

A table is of one region. It serves plans, which are made offline and the same every time; what is spent is
known by the bill alone.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from importlib.resources import files
from typing import TYPE_CHECKING

from cloudrec.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

HOURS_A_MONTH = 730.0  # as the price lists count


@dataclass(frozen=True, kw_only=True)
class Prices:
    """Prices of one moment and region.

    Attributes:
        date: ISO 8601.
        source: who says so.
        region: where they hold.
        types: instance type -> USD an hour of one on-demand Linux node.
        services: what else costs -> USD an hour, of one, or of one GiB or TiB where its name ends so.
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


def table_of(package: str) -> Prices:
    """Return the table that ships with a provider, `prices.json` in its folder.

    Args:
        package: the provider's package.
    """
    table = json.loads(files(package).joinpath("prices.json").read_text(encoding="utf-8"))
    types, services = table["types"], table["services"]
    monthly = {name: usd / HOURS_A_MONTH for name, usd in services["monthly_usd"].items()}
    return Prices(
        date=types["date"],
        source=types["source"],
        region=types["region"],
        types=types["hourly_usd"],
        services={**services["hourly_usd"], **monthly},
    )


def saved_at(path: Path, shipped: Prices) -> Prices:
    """Return the shipped table with the prices that `save` wrote; DataError where the file holds none."""
    try:
        types = json.loads(path.read_text(encoding="utf-8"))
        hourly = {str(name): float(usd) for name, usd in types["hourly_usd"].items()}
        return replace(
            shipped, date=types["date"], source=types["source"], region=types["region"], types=hourly
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{path} is no price table: {error}", remedy=f"remove {path}") from error
