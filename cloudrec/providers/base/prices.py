"""Prices: a table ships with each provider, and `renewed_at` adds prices that the cloud's own list gave.

All tables have one format: CSV with the columns of `COLUMNS`, one price a row, with place, date and source.
A price is valid in its own place only; a service that costs the same everywhere has GLOBAL as its place. A
price without a row is not known. The vendor's bill decides what is paid.
"""

from __future__ import annotations

import csv
import io
import math
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from importlib.resources import files
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from cloudrec.engine.cost import FREE, times
from cloudrec.errors import DataError
from cloudrec.home import write_atomically
from cloudrec.providers.base.protocol import BLOCK, ON_DEMAND, SPOT

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from cloudrec.spec.models import ClusterSpec

GLOBAL = "global"
HOURS_A_MONTH = 730.0  # as in the vendors' price lists
GIB_MONTH = "GiB-month"
# Unit -> its hours. Traffic (GB) and executions have no price an hour: it depends on their number.
_HOURS: Mapping[str, float] = MappingProxyType(
    {"hour": 1.0, "day": 24.0, "month": HOURS_A_MONTH, GIB_MONTH: HOURS_A_MONTH, "TiB-month": HOURS_A_MONTH}
)
_TRAFFIC = "GB"
_TRAFFIC_TO = "traffic-to-"  # the beginning of the name of traffic to another region, before that region's
EXECUTION = "execution"  # of one step of a workflow


@dataclass(frozen=True, kw_only=True)
class Price:
    """One price of a vendor.

    Attributes:
        region: where it is valid: a region, a zone (spot prices that differ by zone), or GLOBAL.
        name: an instance type, or a service such as `nat-gateway`.
        capacity: the capacity type of nodes; empty for a service.
        unit: what `usd` buys: an hour, a day or a month of one, a GiB or TiB for a month, a GB of traffic, or
            one execution.
        usd: US dollars.
        as_of: the date of the source in ISO 8601, or the day on which it was read if it has none.
        source: the price list or page that it is from.
    """

    region: str
    name: str
    capacity: str
    unit: str
    usd: float
    as_of: str
    source: str

    @property
    def hourly_usd(self) -> float | None:
        """USD an hour of one unit; None for traffic and executions."""
        return self.usd / _HOURS[self.unit] if self.unit in _HOURS else None

    @property
    def label(self) -> str:
        """Date, place and source, as shown beside a price."""
        return f"{self.as_of}, {self.region}, {self.source}"


COLUMNS = tuple(each.name for each in fields(Price))
_Key = tuple[str, str, str]  # region, name, capacity


@dataclass(frozen=True, kw_only=True)
class Prices:
    """A price table, as seen from one region.

    Attributes:
        rows: (region, name, capacity) -> price; of all regions.
        region: the region whose prices the methods return.
    """

    rows: Mapping[_Key, Price]
    region: str = ""

    def price(self, name: str, capacity: str = "", zone: str = "") -> Price | None:
        """Return the price of a service, or of a node of a capacity type; None if the table does not have it.

        Args:
            name: the service or the instance type.
            capacity: the capacity type of a node.
            zone: of a node. A price of the zone is preferred to one of the region.
        """
        places = (place for place in (zone, self.region, GLOBAL) if place)
        return next((row for place in places if (row := self.rows.get((place, name, capacity)))), None)

    def bound(self, instance_type: str, capacity: str = ON_DEMAND, zone: str = "") -> Price | None:
        """Return the price of a node, or the one that it cannot exceed; None if neither is known.

        A spot node without a known spot price has the on-demand price, which is the clouds' own limit for it.
        Nodes of a reservation or a queue have it too, since the lists do not have theirs. Those of a block
        are paid for in advance: by the hour they have no price.
        """
        if capacity == BLOCK:
            return None
        spot = self.price(instance_type, SPOT, zone) if capacity == SPOT else None
        return spot or self.price(instance_type, ON_DEMAND)

    def node(self, instance_type: str, capacity: str = ON_DEMAND, zone: str = "") -> float | None:
        """Return the most USD an hour that one node costs; None if unknown.

        A node of a block was paid for in advance, and costs nothing by the hour.
        """
        if capacity == BLOCK:
            return FREE
        found = self.bound(instance_type, capacity, zone)
        return found.hourly_usd if found is not None else None

    def nodes(
        self, instance_type: str, count: int, capacity: str = ON_DEMAND, zone: str = ""
    ) -> float | None:
        """Return the most USD an hour that some nodes cost; None if unknown."""
        return times(count, self.node(instance_type, capacity, zone))

    def priced(self, instance_type: str, capacity: str = ON_DEMAND, zone: str = "") -> str:
        """Return the market, date, place and source of the price that `node` returns; empty if unknown."""
        if capacity == BLOCK:
            return "paid in advance"
        found = self.bound(instance_type, capacity, zone)
        return f"{found.capacity} price of {found.label}" if found is not None else ""

    def service(self, name: str, count: float = 1.0) -> float | None:
        """Return USD an hour of `count` units of a service such as `nat-gateway`; None if unknown."""
        found = self.price(name)
        return times(count, found.hourly_usd if found is not None else None)

    def executed(self, name: str, hourly: float) -> float | None:
        """Return USD an hour of a service that is paid by execution; None if unknown.

        Args:
            name: the service.
            hourly: the executions in an hour.
        """
        found = self.price(name)
        return times(hourly, found.usd if found is not None else None)

    def traffic(self, region: str) -> Price | None:
        """Return the price of a GB of traffic to another region of the cloud; None if unknown."""
        return self.price(traffic_to(region))

    @property
    def types(self) -> list[str]:
        """The instance types of all regions."""
        return sorted({name for _, name, capacity in self.rows if capacity})

    def within(self, region: str) -> Prices:
        """Return the same table, as seen from another region."""
        return replace(self, region=region)

    def renewed(self, rows: Iterable[Price]) -> Prices:
        """Return the table with newer rows, which replace those of the same place, name and capacity type."""
        return replace(self, rows={**self.rows, **_by_key(rows)})


