"""Spot prices of the pools that have had nodes, read again from time to time: the cloud changes them.

A pool keeps its zones when it has no nodes: its price decides whether a run may have nodes of it again.
"""

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
        zones: the zones in which the nodes of a pool were seen, by pool.
    """

    at: float = 0.0
    hourly_usd: Mapping[str, float] = field(default_factory=dict)
    zones: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

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

    def located(self, nodes: Sequence[LiveNode], tariffs: Sequence[Tariff]) -> SpotRecord:
        """Return the record with the zones of the spot nodes that exist."""
        spot = {tariff.pool for tariff in tariffs if tariff.capacity == SPOT}
        found: dict[str, set[str]] = {}
        for node in nodes:
            if node.pool in spot and node.zone:
                found.setdefault(node.pool, set()).add(node.zone)
        return replace(
            self, zones={**self.zones, **{pool: tuple(sorted(zones)) for pool, zones in found.items()}}
        )

    def types(self, tariffs: Sequence[Tariff]) -> tuple[str, ...]:
        """Return the instance types of the spot pools whose zones are known."""
        found = {each.instance_type for each in tariffs if each.pool in self.zones and each.capacity == SPOT}
        return tuple(sorted(found))

    def prices(self, tariffs: Sequence[Tariff], listed: Sequence[Price]) -> Mapping[str, float]:
        """Return the spot price of each pool whose zones are known; the highest if it has several.

        Args:
            tariffs: the type and the capacity of each pool.
            listed: the cloud's spot prices, each of a zone or of a region.
        """
        known = {(price.name, price.region): price.usd for price in listed if price.capacity == SPOT}
        found: dict[str, float] = {}
        for tariff in (each for each in tariffs if each.capacity == SPOT):
            # A zone's name begins with its region's: us-east-1a, eastus-1.
            usd = [
                price
                for zone in self.zones.get(tariff.pool, ())
                for (name, place), price in known.items()
                if name == tariff.instance_type and (zone == place or _region(zone) == place)
            ]
            if usd:
                found[tariff.pool] = max(usd)
        return found

    def applied(self, tariffs: Sequence[Tariff]) -> tuple[Tariff, ...]:
        """Return the tariffs with these prices; those of pools without one stay.

        A price of a pool without known zones is of an earlier version, which did not read it again.
        """
        return tuple(
            replace(each, hourly_usd=self.hourly_usd[each.pool])
            if each.pool in self.hourly_usd and each.pool in self.zones
            else each
            for each in tariffs
        )


def _region(zone: str) -> str:
    """Return the region of a zone whose number follows a dash, as Azure writes it."""
    return zone.rpartition("-")[0]
