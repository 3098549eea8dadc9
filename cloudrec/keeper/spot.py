"""Spot prices of the pools that have nodes, read again from time to time: the cloud changes them."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING

from cloudrec.providers.base.offers import SPOT
from cloudrec_contract.safe_json import record_of, safe_object

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cloudrec.keeper.meter import LiveNode, Tariff
    from cloudrec.providers.base.prices import Price

SPOT_PRICES = "spot.json"  # the key of the guard's ConfigMap that has them
EVERY_S = 900.0


@dataclass(frozen=True, kw_only=True)
class SpotRecord:
    """The prices that were read.

    Attributes:
        at: the time of the reading, in seconds since the epoch; 0 before the first.
        hourly_usd: USD an hour of a node, by pool.
    """

    at: float = 0.0
    hourly_usd: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, text: str) -> SpotRecord:
        """Return the record from the ConfigMap's text; an empty one if it is invalid or absent."""
        try:
            return record_of(cls, safe_object(text))
        except ValueError:
            return cls()

    def to_json(self) -> str:
        """Return the record as the ConfigMap has it."""
        return json.dumps(asdict(self))

    def applied(self, tariffs: Sequence[Tariff]) -> tuple[Tariff, ...]:
        """Return the tariffs with these prices; those of pools without one stay."""
        return tuple(
            replace(each, hourly_usd=self.hourly_usd[each.pool]) if each.pool in self.hourly_usd else each
            for each in tariffs
        )


def types_in_use(nodes: Sequence[LiveNode], tariffs: Sequence[Tariff]) -> tuple[str, ...]:
    """Return the instance types of the spot nodes that exist."""
    pools = {node.pool for node in nodes}
    found = {each.instance_type for each in tariffs if each.pool in pools and each.capacity == SPOT}
    return tuple(sorted(found))


def by_pool(
    nodes: Sequence[LiveNode], tariffs: Sequence[Tariff], prices: Sequence[Price]
) -> Mapping[str, float]:
    """Return the spot price of each pool that has spot nodes; the highest if its zones have several.

    Args:
        nodes: the nodes that exist.
        tariffs: the type and the capacity of each pool.
        prices: the cloud's spot prices, each of a zone or of a region.
    """
    listed = {(price.name, price.region): price.usd for price in prices if price.capacity == SPOT}
    found: dict[str, float] = {}
    for tariff in tariffs:
        zones = {node.zone for node in nodes if node.pool == tariff.pool and tariff.capacity == SPOT}
        # A zone's name begins with its region's: us-east-1a, eastus-1.
        usd = [
            price
            for zone in zones
            for (name, place), price in listed.items()
            if name == tariff.instance_type and zone and (zone == place or _region(zone) == place)
        ]
        if usd:
            found[tariff.pool] = max(usd)
    return found


def _region(zone: str) -> str:
    """Return the region of a zone whose number follows a dash, as Azure writes it."""
    return zone.rpartition("-")[0]