def traffic_to(region: str) -> str:
    """Return the name that traffic to a region has in the tables; its price is one of the source region."""
    return f"{_TRAFFIC_TO}{region}"


def today() -> str:
    """Return the date of prices that are asked for now."""
    return datetime.now(UTC).date().isoformat()


def table_of(package: str) -> Prices:
    """Return the price table that ships with a provider.

    Args:
        package: the provider's package, with the file `prices.csv`.
    """
    text = files(package).joinpath("prices.csv").read_text(encoding="utf-8")
    return Prices(rows=_by_key(_parsed(text)))


def renewed_at(path: Path, table: Prices) -> Prices:
    """Return a table with the rows of a file that `save` wrote; DataError if the file is unreadable."""
    return table.renewed(saved_at(path))


def saved_at(path: Path) -> list[Price]:
    """Return the rows of a file that `save` wrote; none without a file; DataError if it is unreadable."""
    try:
        return _parsed(path.read_text(encoding="utf-8")) if path.exists() else []
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path} is no price table: {error}", remedy=f"remove {path}") from error


def save(path: Path, rows: Iterable[Price]) -> None:
    """Add rows to a file, in place of older ones of the same place, name and capacity type."""
    kept = _by_key([*saved_at(path), *rows])
    text = io.StringIO()
    out = csv.writer(text, lineterminator="\n")
    out.writerow(COLUMNS)
    out.writerows([getattr(row, name) for name in COLUMNS] for _, row in sorted(kept.items()))
    write_atomically(path, text.getvalue())


def _parsed(text: str) -> list[Price]:
    rows = list(csv.DictReader(io.StringIO(text), strict=True))
    if rows and tuple(rows[0]) != COLUMNS:
        raise ValueError(f"its columns are {', '.join(rows[0])}, not {', '.join(COLUMNS)}")
    return [_row({**row, "usd": float(row["usd"])}) for row in rows]


def _row(cells: Mapping[str, str | float]) -> Price:
    usd, unit = float(cells["usd"]), str(cells["unit"])
    if not math.isfinite(usd) or usd < 0:
        raise ValueError(f"{cells['name']} has the price {usd}")
    units = (*_HOURS, _TRAFFIC, EXECUTION)
    if unit not in units:
        raise ValueError(f"{cells['name']} has the unit {unit!r}; there are {', '.join(units)}")
    return Price(
        region=str(cells["region"]),
        name=str(cells["name"]),
        capacity=str(cells["capacity"]),
        unit=unit,
        usd=usd,
        as_of=str(cells["as_of"]),
        source=str(cells["source"]),
    )


def _by_key(rows: Iterable[Price]) -> dict[_Key, Price]:
    return {(row.region, row.name, row.capacity): row for row in rows}


@runtime_checkable
class KnowsSpotPrices(Protocol):
    """A provider whose spot prices change from hour to hour, and can be read with the guard's permissions."""

    def spot_now(self, cluster: ClusterSpec, types: Sequence[str]) -> Sequence[Price]:
        """Return the current spot prices of instance types in the cluster's region.

        Raises:
            CloudrecError: the cloud gives none.
        """
        ...
