"""What instances cost on demand and as spot; `price_list` serves the former.

`spot_price_factor` of /_control: spot prices as parts of the on-demand one, by "type/zone", "type" or "*":
{"p4d.24xlarge/us-east-1b": 0.3}. null means that no spot capacity is sold there, and so no price is listed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.aws.api.registry import setting
from cloudrec_sandbox.aws.services import capacity

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec_sandbox.aws.api.world import World

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
ABROAD = 1.1  # factor of other regions, which are more expensive
_PER_VCPU = 0.05  # USD an hour, for a type that is not listed
_SPOT = 0.4  # of the on-demand price, unless set otherwise


@dataclass
class Factors:
    """The spot price factors that /_control has set."""

    values: dict[str, float | None] = field(default_factory=dict)


def _write(world: World, factors: Mapping[str, Any]) -> None:
    given = {name: None if factor is None else float(factor) for name, factor in factors.items()}
    world.state(Factors).values.update(given)


setting("spot_price_factor", read=lambda world: dict(world.state(Factors).values), write=_write)


def on_demand(kind: str, region: str) -> float:
    """Return a type's on-demand price, in USD an hour."""
    listed = _ON_DEMAND.get(kind)
    price = listed if listed is not None else _PER_VCPU * capacity.vcpus(kind)
    return price if region == _HOME else round(price * ABROAD, 4)


def spot(world: World, kind: str, zone: str) -> float | None:
    """Return a type's spot price in a zone, in USD an hour; None if no spot capacity is sold there."""
    usual = _SPOT + (ord(zone[-1]) - ord("a")) / 100  # so that zones have different prices
    factors = world.state(Factors).values
    factor = next((factors[name] for name in (f"{kind}/{zone}", kind, "*") if name in factors), usual)
    if factor is None:
        return None
    return round(on_demand(kind, zone[:-1]) * factor, 4)
